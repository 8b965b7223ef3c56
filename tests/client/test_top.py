"""Frames of `octavo top` as a terminal of 80 or 140 columns shows them."""

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from octavo.v1 import admin_pb2 as pb
from octavo_client.cli import main
from octavo_client.top_view import frame
from octavo_client.window import Window
from octavo_scheduler.model import ServedModel, load_model
from rich.console import Console

from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import VOCAB_SIZE, PaperWorker
from tests.doubles.tiny_model import make_tiny_model

BOUNDS = [0.01, 0.1, 1.0, 10.0]


def histogram(*counts: int) -> pb.Histogram:
    return pb.Histogram(bounds=BOUNDS, counts=[*counts, 0])


def status(second: int) -> pb.GetStatusResponse:
    worker = pb.WorkerStatus(
        worker_id="gpu-0",
        state=pb.WORKER_STATE_READY,
        running=30,
        swapped=2,
        kernels="triton",
        device=pb.PageCounts(total=1000, free=240, held=500, cached=250, fenced=10),
        host=pb.PageCounts(total=100, free=99, held=1),
        answer_seconds=histogram(0, 40 * second, 0, 0),
        device_memory_used=64 << 30,
        device_memory_total=80 << 30,
    )
    other = pb.WorkerStatus(worker_id="a-worker-with-a-very-long-name\x1b[31m", state=pb.WORKER_STATE_DRAINING)
    return pb.GetStatusResponse(
        model="tiny",
        uptime_seconds=3600 + second,
        waiting=5,
        workers=[worker, other],
        queue=[pb.QueueDepth(priority=3, waiting=1), pb.QueueDepth(waiting=4)],
        counters=pb.Counters(
            generated_tokens=second * second * 100,
            prompt_tokens=7 * second,
            swaps=3 * second,
            drops=second,
            swapped_out_bytes=second << 20,
            workers_lost=1,
        ),
        service=pb.Service(
            first_token_seconds=histogram(0, 0, 10 * second, second),
            inter_token_seconds=histogram(0, 100 * second, 0, 0),
            queue_seconds=histogram(0, 0, 0, 0),
            outcomes=[pb.OutcomeCount(outcome="stop", count=1234), pb.OutcomeCount(outcome="overloaded", count=5)],
            prefix_queries=200,
            prefix_hits=50,
        ),
    )


def shown(width: int, *seconds: int, trouble: str = "") -> str:
    window = Window()
    for second in seconds:
        window.add(status(second))
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(frame(window, "127.0.0.1:50051", width, trouble))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_frame_says_what_happened_in_the_last_seconds() -> None:
    text = words(shown(80, 0, 1, 2))
    for figure in (
        "octavo top tiny up 1:00:02 127.0.0.1:50051",
        "tokens/s 200 ▃█ first token p50 595 ms p99 9.01 s",
        "prompt/s 7 next token p50 55 ms p99 99.1 ms",
        "sequences 30 run, 2 swapped out in queue p50 - p99 -",
        "waiting 5 (1 at +3) answered 1,234, 5 otherwise",
        "preempted 4.0/s; 6 swap, 2 drop prefix cache 25% of prompts found",
        "swapped out 1 MiB/s, in 0 B/s trouble workers lost: 1",
        "gpu-0 ready 30 2 ████████▒▓▓▓▓··· 50% █······· 1% 55 ms",
    ):
        assert figure in text


def test_a_wide_frame_says_more() -> None:
    text = words(shown(140, 0, 1))
    assert f"{'█' * 12}▒{'▓' * 6}{'·' * 5} 50%" in text
    assert "triton 64 GiB of 80 GiB (80%)" in text
    assert "triton" not in shown(80, 0, 1)


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("seconds", [(0,), (0, 1), tuple(range(40))])
def test_a_frame_fits_its_terminal(width: int, seconds: tuple[int, ...]) -> None:
    lines = shown(width, *seconds, trouble="No server answers.").splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) < 24
    assert "No server answers." in lines


def test_the_name_of_a_worker_is_shown_and_not_obeyed() -> None:
    assert "\x1b" not in shown(140, 0)
    assert "draining" in shown(140, 0)


def test_a_server_without_workers_says_that_requests_wait() -> None:
    window = Window()
    window.add(pb.GetStatusResponse(model="tiny"))
    console = Console(file=io.StringIO(), width=80)
    console.print(frame(window, "", 80))
    assert isinstance(console.file, io.StringIO)
    assert "no worker is here" in console.file.getvalue()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    return load_model(make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", vocab=VOCAB_SIZE, layers=1))


@pytest.fixture
async def service(model: ServedModel, tmp_path: Path) -> AsyncIterator[PaperService]:
    async with paper_service(model, tmp_path, PaperWorker()) as running:
        yield running


async def test_the_command_watches_a_server(
    service: PaperService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    service.is_open.set()
    await service.ask("a", [1, 2, 3])
    words_given = ["top", "--interval", "0.1", "--frames", "2", "--address", service.scheduler.address]
    assert await asyncio.to_thread(main, words_given) == 0
    out = capsys.readouterr().out
    assert out.count("octavo top  tiny") == 2
    assert "w0" in out


def test_a_server_that_is_not_there_is_an_error_at_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--address", f"unix:{tmp_path}/nobody"]) == 1
    assert "No server answers" in capsys.readouterr().err
    assert main(["top", "--interval", "0"]) == 2

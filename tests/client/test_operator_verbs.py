"""The operator's verbs on the command line, against a real scheduler with a paper worker."""

import asyncio
import io
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from octavo_client.cli import main
from octavo_scheduler.model import ServedModel, load_model

from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import VOCAB_SIZE, PaperWorker
from tests.doubles.tiny_model import make_tiny_model

Octavo = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    return load_model(make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", vocab=VOCAB_SIZE, layers=1))


@pytest.fixture
async def service(model: ServedModel, tmp_path: Path) -> AsyncIterator[PaperService]:
    worker = PaperWorker(page_size=4, pages=16, host_pages=8, max_slots=2)
    async with paper_service(model, tmp_path, worker) as running:
        yield running


@pytest.fixture
def octavo(service: PaperService, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Octavo:
    """Runs the command line against the service; (exit code, what it printed, what it complained)."""
    monkeypatch.setenv("COLUMNS", "120")

    async def run(*words: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(main, [*words, "--address", service.scheduler.address])
        return code, *capsys.readouterr()

    return run


async def test_requests_and_why_they_wait(service: PaperService, octavo: Octavo) -> None:
    answers = await service.ask_in_one_plan(("chat", [1, 2, 3]), ("[red]\x1b[2J", [4]), ("chat", [5]))
    code, out, _ = await octavo("requests")
    assert code == 0
    assert re.search(r"^ ?chat +0 +\d+\.\d s +3 +running +w0 +0 +0 +1 +0", out, re.MULTILINE)
    assert re.search(r"^ ?chat +2 +\d+\.\d s +1 +waiting +0 +0 +0 +0", out, re.MULTILINE)
    assert "'[red]\\x1b[2J'" in out, "a client's words are shown, not obeyed"
    code, out, _ = await octavo("explain", "chat")
    first, second = out.splitlines()
    assert re.fullmatch(r"[0-9a-f]{32}: runs on w0: 0 of 3 prompt tokens computed", first)
    assert re.fullmatch(r"[0-9a-f]{32}: has waited for \d+\.\d s: all 2 slots of w0 are taken", second)
    assert code == 0
    service.is_open.set()
    await asyncio.gather(*answers)
    assert await octavo("requests") == (0, "no request is alive\n", "")
    assert await octavo("explain", "chat") == (1, "chat: no such request is alive: it has ended, or never came\n", "")


async def test_pages_are_a_map_with_a_legend(service: PaperService, octavo: Octavo) -> None:
    answers = await service.ask_in_one_plan(("a", [1, 2, 3, 4, 5]))
    code, out, _ = await octavo("pages", "--worker", "w0")
    assert code == 0
    device, host = out.split("w0: 8 host pages of 4 tokens\n")
    title, letters, legend = device.splitlines()
    assert title == "w0: 16 device pages of 4 tokens"
    assert sorted(letters) == sorted("." * 14 + "H" * 2)
    assert legend == "  . 14 free  H 2 held"
    assert host == "........\n  . 8 free\n"
    service.is_open.set()
    await asyncio.gather(*answers)
    _, out, _ = await octavo("pages")
    assert "c 3 cached" in out


async def test_pins(service: PaperService, octavo: Octavo, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = await octavo("pin", "system", "You are kind.", "--salt", "acme")
    assert code == 0
    num_tokens = re.fullmatch(r"pinned system: (\d+) tokens, .*\n", out)
    assert num_tokens
    _, out, _ = await octavo("pins")
    assert re.search(rf"^ ?system +acme +{num_tokens[1]} +0", out, re.MULTILINE)
    assert await octavo("unpin", "system") == (0, "", "")
    assert await octavo("pins") == (0, "nothing is pinned\n", "")
    assert await octavo("unpin", "system") == (1, "", "octavo: there is no pin named system\n")


async def test_orders(service: PaperService, octavo: Octavo) -> None:
    service.is_open.set()
    await service.ask("a", [1, 2, 3, 4, 5])
    assert await octavo("flush") == (0, "flushed: 3 cached pages are free\n", "")
    assert await octavo("drain", "w0") == (0, "w0 is draining: 0 sequences are left on it\n", "")
    assert "draining" in (await octavo("status"))[1]
    assert await octavo("resume", "w0") == (0, "", "")
    assert "ready" in (await octavo("status"))[1]
    assert await octavo("drain", "w9") == (1, "", "octavo: no worker named w9 is here\n")


async def test_tokens_of_a_text(service: PaperService, octavo: Octavo, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = service.scheduler.front.model.vocabulary.encode("the page")
    assert await octavo("tokenize", "the page") == (0, " ".join(map(str, ids)) + "\n", "")
    assert await octavo("tokenize", "the page", "--count") == (0, f"{len(ids)}\n", "")
    _, out, _ = await octavo("tokenize", "the page", "--texts")
    assert [line.split(" ", 1)[1] for line in out.splitlines()] == [
        repr(service.scheduler.front.model.vocabulary.decode([token])) for token in ids
    ]
    _, out, _ = await octavo("tokenize", "a\u4f60b", "--texts")
    assert [line.split(" ")[-1] for line in out.splitlines()] == ["'a'", "'\u4f60'", "'b'"]
    monkeypatch.setattr("sys.stdin", io.StringIO("the page"))
    code, out, _ = await octavo("tokenize", "-", "--chat", "--count")
    assert code == 0
    assert int(out) > len(ids)


async def test_requests_are_ended(service: PaperService, octavo: Octavo) -> None:
    tasks = await service.ask_in_one_plan(("a", [1, 2]), ("b", [3]), ("c", [4]))
    code, out, _ = await octavo("abort", "a", "c")
    assert code == 0
    assert re.fullmatch(r"([0-9a-f]{32} is ended\n){2}", out)
    assert await octavo("abort", "a") == (1, "no such request is alive\n", "")
    assert (await octavo("abort"))[0] == 2, "nothing is named"
    assert (await octavo("abort", "--tenant", ""))[1].endswith(" is ended\n")
    service.is_open.set()
    assert await asyncio.gather(*tasks) == [[], [], []]


async def test_a_line_of_status_again_and_again(service: PaperService, octavo: Octavo) -> None:
    code, out, _ = await octavo("watch", "--interval", "0.1", "--lines", "2")
    assert code == 0
    titles, *lines = out.splitlines()
    assert titles.split() == ["up", "alive", "waiting", "running", "tokens/s", "pages", "held", "preempted"]
    for line in lines:
        assert re.fullmatch(r" +\d+s +0 +0 +0 +0\.0 +0/16 +0", line)
    assert len(lines) == 2

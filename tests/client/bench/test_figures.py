"""Figures of recordings that were chosen so that the right ones are known."""

import asyncio
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from octavo_client.bench.figures import WIDTH, Figures, Goal
from octavo_client.cli import main
from octavo_client.demo_summary import Recording
from octavo_scheduler.model import ServedModel, load_model

from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import VOCAB_SIZE, PaperWorker
from tests.doubles.tiny_model import make_tiny_model

GOAL = Goal(first_token=1.0, inter_token=0.25)


def recording(started: float, *arrivals: float, error: str | None = None) -> Recording:
    ended = None if error else "length"
    return Recording(started, [(time, 1) for time in arrivals], 10, ended, error)


MIXED = [
    recording(0.0, 0.5, 0.75, 1.0),
    recording(1.0, 2.5, 2.6),  # its first token comes too late
    recording(2.0, 2.5, 3.0, 3.5),  # the others do
    recording(3.0, 3.5, error="lost"),
    recording(3.0, 4.0),
]


def test_a_request_is_good_if_it_began_in_time_and_went_on_in_time() -> None:
    found = Figures(MIXED, GOAL).as_json()
    assert (found["requests"], found["complete"], found["errors"]) == (5, 4, 1)
    assert (found["seconds"], found["answer_tokens"], found["prompt_tokens"]) == (4.0, 10, 40)
    assert found["tokens_per_second"] == 2.5
    assert found["goodput_per_second"] == 0.5, "two in four seconds"


def test_percentiles_are_of_requests_that_ended_well() -> None:
    found = Figures(MIXED, GOAL).as_json()
    assert found["first_token"] == {"p50": 0.5, "p90": 1.5, "p99": 1.5}
    assert found["inter_token"] == {"p50": 0.25, "p90": 0.5, "p99": 0.5}


def test_a_load_of_which_nothing_came_has_figures_too() -> None:
    figures = Figures([recording(0.0, error="down")], GOAL)
    found = figures.as_json()
    assert (found["complete"], found["tokens_per_second"], found["first_token"]["p99"]) == (0, 0.0, None)
    assert ElementTree.fromstring(figures.svg()).findall("{*}polyline") == []
    assert figures.table().row_count == 3


def test_the_plot_rises_from_left_to_right() -> None:
    plot = ElementTree.fromstring(Figures(MIXED, GOAL).svg())
    curves = plot.findall("{*}polyline")
    assert len(curves) == 2
    for curve in curves:
        points = [tuple(map(float, point.split(","))) for point in curve.attrib["points"].split()]
        assert points == sorted(points, key=lambda point: (point[0], -point[1]))
        assert len({x for x, _ in points}) > 1


def test_no_number_of_the_plot_stands_out_of_it() -> None:
    plot = ElementTree.fromstring(Figures(MIXED, GOAL).svg())
    numbers = [text for text in plot.findall("{*}text") if text.get("text-anchor") == "middle"]
    assert numbers
    assert all(float(number.attrib["x"]) % WIDTH < WIDTH - 30 for number in numbers)


def test_the_sentence_below_the_table_is_one_line() -> None:
    legend = Figures(MIXED, GOAL).legend()
    assert "0.50 good ones/s" in legend
    assert "\n" not in legend


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[PaperService]:
    model: ServedModel = load_model(make_tiny_model(tmp_path / "tiny", vocab=VOCAB_SIZE, layers=1))
    async with paper_service(model, tmp_path, PaperWorker(pages=200)) as running:
        running.is_open.set()
        yield running


async def test_the_command_asks_a_server(
    service: PaperService, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    flags = ["--requests", "12", "--concurrency", "4", "--prompt", "3-9", "--answer", "5"]
    words = ["bench", *flags, "--plot", str(tmp_path / "p.svg"), "--address", service.scheduler.address]
    assert await asyncio.to_thread(main, words) == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[-1])
    assert (found["requests"], found["complete"], found["answer_tokens"]) == (12, 12, 60)
    assert "12 of 12 requests ended well" in " ".join(out.split())
    ElementTree.parse(tmp_path / "p.svg")


async def test_a_load_that_cannot_be_served_ends_with_1(
    service: PaperService, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--requests", "3", "--answer", "100000", "--address", service.scheduler.address]
    assert await asyncio.to_thread(main, ["bench", *flags]) == 1
    assert "octavo: 3 × max_tokens is 100000" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--requests", "0"], ["--rate", "0"], ["--concurrency", "0"], ["--prompt", "x"]])
def test_flags_out_of_range_are_wrong_usage(flags: list[str], tmp_path: Path) -> None:
    assert main(["bench", *flags, "--address", f"unix:{tmp_path}/nobody"]) == 2

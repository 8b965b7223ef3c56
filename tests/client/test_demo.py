import argparse
import io
import json
import math
import re
import sys
from pathlib import Path

import pytest
from octavo.v1 import admin_pb2
from octavo_client import default_model, demo, demo_summary
from octavo_client.cli import main
from octavo_client.demo_summary import Recording, inter_token_gaps, percentile, summarise
from octavo_client.demo_view import LINE_WIDTH, LineView, PanelView
from octavo_client.errors import ConfigError
from octavo_client.local import Programs
from rich.cells import cell_len
from rich.console import Console

CHINESE = "分页注意力把键值缓存切成固定大小的页，" * 12


def status(*workers: admin_pb2.WorkerStatus) -> admin_pb2.GetStatusResponse:
    return admin_pb2.GetStatusResponse(workers=workers)


def worker(total: int, peak: int, utilisation: float) -> admin_pb2.WorkerStatus:
    return admin_pb2.WorkerStatus(
        device=admin_pb2.PageCounts(total=total, peak_held=peak), slot_utilisation=utilisation
    )


def test_the_summary_adds_up() -> None:
    first = Recording(10.0, [(11.0, 1), (11.5, 1), (12.5, 2)], prompt_tokens=5, finish_reason="stop")
    second = Recording(10.0, [(13.0, 1), (14.0, 1)], prompt_tokens=7, finish_reason="length")
    broken = Recording(10.0, error="lost")
    summary = summarise([first, second, broken], status(worker(100, 30, 0.75), worker(50, 10, 0.5)))
    assert summary == demo_summary.Summary(
        streams=3,
        complete=2,
        prompt_tokens=12,
        generated_tokens=6,
        tokens_per_second=6 / 4,
        first_token_median_seconds=2.0,
        first_token_max_seconds=3.0,
        inter_token_median_seconds=0.5,
        inter_token_p99_seconds=1.0,
        peak_pages=40,
        total_pages=150,
        slot_utilisation=0.6875,
    )


def test_a_run_without_tokens_has_no_figures_and_still_is_json() -> None:
    summary = summarise([Recording(10.0, error="lost")], status())
    assert summary.complete == 0
    assert math.isnan(summary.tokens_per_second)
    assert json.loads(json.dumps(summary.figures(), allow_nan=False))["first_token_max_seconds"] is None


def test_tokens_that_arrive_together_share_their_gap() -> None:
    assert inter_token_gaps([(1.0, 3), (2.0, 4), (2.5, 1)]) == [0.25, 0.25, 0.25, 0.25, 0.5]
    assert inter_token_gaps([(1.0, 3)]) == []


@pytest.mark.parametrize(("percent", "expected"), [(50, 50.0), (99, 99.0), (100, 100.0), (1, 1.0)])
def test_a_percentile_is_a_value_that_was_measured(percent: int, expected: float) -> None:
    assert percentile([float(value) for value in range(1, 101)], percent) == expected
    assert percentile([7.0], percent) == 7.0


@pytest.mark.parametrize(("width", "height"), [(100, 30), (60, 24), (241, 50), (97, 12)])
def test_panels_with_chinese_fill_the_terminal_exactly(width: int, height: int) -> None:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    view = PanelView([CHINESE, "b", "c", "d", "e"], console)
    view.append(0, CHINESE)
    view.finish(0, "ended")
    console.print(view.render())
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().rstrip("\n").split("\n")
    assert len({cell_len(line) for line in lines}) == 1
    assert cell_len(lines[0]) <= width
    assert "固" in console.file.getvalue()


def test_a_full_panel_shows_the_end_of_its_text() -> None:
    console = Console(file=io.StringIO(), width=60, height=10, force_terminal=True, color_system=None)
    view = PanelView(["a"], console)
    view.append(0, "\n".join(f"line {number}" for number in range(100)))
    console.print(view.render())
    assert isinstance(console.file, io.StringIO)
    assert "line 99" in console.file.getvalue()
    assert "line 0 " not in console.file.getvalue()


def test_lines_carry_the_number_of_their_prompt_and_lose_nothing() -> None:
    out = io.StringIO()
    view = LineView(["first", "second"], out)
    with view.running():
        for word in ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", ""] * 5:
            view.append(0, f"{word} ")
        view.append(1, CHINESE)
        assert re.search(r"^\[2\] 分页", out.getvalue(), re.MULTILINE)  # written before the answer ended
        view.append(1, "\n\nend")
        view.finish(0, "50 tokens")
        view.finish(1, "9 tokens")
    lines = out.getvalue().splitlines()
    assert all(re.match(r"\[[12]\] \S", line) and cell_len(line) <= LINE_WIDTH + len("[1] ") for line in lines)
    chinese = [line[4:] for line in lines if line.startswith("[2]")]
    assert "".join(chinese) == f"» second{CHINESE}end« 9 tokens"
    assert lines[-1] == "[2] « 9 tokens"


def test_a_word_longer_than_a_line_is_cut_and_comes_to_an_end() -> None:
    out = io.StringIO()
    view = LineView(["a"], out)
    view.append(0, " " + "x" * 500)
    view.finish(0, "done")
    assert out.getvalue().count("x") == 500


def test_the_questions_are_english_chinese_and_a_document_that_holds_its_answer() -> None:
    asked = demo.questions()
    assert "你好，请介绍下PagedAttention的原理" in [question.text for question in asked]
    document = asked[-1].text
    assert 1_500 < len(document.split()) < 1_900
    assert "small blue heron" in document[-300:]
    assert "Ilse Maren" in asked[-1].title


def test_the_default_model_is_found_without_importing_its_package() -> None:
    path = default_model.find_default_model()
    assert path.suffix == ".gguf"
    assert default_model.MODEL_PACKAGE not in sys.modules


def test_a_missing_model_package_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(default_model, "MODEL_PACKAGE", "no_such_model")
    with pytest.raises(ConfigError, match="no-such-model, which is not installed"):
        default_model.find_default_model()
    assert main(["demo"]) == 2
    assert "--model PATH" in capsys.readouterr().err


def test_the_default_model_is_said_to_have_run_on_the_kernels_that_it_ran_on() -> None:
    def about(*kernels: str) -> str:
        workers = [admin_pb2.WorkerStatus(kernels=name) for name in kernels]
        return demo.about_default_model(admin_pb2.GetStatusResponse(workers=workers))

    assert "It ran on the C kernels for CPUs. " in about("cpu", "cpu")
    assert "It ran on the plain torch reference" in about("reference")
    assert "It ran on triton. " in about("triton")


def test_a_demo_streams_sums_up_and_ends_with_json(programs: Programs, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.demo(argparse.Namespace(model="", max_tokens=8), programs) == 0
    out = capsys.readouterr().out
    assert "[4] 你好，请介绍下PAGEDATTENTION的原理" in out
    assert "40 of 100" in out
    assert "its Chinese is poor" in out
    assert "make demo MODEL=" in out
    figures = json.loads(out.splitlines()[-1])
    assert figures["streams"] == figures["complete"] == 5
    assert figures["slot_utilisation"] == 0.97
    assert figures["generated_tokens"] > 1_500


def test_a_stream_that_fails_makes_the_demo_fail(
    programs: Programs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = [demo.Question("good", "good day"), demo.Question("bad", "fail INTERNAL it broke")]
    monkeypatch.setattr(demo, "questions", lambda: asked)
    assert demo.demo(argparse.Namespace(model=str(tmp_path), max_tokens=8), programs) == 1
    out = capsys.readouterr().out
    assert "[2] « it broke" in out
    assert json.loads(out.splitlines()[-1])["complete"] == 1
    assert "Chinese" not in out

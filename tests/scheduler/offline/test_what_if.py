"""A what-if against a truth that is known: logs of workers whose steps take exactly what a model says."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import Drain, Event, Lost, Rates
from octavo_scheduler.event_log import EventLog
from octavo_scheduler.offline.change import Change
from octavo_scheduler.offline.comparison import Comparison, compare
from octavo_scheduler.offline.replay import main
from octavo_scheduler.offline.traffic import Traffic, read_traffic
from octavo_scheduler.offline.what_if import Simulation
from octavo_scheduler.record import Recorder

from tests.scheduler.offline.played import NOBODY, NOTHING, TRUTH, busy_minute, play, pool

TIMES = ("ttft_p50", "ttft_p99", "inter_token_p50", "inter_token_p99", "makespan")


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    play(tmp_path / "log", busy_minute(), [(0.0, pool())], Settings())
    return EventLog(tmp_path / "log")


def test_what_is_read_from_a_log_is_what_was_played(tmp_path: Path) -> None:
    figures = play(tmp_path / "log", busy_minute(), [(0.0, pool())], Settings())
    assert read_traffic(EventLog(tmp_path / "log")).figures == figures
    assert figures.preemptions > 0
    assert figures.unfinished == 0


def test_where_the_model_is_right_the_prediction_is_right(log: EventLog) -> None:
    comparison = compare(log, NOTHING)
    assert all(abs(error or 0.0) < 0.001 for error in comparison.errors.values())
    assert comparison.as_recorded == comparison.what_if


def test_the_prediction_for_other_settings_is_what_these_settings_do(tmp_path: Path, log: EventLog) -> None:
    changed = Settings(max_chunk=8, preempt="swap", prefix_cache=False)
    truth = play(tmp_path / "other", busy_minute(), [(0.0, pool(pages=80))], changed)
    predicted = compare(log, Change.parse("max_chunk=8,preempt=swap,prefix_cache=off,pages=80")).what_if
    for name in TIMES:
        assert getattr(predicted, name) == pytest.approx(getattr(truth, name), rel=0.01)
    assert predicted.preemptions == truth.preemptions
    assert predicted.slot_utilisation == pytest.approx(truth.slot_utilisation)


def test_more_pages_end_preemption_and_larger_ones_fill_less(log: EventLog) -> None:
    comparison = compare(log, Change.parse("pages=2000"))
    recorded, roomy = comparison.recorded, comparison.what_if
    assert recorded.preemptions > 0
    assert roomy.preemptions == 0
    assert roomy.makespan < recorded.makespan
    coarse = compare(log, Change.parse("page_size=16")).what_if
    assert coarse.slot_utilisation < recorded.slot_utilisation
    assert coarse.generated_tokens == recorded.generated_tokens


def test_clients_leave_and_workers_come_and_go_as_they_did(tmp_path: Path) -> None:
    events: list[tuple[float, Event]] = [
        (0.0, pool("a")),
        (0.5, pool("b", page_size=8)),
        (0.7, Rates("b", 1e6, 0.0)),
        (1.0, Lost("a")),
        (1.5, pool("a")),
        (2.0, Drain("b")),
    ]
    requests = busy_minute()
    settings = Settings(max_queued_requests=5)
    first = play(tmp_path / "first", requests, events, settings)
    assert first.refused > 0
    traffic = read_traffic(EventLog(tmp_path / "first"))
    assert [(at, type(event)) for at, event in traffic.events] == [(at, type(event)) for at, event in events]
    again = Simulation(traffic, settings, NOTHING, TRUTH).run()
    assert asdict(again) == pytest.approx(asdict(first), rel=1e-6)


def test_what_had_no_end_when_the_log_ends_leaves_then(tmp_path: Path) -> None:
    whole = play(tmp_path / "whole", busy_minute(), [(0.0, pool())], Settings())
    recorder = Recorder(Settings(), tmp_path / "half")
    try:
        recorder.apply(pool(), 0.0)
        for asked in busy_minute(5):
            recorder.submit(asked.spec, asked.at)
        recorder.plan("w", 3.0)
        recorder.apply(Rates("w", 1e6, 0.0), 4.0)
    finally:
        recorder.close()
    traffic = read_traffic(EventLog(tmp_path / "half"))
    assert traffic.figures.unfinished == 5
    figures = Simulation(traffic, Settings(), NOTHING, TRUTH).run()
    assert figures.unfinished == 0
    assert figures.makespan <= 4.0
    assert figures.generated_tokens < whole.generated_tokens


def test_a_change_is_read_from_words() -> None:
    change = Change.parse("page_size=32,pages=200,preempt=swap,max_step_tokens=256,max_chunk=none,prefix_cache=off")
    settings = change.of_settings(Settings(max_chunk=3))
    assert (settings.preempt, settings.max_step_tokens, settings.max_chunk) == ("swap", 256, None)
    assert settings.prefix_cache is False
    joined = change.of_worker(pool())
    assert (joined.page_size, joined.device_pages, joined.max_step_tokens) == (32, 200, 256)
    assert joined.page_bytes == 8 * pool().page_bytes


def test_other_pages_have_the_same_memory_unless_their_number_is_given() -> None:
    joined = Change.parse("page_size=16").of_worker(pool(pages=60))
    assert (joined.device_pages, joined.host_pages) == (15, 7)
    assert Change.parse("").of_worker(pool()) == pool()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("colour=red", "colour is nothing that can be changed; these can: "),
        ("page_size", "page_size must be of type int"),
        ("page_size=four", "page_size must be of type int, not four"),
        ("pages=0", "pages must be at least 1, not 0"),
        ("host_pages=-1", "host_pages must be at least 0, not -1"),
        ("pages=1000000000000", "pages must be at most 2097152, not 1000000000000"),
        ("max_slots=1000000000000,max_num_seqs=1000000000000", "max_slots must be at most 65536"),
        ("copy_bytes_per_second=0", "copy_bytes_per_second must be above 0 and finite, not 0.0"),
        ("prefill_tokens_per_second=nan", "prefill_tokens_per_second must be above 0 and finite, not nan"),
        ("preempt=never", "preempt must be one of auto, swap, drop, not never"),
        ("prefix_cache=perhaps", "prefix_cache must be on or off, not perhaps"),
        ("max_chunk=0", "max_chunk must be at least 1, not 0"),
    ],
)
def test_a_change_that_cannot_be_is_one_sentence(
    words: str, sentence: str, log: EventLog, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(log.path), "--what-if", words]) == 2
    assert capsys.readouterr().err.startswith(f"octavo replay: {sentence}")


def test_the_table_shows_recording_model_and_what_if_side_by_side(
    log: EventLog, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(log.path), "--what-if", "pages=2000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[-3:] == ["model, as recorded", "its error", "model, what if"]
    preemptions = next(line.split() for line in lines if line.startswith("preemptions"))
    assert preemptions[-1] == "0"
    assert preemptions[-2] == "+0.0%"
    assert main([str(log.path), "--what-if", "pages=2000", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["recorded"]["preemptions"] > 0 == figures["what_if"]["preemptions"]
    assert set(figures) == {"recorded", "model", "model_error", "what_if"}


def test_figures_that_nobody_measured_are_shown_as_a_dash() -> None:
    figures = Simulation(Traffic([], [], [], NOBODY, 0.0), Settings(), NOTHING, TRUTH).run()
    assert Comparison(figures, figures, figures).table().count(" -") > 10

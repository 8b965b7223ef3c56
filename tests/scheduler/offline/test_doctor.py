"""Advice from lengths that were chosen so that the right answer is known."""

import json
from pathlib import Path

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import Joined
from octavo_scheduler.core.request import RequestSpec
from octavo_scheduler.event_log import EventLog
from octavo_scheduler.offline.doctor import advise, main
from octavo_scheduler.offline.traffic import Asked, Traffic, read_traffic

from tests.scheduler.offline.played import busy_minute, play, pool


def traffic(tmp_path: Path, prompts: list[tuple[int, ...]], max_tokens: int, joined: Joined) -> Traffic:
    requests = [
        Asked(at=float(number), spec=RequestSpec(id=str(number), prompt=prompt, max_tokens=max_tokens))
        for number, prompt in enumerate(prompts)
    ]
    play(tmp_path / "log", requests, [(0.0, joined)], Settings())
    return read_traffic(EventLog(tmp_path / "log"))


def distinct(count: int, length: int) -> list[tuple[int, ...]]:
    return [(number, *range(1, length)) for number in range(count)]


def test_short_requests_want_small_pages(tmp_path: Path) -> None:
    advice = advise(traffic(tmp_path, distinct(10, 6), 4, pool()))
    assert advice.page_size == 4
    assert [report.page_size for report in advice.sizes] == [4, 8, 16, 32, 64, 128]
    by_size = {report.page_size: report for report in advice.sizes}
    assert by_size[8].filled == pytest.approx((6 + 7 + 8 + 9) / (8 + 8 + 8 + 16))
    assert by_size[4].table_entries == 3
    assert by_size[128].page_id_bytes == 1.0


def test_long_requests_want_large_pages(tmp_path: Path) -> None:
    advice = advise(traffic(tmp_path, distinct(3, 300), 90, pool(pages=400)))
    assert advice.page_size == 32
    by_size = {report.page_size: report.filled for report in advice.sizes}
    assert by_size[64] < 0.95 <= by_size[32] < by_size[4]
    assert advice.sentences[0].startswith("Page size 32 suits these 3 answered requests: ")


def test_prefixes_that_large_pages_cannot_find_count_against_them(tmp_path: Path) -> None:
    system = tuple(range(100, 120))
    prompts = [(*system, *(number * 3 + place for place in range(300))) for number in range(1, 5)]
    advice = advise(traffic(tmp_path, prompts, 30, pool(pages=400)))
    by_size = {report.page_size: report.cached for report in advice.sizes}
    assert by_size[4] == pytest.approx(3 * 20 / (4 * 320))
    assert by_size[8] == by_size[16] == pytest.approx(3 * 16 / (4 * 320))
    assert by_size[32] == by_size[128] == 0
    assert advice.page_size == 16
    assert any(sentence.startswith("Prefixes: ") for sentence in advice.sentences)


def test_a_pool_too_small_for_the_peak_is_told_by_how_many_pages(tmp_path: Path) -> None:
    play(tmp_path / "log", busy_minute(), [(0.0, pool())], Settings())
    advice = advise(read_traffic(EventLog(tmp_path / "log")))
    assert advice.peak_pages > advice.pool_pages
    assert advice.preemptions > 0
    assert f"{advice.peak_pages - advice.pool_pages} more pages of {advice.page_size} " in advice.sentences[-1]


def test_a_pool_that_is_never_full_is_told_too(tmp_path: Path) -> None:
    advice = advise(traffic(tmp_path, distinct(4, 20), 10, pool(pages=600)))
    assert advice.peak_tokens == 30, "one at a time: the next comes when the one before has ended"
    assert advice.sentences[-1].startswith(f"{advice.pool_pages - advice.peak_pages} pages of {advice.page_size} were ")


def test_the_doctor_speaks_sentences_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traffic(tmp_path, distinct(10, 6), 4, pool())
    assert main([str(tmp_path / "log")]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Page size 4 suits these 10 answered requests: ")
    assert main([str(tmp_path / "log"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sentences"] == text.splitlines()


def test_without_an_answer_there_is_no_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traffic(tmp_path, [], 1, pool())
    assert main([str(tmp_path / "log")]) == 2
    assert capsys.readouterr().err == "octavo doctor: no request was answered, so there are no lengths to advise from\n"

"""Readers of a transcript: each at its own pace, none loses or repeats anything, none can make others wait."""

import asyncio

import pytest
from octavo_scheduler import transcript as module
from octavo_scheduler.core.events import Committed, Finished, Output, Started
from octavo_scheduler.core.request import FinishReason
from octavo_scheduler.transcript import Reader, Transcript

STARTED = Started("run", 0.5, 0)


def committed(branch: int, position: int, token: int) -> Committed:
    return Committed("run", branch, position, token)


def finished(branch: int, reason: FinishReason = FinishReason.LENGTH, request: str = "run") -> Finished:
    return Finished(request, branch, reason, 0, 0)


def said(n: int, *outputs: Output) -> Transcript:
    transcript = Transcript([()] * n, seed=1)
    transcript.run = "run"
    for output in outputs:
        transcript.put(output)
    return transcript


def tokens_of(outputs: list[Output]) -> list[int]:
    return [output.token for output in outputs if isinstance(output, Committed)]


async def test_a_reader_that_comes_late_reads_all_of_it_in_parts_and_each_end_after_its_tokens() -> None:
    transcript = said(2, STARTED, *(committed(branch, place, place) for place in range(7) for branch in range(2)))
    transcript.put(finished(1))
    reader = Reader(transcript, "mine", most_tokens=3)
    parts = []
    while not reader.is_up_to_date:
        parts.append(await reader.take())
    assert [len(tokens_of(part)) for part in parts] == [3, 3, 3, 3, 2]
    outputs = [output for part in parts for output in part]
    assert outputs[0] is STARTED
    assert [o.token for o in outputs if isinstance(o, Committed) and o.branch == 1] == list(range(7))
    assert outputs[-1] == finished(1)


async def test_a_reader_waits_for_what_is_still_to_come() -> None:
    transcript = said(1, STARTED)
    reader = Reader(transcript, "mine", 10)
    transcript.readers.add(reader)
    assert await reader.take() == [STARTED]
    taking = asyncio.create_task(reader.take())
    await asyncio.sleep(0)
    assert not taking.done()
    transcript.put(committed(0, 0, 5))
    assert tokens_of(await taking) == [5]


async def test_a_reader_that_leaves_too_much_behind_is_told_once_it_is_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_UNREAD", 4)
    transcript, overflows = said(1), list[int]()
    reader = Reader(transcript, "mine", 10, lambda: overflows.append(transcript.num_tokens))
    transcript.readers.add(reader)
    for place in range(4):
        transcript.put(committed(0, place, 1))
    await reader.take()
    for place in range(4, 8):
        transcript.put(committed(0, place, 1))
    assert overflows == []
    transcript.put(committed(0, 8, 1))
    assert overflows == [9]


async def test_a_failed_run_is_over_and_somebody_elses_deadline_is_not_a_readers_own() -> None:
    late = finished(0, FinishReason.DEADLINE)
    transcript = said(1, STARTED, committed(0, 0, 5), late)
    assert transcript.run == ""
    assert not transcript.ends
    owner, other = (Reader(transcript, name, 10) for name in ("run", "other"))
    assert (await owner.take())[-1] is late
    assert tokens_of(await other.take()) == [5]
    assert other.is_up_to_date
    transcript.put(finished(0, FinishReason.FAILED))
    other.wake()
    assert (await other.take())[-1] == finished(0, FinishReason.FAILED)


@pytest.mark.parametrize("reason", [FinishReason.FAILED, FinishReason.NO_NUMBERS])
def test_a_branch_that_fails_is_no_end_of_an_answer_and_ends_the_run(reason: FinishReason) -> None:
    transcript = said(2, STARTED, committed(0, 0, 5), finished(1, reason))
    assert (transcript.run, transcript.ends) == ("", {})
    assert transcript.failure == finished(1, reason)

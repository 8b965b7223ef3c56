"""Several answers to one prompt: branches fork off the trunk, share its pages, and copy a page before they write it."""

import pytest
from octavo.v1 import step_pb2
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import Nack
from octavo_scheduler.core.request import FinishReason

from tests.doubles.paper_worker import PaperWorker, answer, column
from tests.doubles.table_top import TableTop


def check_answers(table: TableTop, name: str, prompt: list[int], n: int, max_tokens: int, seed: int = 0) -> None:
    for branch in range(n):
        key = table.key(name, branch)
        assert table.tokens[key] == answer(prompt, max_tokens, seed, branch)
        assert table.finished[key].reason is FinishReason.LENGTH
    table.assert_empty()


@pytest.mark.parametrize("length", range(1, 10))
@pytest.mark.parametrize("n", [2, 3, 5])
def test_every_branch_gets_its_own_answer(n: int, length: int) -> None:
    table = TableTop(w=PaperWorker())
    prompt = list(range(1, length + 1))
    table.submit("r", prompt, 9, n=n, seed=5)
    table.run()
    check_answers(table, "r", prompt, n, 9, seed=5)
    assert list(table.started) == ["r"]


def test_the_first_tokens_of_all_branches_come_from_one_row() -> None:
    table = TableTop(w=PaperWorker())
    table.submit("r", [1, 2, 3, 4, 5], 6, n=4)
    table.plan("w")
    (plan,) = table.plans
    assert column(plan.rows.slot, "<u2") == [0]
    assert column(plan.rows.num_samples, "<u2") == [4]
    assert column(plan.rows.sample_slot, "<u2") == [0, *column(plan.forks.target, "<u2")]
    assert column(plan.forks.branch, "<u2") == [1, 2, 3]
    table.run()
    check_answers(table, "r", [1, 2, 3, 4, 5], 4, 6)


def test_branches_share_the_full_pages_of_the_prompt_and_copy_the_last_one_but_for_one_of_them() -> None:
    table = TableTop(w=PaperWorker(page_size=4, pages=32))
    table.submit("r", list(range(10)), 4, n=4)
    table.plan("w")
    assert table.core.workers["w"].device.num_held == 3
    table.deliver("w")
    table.plan("w")
    assert len(column(table.plans[1].copy.source, "<i4")) == 3
    assert sorted(column(table.plans[1].growth.num_dropped, "<i4")) == [1, 1, 1]
    assert table.core.workers["w"].device.num_held == 2 + 4
    table.run()
    check_answers(table, "r", list(range(10)), 4, 4)


def test_a_prompt_that_fills_its_pages_needs_no_copy() -> None:
    table = TableTop(w=PaperWorker(page_size=4, pages=32))
    table.submit("r", list(range(8)), 4, n=4)
    table.run()
    assert not any(column(plan.copy.source, "<i4") for plan in table.plans)
    check_answers(table, "r", list(range(8)), 4, 4)


def test_what_forks_hold_counts_once() -> None:
    table = TableTop(w=PaperWorker(page_size=4, pages=32))
    table.submit("r", [1], 4, n=8)
    table.plan("w")
    assert table.core.workers["w"].filled_slots == 1
    table.run()
    check_answers(table, "r", [1], 8, 4)


def test_branches_without_a_free_slot_wait_and_are_answered_later() -> None:
    table = TableTop(w=PaperWorker(max_slots=2))
    table.submit("r", [1, 2, 3, 4, 5], 5, n=5)
    table.run()
    check_answers(table, "r", [1, 2, 3, 4, 5], 5, 5)


def test_a_stop_in_one_branch_leaves_the_others_alone() -> None:
    table = TableTop(w=PaperWorker())
    table.submit("r", [1, 2, 3], 6, n=3)
    table.plan("w")
    table.deliver("w")
    table.abort("r", at=1, branch=1)
    assert table.finished["r/1"].num_tokens == 1
    table.run()
    assert table.tokens["r"] == answer([1, 2, 3], 6)
    assert table.tokens["r/2"] == answer([1, 2, 3], 6, branch=2)
    assert {key: end.reason for key, end in table.finished.items()} == {
        "r": FinishReason.LENGTH,
        "r/1": FinishReason.STOP,
        "r/2": FinishReason.LENGTH,
    }
    table.assert_empty()


@pytest.mark.parametrize("turns", range(4))
def test_a_cancelled_request_ends_every_branch_once_also_before_they_fork(turns: int) -> None:
    table = TableTop(w=PaperWorker())
    table.submit("r", [1, 2, 3], 6, n=3)
    for _ in range(turns):
        table.turn()
    table.abort("r")
    assert {key: end.reason for key, end in table.finished.items()} == dict.fromkeys(
        ["r", "r/1", "r/2"], FinishReason.CANCELLED
    )
    table.run()
    table.assert_empty()


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("mode", ["swap", "drop"])
@pytest.mark.parametrize("pages", range(6, 13))
def test_PS02_a_pool_too_small_for_all_branches_ends_each_exactly_once(pages: int, mode: str, cache: bool) -> None:
    settings = Settings(preempt=mode, prefix_cache=cache)  # type: ignore[arg-type]
    table = TableTop(settings, w=PaperWorker(page_size=4, pages=pages, host_pages=16))
    table.submit("r", [1, 2, 3, 4, 5, 6], 16, n=4, seed=3)
    table.run()
    check_answers(table, "r", [1, 2, 3, 4, 5, 6], 4, 16, seed=3)
    assert table.finished["r"].preemptions > 0


def test_a_lost_worker_loses_no_branch() -> None:
    table = TableTop(v=PaperWorker(), w=PaperWorker())
    table.submit("r", [1, 2, 3, 4, 5], 9, n=4)
    for _ in range(3):
        table.turn()
    (name,) = [name for name, worker in table.core.workers.items() if worker.running]
    table.kill(name)
    table.run()
    check_answers(table, "r", [1, 2, 3, 4, 5], 4, 9)


def test_cached_prompt_tokens_are_reported_whichever_branch_answers_first() -> None:
    table = TableTop(v=PaperWorker())
    prompt = list(range(9))
    table.submit("first", prompt, 1)
    table.run()
    table.submit("r", prompt, 9, n=3)
    table.plan("v")
    table.apply(Nack("v", table.results["v"].pop().step))
    table.abort("r", at=0, branch=0)
    table.run()
    assert table.started["r"].cached == 8
    assert table.tokens["r/1"] == answer(prompt, 9, branch=1)


def test_a_worker_of_an_older_protocol_gets_branches_without_forks() -> None:
    class Older(PaperWorker):
        def hello(self, worker_id: str = "paper", digest: bytes = b"paper") -> step_pb2.Hello:
            hello = super().hello(worker_id, digest)
            hello.protocol_minor = 0
            return hello

    table = TableTop(w=Older())
    table.submit("r", [1, 2, 3, 4, 5], 9, n=3)
    table.run()
    check_answers(table, "r", [1, 2, 3, 4, 5], 3, 9)
    assert not any(plan.forks.source or plan.copy.source for plan in table.plans)

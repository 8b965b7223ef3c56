"""Who is let in when not all fit: overtaking, backing off, shares of the pool."""

from math import ceil

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.core.settings import PolicyName, PreemptMode

from tests.doubles.paper_worker import PaperWorker, answer
from tests.doubles.table_top import TableTop
from tests.doubles.watched_table import WatchedTable


def test_FL01_with_a_tiny_budget_a_long_prompt_holds_up_nobody_for_longer_than_it_takes() -> None:
    """A parked request that is ready, a long prompt that eats every step's budget, and a newcomer."""
    settings = Settings(max_step_tokens=4, preempt="swap")
    table = TableTop(settings, w=PaperWorker(pages=24, host_pages=24, max_slots=3, max_step_tokens=4))
    table.submit("long", [1] * 60, 4)
    table.submit("parked", [2] * 4, 30)
    turns = 0
    table.submit("newcomer", [3], 2)
    while table.turn():
        turns += 1
    assert set(table.finished) == {"long", "parked", "newcomer"}
    tokens = 60 + 4 + 4 + 30 + 1 + 2
    assert turns <= 2 * tokens


@pytest.mark.parametrize("most", [0, 1, 3, 5])
def test_FL02_what_fits_passes_a_head_that_does_not_and_then_no_more(most: int) -> None:
    table = WatchedTable(Settings(max_overtakes=most), pages=8, slots=8)
    table.submit("holds", [9] * 8, 20, tenant="small")
    table.turn()
    table.submit("head", [1] * 24, 4, tenant="small")
    table.flood("small", 10, prompt=2, answer=2)
    table.run()
    assert table.admitted.index("head") - 1 == most
    assert len(table.finished) == 12


def test_FL04_what_was_preempted_comes_back_before_anything_new_of_its_class() -> None:
    table = WatchedTable(Settings(preempt="drop", max_overtakes=32), pages=16, slots=4)
    table.submit("first", [1] * 16, 40)
    table.turn()
    table.submit("large", [2] * 44, 4)
    table.submit("small", [3] * 8, 30)
    table.flood("new", 20, prompt=40, answer=8)
    while table.core.requests["small"].preemptions == 0:
        assert table.turn()
    before = len(table.admitted)
    table.run()
    assert table.admitted[before] == "small", "and not the large one, which came earlier and never started"
    assert table.tokens["small"] == answer([3] * 8, 30)


def overload(settings: Settings) -> WatchedTable:
    """The pool holds a quarter of what the slots could take."""
    table = WatchedTable(settings, pages=256, slots=32)
    table.flood("a", 60, prompt=40, answer=100)
    return table


def recomputed(settings: Settings) -> int:
    table = overload(settings)
    table.run()
    return table.num_computed - table.num_needed


def test_FL04_backing_off_saves_most_of_what_thrash_would_compute_again() -> None:
    bare = recomputed(Settings(preempt="drop", prefix_cache=False, readmit_growth=0, max_reserve_share=0.0))
    backed_off = recomputed(Settings(preempt="drop", prefix_cache=False))
    assert backed_off <= 0.7 * bare
    assert backed_off <= 2 * 60 * 40, "not more than twice the tokens of all prompts"


@pytest.mark.parametrize("mode", ["drop", "swap"])
def test_FL05_between_two_preemptions_of_a_sequence_tokens_are_committed(mode: PreemptMode) -> None:
    table = overload(Settings(preempt=mode))
    seen: dict[str, int] = {}
    committed_at: dict[str, int] = {}
    num_preemptions = 0
    while table.turn():
        committed = sum(len(tokens) for tokens in table.tokens.values())
        for name, request in table.core.requests.items():
            if request.preemptions > seen.get(name, 0):
                num_preemptions += 1
                assert request.preemptions == seen.get(name, 0) + 1, "once a step at most"
                assert committed > committed_at.get(name, -1)
                seen[name], committed_at[name] = request.preemptions, committed
    assert num_preemptions > 10
    assert max(seen.values()) <= 8
    table.assert_empty()


@pytest.mark.parametrize("growth", [0, 64, 10_000])
@pytest.mark.parametrize("reserve", [0.0, 0.9])
def test_no_reserve_keeps_a_worker_idle_while_anybody_waits(growth: int, reserve: float) -> None:
    table = overload(Settings(preempt="drop", readmit_growth=growth, max_reserve_share=reserve))
    worker = table.core.workers["w"]
    while table.turn():
        table.plan("w")
        assert worker.running or not table.core.waiting
    assert len(table.finished) == 60
    table.assert_empty()


@pytest.mark.parametrize("answer_tokens", range(26, 30))
def test_a_sequence_that_needs_the_whole_pool_comes_back_when_it_would_run_alone(answer_tokens: int) -> None:
    """The other one ends just after it was preempted, when the reserve is large and no step will make it smaller."""
    table = WatchedTable(Settings(preempt="drop", readmit_growth=10_000, max_reserve_share=0.9), pages=16)
    table.flood("a", 1, prompt=8, answer=answer_tokens)
    table.flood("b", 1, prompt=8, answer=56)
    table.run()
    assert table.finished["b1"].preemptions == 1
    assert len(table.tokens["b1"]) == 56


def test_a_reserve_is_gone_some_time_after_the_last_preemption() -> None:
    table = overload(Settings(preempt="drop"))
    worker = table.core.workers["w"]
    most = 0
    while len(table.finished) < 55:
        table.turn()
        most = max(most, worker.reserve)
    assert 0 < most <= worker.device.total // 4
    table.run()
    table.submit("calm", [1, 2, 3], 100)
    table.run()
    assert worker.reserve == 0


def test_a_tenant_never_holds_more_than_its_share_and_alone_everything_without_one() -> None:
    peaks = {}
    for share in (0.25, 1.0):
        table = WatchedTable(Settings(max_tenant_share=share, max_wait_seconds=0.0), pages=64, slots=16)
        table.flood("a", 40, prompt=9, answer=12)
        peaks[share] = 0
        while table.turn():
            held = sum(len(s.table) for s in table.core.workers["w"].running)
            peaks[share] = max(peaks[share], held)
        assert len(table.finished) == 40
        table.assert_empty()
    assert 0 < peaks[0.25] <= 16
    assert peaks[1.0] > 48


def test_what_a_share_cannot_hold_is_refused_with_the_numbers_and_an_open_answer_ends_there() -> None:
    table = WatchedTable(Settings(max_tenant_share=0.25), pages=32)
    table.submit("large", [1] * 30, 10)
    assert "the largest pool has 32, of which one tenant may have 8," in table.refused["large"].message
    table.submit("open", [1] * 10, None)
    table.run()
    assert len(table.tokens["open"]) == 8 * 4 + 1 - 10


@pytest.mark.parametrize("policy", ["fair", "fcfs"])
def test_a_capped_tenant_does_not_hold_up_the_others_however_much_it_has_waiting(policy: PolicyName) -> None:
    settings = Settings(max_tenant_share=0.25, max_overtakes=0, policy=policy, tenant_weights={"a": 1000.0})
    table = WatchedTable(settings, pages=64, slots=16)
    table.flood("a", 100, prompt=9, answer=12)
    table.flood("b", 2, prompt=9, answer=12)
    table.turn()
    running = [s.request.spec.tenant for s in table.core.workers["w"].running]
    assert running.count("b") == 2
    assert running.count("a") == 16 // ceil(20 / 4)


def test_branches_that_have_not_forked_off_yet_count_in_their_tenants_share() -> None:
    table = WatchedTable(Settings(max_tenant_share=0.5), pages=64, slots=16)
    table.submit("three", [1] * 20, 16, n=3)
    table.submit("one", [2] * 20, 16)
    table.turn()
    assert [s.request.spec.id for s in table.core.workers["w"].running] == ["three"] * 3
    table.submit("alone", [1] * 20, 16, n=8)
    table.run()
    assert len(table.finished) == 3 + 1 + 8

"""What is said about a request is what the planner does with it."""

from collections import Counter

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import Drain, Nack
from octavo_scheduler.core.explain import explain
from octavo_scheduler.core.outlook import Outlook
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.states import SequenceState
from octavo_scheduler.core.worker import Worker

from tests.doubles.paper_worker import PaperWorker
from tests.doubles.table_top import TableTop
from tests.scheduler.core.test_preemption import recipe, squeeze
from tests.scheduler.core.test_random_walk import walk


def said(table: TableTop, name: str) -> str:
    return explain(table.core, name, table.now)


def test_a_request_that_ended_or_never_was_is_said_to_be_gone() -> None:
    table = TableTop(w=PaperWorker())
    table.submit("r", [1, 2], 2)
    table.run()
    for name in ("r", "never"):
        assert said(table, name) == "no such request is alive: it has ended, or never came"


def test_without_a_worker_that_is_the_reason() -> None:
    table = TableTop()
    table.submit("r", [1, 2], 2)
    table.now = 3.25
    assert said(table, "r") == "has waited for 3.2 s: no worker is here"


def test_what_fits_starts_with_the_next_plan() -> None:
    table = TableTop(w=PaperWorker(pages=16))
    table.submit("r", [1] * 9, 2)
    assert said(table, "r") == "has waited for 0.0 s: starts with the next plan of w (3 pages of 16 that it can give)"
    table.plan("w")
    assert said(table, "r") == "runs on w: 0 of 9 prompt tokens computed"


def test_a_prompt_in_chunks_and_then_an_answer() -> None:
    table = TableTop(Settings(max_chunk=4, plans_in_flight=1), w=PaperWorker(pages=16))
    table.submit("r", [1] * 9, 20)
    table.turn()
    assert said(table, "r") == "runs on w: 4 of 9 prompt tokens computed"
    for _ in range(4):
        table.turn()
    assert said(table, "r") == "runs on w: 3 of 20 tokens answered"


def test_lacking_pages_are_counted() -> None:
    table = TableTop(w=PaperWorker(pages=16))
    table.submit("first", [1] * 40, 8)
    table.turn()
    table.submit("second", [2] * 20, 2)
    table.submit("third", [3] * 20, 2)
    held = "of 16: 11 held, 5 free or cached; 1 promised to running sequences"
    assert said(table, "second") == f"has waited for 0.0 s: needs 5 pages, w can give 4 ({held})"
    assert said(table, "third") == (
        f"has waited for 0.0 s: needs 5 pages, w can give 4 ({held}); "
        "1 sequence is offered before it (1 of its tenant, older)"
    )
    assert table.plan("w")
    assert table.core.requests["second"].sequences[0].state is SequenceState.WAITING


def test_the_sum_of_the_slots() -> None:
    table = TableTop(w=PaperWorker(pages=64, max_slots=2))
    for name in "abc":
        table.submit(name, [ord(name)], 30)
    table.turn()
    assert said(table, "c") == "has waited for 0.0 s: all 2 slots of w are taken"
    table.plan("w")
    assert not table.core.requests["c"].sequences[0].worker


def test_a_request_passed_over_too_often_holds_the_others_back() -> None:
    table = TableTop(Settings(max_overtakes=2), w=PaperWorker(pages=8))
    table.submit("runs", [1] * 12, 12)
    table.turn()
    table.submit("long", [2] * 24, 2)
    for n in range(4):
        table.submit(f"short{n}", [n + 5], 1)
        table.turn()
    assert "passed over 2 of 2 times" in said(table, "long")
    table.submit("late", [9], 1)
    assert "w keeps its room for request long, which will have been passed over 2 times" in said(table, "late")
    table.plan("w")
    assert table.core.requests["late"].sequences[0].state is SequenceState.WAITING


def test_the_budget_of_a_step() -> None:
    table = TableTop(w=PaperWorker(pages=32, max_step_tokens=8))
    table.submit("first", list(range(20)), 2)
    table.submit("second", [2], 2)
    assert said(table, "second").endswith(
        "the 8 tokens of a step of w are used up; 1 sequence is offered before it (1 of its tenant, older)"
    )
    table.plan("w")
    assert table.core.requests["second"].sequences[0].state is SequenceState.WAITING


def test_only_so_many_are_looked_at_in_a_step() -> None:
    table = TableTop(w=PaperWorker(pages=16))
    table.submit("runs", [1] * 40, 8)
    table.turn()
    for n in range(65):
        table.submit(f"r{n}", [n] * 24, 2)
    assert said(table, "r63").endswith("63 sequences are offered before it (63 of its tenant, older)")
    assert said(table, "r64").endswith("more than 63 are before it, and 64 are looked at in a step")


def test_another_worker_with_more_room() -> None:
    table = TableTop(small=PaperWorker(pages=8), large=PaperWorker(pages=16))
    table.submit("r", [1] * 9, 2)
    assert said(table, "r") == (
        "has waited for 0.0 s: starts with the next plan of large (3 pages of 16 that it can give); "
        "large is to have it, where it is computed sooner or has more room (small has room for 32 tokens, large for 64)"
    )
    assert not table.plan("small")


def test_a_pool_that_is_too_small_and_a_worker_that_drains() -> None:
    table = TableTop(small=PaperWorker(pages=2), large=PaperWorker(pages=16))
    table.apply(Drain("large"))
    table.submit("r", [1] * 9, 2)
    assert said(table, "r") == (
        "has waited for 0.0 s: large is draining; small can hold 9 tokens, and it may become 11 long"
    )


def test_plans_in_flight_come_first() -> None:
    table = TableTop(Settings(plans_in_flight=1), w=PaperWorker(pages=16))
    table.submit("first", [1], 8)
    table.plan("w")
    table.submit("r", [2], 8)
    assert said(table, "r").endswith("fits on w, which looks again when a plan comes back (1 in flight)")
    assert not table.plan("w")


def test_a_swapped_sequence_and_its_preemption() -> None:
    table = recipe("swap")
    worker = table.core.workers["w"]
    while not worker.swapped:
        table.turn()
    (swapped,) = worker.swapped
    text = said(table, "b")
    assert text.startswith(
        f"is swapped out on w (3 host pages, {swapped.num_generated} of 35 tokens answered): "
        "needs 4 pages and 1 to grow into, since it was preempted, w can give"
    )
    assert ", 1 in reserve since sequences were preempted lately)" in text
    assert text.endswith("; preempted 1 time so far")


def test_a_dropped_sequence_waits_again() -> None:
    table = recipe("drop")
    while not table.core.waiting or not next(iter(table.core.waiting)).num_generated:
        table.turn()
    generated = next(iter(table.core.waiting)).num_generated
    assert said(table, "b").startswith(
        f"waits to be computed again ({generated} of 35 tokens answered, arrived 0.0 s ago): needs"
    )


def test_a_victim_gives_way() -> None:
    table = squeeze("drop", page_size=1, head=60, position=8)
    worker = table.core.workers["w"]
    while not any(s.is_evicting for s in worker.running):
        assert table.plan("w") or any(s.is_evicting for s in worker.running) or table.deliver("w")
    assert "gives way: it gets no row until its" in said(table, "b")


def test_the_last_in_order_stands_still_when_no_page_is_left() -> None:
    table = TableTop(Settings(plans_in_flight=1), w=PaperWorker(page_size=4, pages=6))
    table.submit("a", [1] * 10, 12)
    table.turn()
    table.submit("b", [2] * 7, 9)
    while "stands still" not in said(table, "b"):
        assert table.turn()
    before = table.core.requests["b"].sequences[0].planned
    table.plan("w")
    assert table.core.requests["b"].sequences[0].planned == before


def test_a_suspect_gets_plans_of_its_own() -> None:
    table = TableTop(w=PaperWorker(pages=32))
    table.submit("r", [1, 2], 9)
    table.submit("s", [3, 4], 9)
    table.plan("w")
    step = table.results["w"].pop().step
    table.apply(Nack("w", step))
    assert "fits on w, which gives it every second plan as its own, since it met 1 failed step of 3" in said(table, "r")
    table.submit("t", [5], 2)
    assert "fits on w, after a plan that belongs to a request that met a failed step" in said(table, "t")
    table.plan("w")
    assert "it met 1 failed step of 3 and gets plans of its own" in said(table, "r")
    assert [s.request.spec.id for s in table.core.workers["w"].in_flight[0].rows] == ["r"]


def test_branches_of_a_worker_that_takes_no_forks_may_take_the_room() -> None:
    table = TableTop(Settings(max_chunk=4), w=PaperWorker(pages=64, minor=0))
    table.submit("r", [1] * 6, 9, n=3)
    table.plan("w")
    table.submit("asked", [2], 9)
    doubt = "fits on w, unless branches that fork off in this step, and wait, take the room"
    assert said(table, "asked") == f"has waited for 0.0 s: {doubt}"


def test_each_branch_has_its_sentence() -> None:
    table = TableTop(w=PaperWorker(pages=64, max_slots=2))
    table.submit("r", [1, 2], 9, n=3)
    assert said(table, "r").split("\n")[1] == "2 branches more will fork off with the first token"
    table.turn()
    lines = said(table, "r").split("\n")
    assert [line[:8] for line in lines] == ["branch 0", "branch 1", "branch 2"]
    assert lines[0] == "branch 0 runs on w: 1 of 9 tokens answered"
    assert lines[2].endswith("all 2 slots of w are taken")


def test_those_before_it_are_counted_by_what_puts_them_there() -> None:
    table = TableTop(Settings(max_num_seqs=1), w=PaperWorker(pages=16))
    table.submit("runs", [1], 8, tenant="a")
    table.turn()
    table.submit("other", [2, 2], 8, tenant="b")
    table.submit("older", [3, 3, 3], 8, tenant="a")
    table.submit("asked", [4], 8, tenant="a")
    table.submit("urgent", [5], 8, tenant="b", priority=1)
    given = table.core.requests["asked"].account.counter
    assert given > 0
    full = "has waited for 0.0 s: all 1 slots of w are taken"
    assert said(table, "urgent") == full
    assert said(table, "asked") == (
        f"{full}; 3 sequences are offered before it (1 of a higher class, 1 of its tenant, older, "
        f"1 of tenants whose turn is earlier, since its own was given {given:g} (tokens by price and weight))"
    )


def test_with_first_come_first_served_tenants_are_not_weighed() -> None:
    table = TableTop(Settings(max_num_seqs=1, policy="fcfs"), w=PaperWorker(pages=16))
    table.submit("runs", [1], 8, tenant="b")
    table.turn()
    table.submit("first", [2], 8, tenant="b")
    table.submit("asked", [3], 8, tenant="a")
    assert said(table, "asked").endswith("1 sequence is offered before it (1 of tenants that came earlier)")


def test_what_started_already_and_what_has_a_cached_prefix_are_before_it() -> None:
    table = recipe("drop")
    while not any(s.num_generated for s in table.core.waiting):
        table.turn()
    table.submit("asked", [7], 8)
    assert said(table, "asked").endswith("1 sequence is offered before it (1 started already)")

    table = TableTop(Settings(max_num_seqs=1), w=PaperWorker(pages=16))
    table.submit("warms", [1] * 9, 2)
    table.run()
    table.submit("runs", [2], 8)
    table.turn()
    table.submit("asked", [3] * 9, 2)
    table.submit("warm", [1] * 9, 2)
    assert said(table, "asked").endswith("1 sequence is offered before it (1 of its tenant, with a cached prefix)")


def test_what_has_waited_longest_is_offered_first_now_and_then() -> None:
    table = TableTop(Settings(max_num_seqs=1, max_wait_seconds=5), w=PaperWorker(pages=16))
    table.submit("low", [1], 2)
    for n in range(8):
        table.submit(f"high{n}", [n + 2], 2, priority=1)
    table.now = 6.0
    while "is offered first" not in said(table, "low"):
        assert "of a higher class" in said(table, "low")
        assert table.turn()
    assert said(table, "low").endswith("; it is offered first: it waits longest of all, for more than 5 s")
    assert [s.request.spec.id for s in table.core.waiting] == ["low", "high7"]
    last = next(reversed(table.core.requests))
    assert said(table, last).endswith("is offered before it (1 waits longest of all, for more than 5 s)")


def test_a_tenant_at_its_share_of_the_pages() -> None:
    table = TableTop(Settings(max_tenant_share=0.5), w=PaperWorker(pages=16))
    table.submit("runs", [1] * 4, 17, tenant="a")
    table.turn()
    table.submit("fits", [2] * 4, 5, tenant="a")
    table.submit("large", [3] * 4, 17, tenant="a")
    table.submit("small", [4], 2, tenant="a")
    table.submit("other", [5], 2, tenant="b")
    share = "has waited for 0.0 s: its tenant may have 8 of 16 pages of w: what it runs may come to need"
    behind = "request large of the same tenant, which is before it, 5"
    assert "starts with the next plan of w" in said(table, "fits")
    assert said(table, "large") == f"{share} 5, and it 5"
    assert said(table, "small") == f"{share} 5, and {behind}"
    assert "starts with the next plan of w" in said(table, "other")
    table.plan("w")
    assert said(table, "large") == f"{share} 7, and it 5"
    assert {name for name in table.core.requests if table.core.requests[name].sequences[0].worker} == {
        "runs",
        "fits",
        "other",
    }


def test_a_share_is_used_up_by_those_before_it_in_the_same_step() -> None:
    table = TableTop(Settings(max_tenant_share=0.5), w=PaperWorker(pages=16))
    table.submit("first", [1] * 4, 17)
    table.submit("second", [2] * 4, 17)
    assert "its tenant may have 8 of 16 pages of w: what it runs may come to need 5, and it 5" in said(table, "second")
    table.plan("w")
    assert not table.core.requests["second"].sequences[0].worker


def test_how_long_it_will_wait_at_most() -> None:
    table = TableTop(Settings(plans_in_flight=1), w=PaperWorker(pages=16))
    table.submit("r", [1], 8, queue_deadline=4.0)
    table.now = 1.5
    assert said(table, "r").endswith("; ends in 2.5 s if it has not started by then")
    table.plan("w")
    assert said(table, "r") == "runs on w: 0 of 8 tokens answered"


class Told(TableTop):
    """Before each plan it is written down what is said of every sequence; afterwards, what became of it."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.outcomes: Counter[tuple[str, bool]] = Counter()
        super().__init__(settings)

    def plan(self, name: str) -> bool:
        worker = self.core.workers[name]
        away = [*self.core.waiting, *worker.swapped]
        lines = {s: self._said(worker, s) for s in away}
        num_plans = len(worker.in_flight)
        has_planned = super().plan(name)
        started = (
            {new.sequence for new in worker.in_flight[-1].new_slots} if len(worker.in_flight) > num_plans else set()
        )
        for sequence, line in lines.items():
            promise = next((words for words in PROMISES if words in line), "does not start")
            self.outcomes[promise, sequence in started] += 1
            if promise not in WEAK and (promise == STARTS) != (sequence in started):
                raise AssertionError(f"{line!r}, but {name} {'did' if sequence in started else 'did not'} start it")
        return has_planned

    def _said(self, worker: Worker, sequence: Sequence) -> str:
        """What is said about the worker in the sentence about the sequence."""
        words = Outlook(self.core, worker, self.now).of(sequence)
        assert words in said(self, sequence.request.spec.id)
        return words


STARTS = "starts with the next plan"
WEAK = ("fits on", ", unless ")
PROMISES = (STARTS, *WEAK)


def test_in_any_history_what_is_said_to_start_starts_and_nothing_else() -> None:
    outcomes: dict[str, Counter[tuple[str, bool]]] = {"fair": Counter(), "fcfs": Counter()}
    for seed in range(25):
        table = walk(seed, num_events=300, kind=Told)
        assert isinstance(table, Told)
        outcomes[table.core.settings.policy] += table.outcomes
    for counted in outcomes.values():
        assert counted[STARTS, True] > 200
        assert counted["does not start", False] > 200


@pytest.mark.parametrize("seed", range(5))
def test_who_asks_changes_nothing(seed: int) -> None:
    assert walk(seed, num_events=300, kind=Told).plans == walk(seed, num_events=300).plans

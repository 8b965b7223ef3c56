"""Where sequences go when there are several workers, and which move when one more comes."""

from collections.abc import Callable

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.core.placement import ROW_TOKENS, Place, load, target
from octavo_scheduler.core.request import Sequence

from tests.doubles.paper_worker import PaperWorker, answer
from tests.doubles.table_top import TableTop

SYSTEM = list(range(100, 196))
"""What many prompts begin with."""


def roomy() -> PaperWorker:
    return PaperWorker(page_size=4, pages=600, max_slots=32, max_step_tokens=256)


def running(table: TableTop) -> dict[str, int]:
    return {name: len(worker.running) for name, worker in table.core.workers.items()}


def sequence_of(table: TableTop, name: str) -> Sequence:
    return table.core.requests[name].sequences[0]


def place_of(table: TableTop, name: str) -> str:
    worker = sequence_of(table, name).worker
    return worker.id if worker else ""


def test_a_request_goes_to_the_worker_that_holds_its_prefix() -> None:
    table = TableTop(Settings(), **{f"w{n}": roomy() for n in range(4)})
    table.submit("first", SYSTEM, 4)
    table.turn()
    home = place_of(table, "first")
    table.run()
    for n in range(4):
        table.submit(f"r{n}", [*SYSTEM, n], 40)
        table.turn()
    assert {place_of(table, f"r{n}") for n in range(2)} == {home}
    table.run()
    assert all(table.started[f"r{n}"].cached == len(SYSTEM) for n in range(2))


def test_one_that_has_more_of_it_is_waited_for_while_it_answers_and_not_longer_than_that_saves() -> None:
    table = TableTop(home=roomy(), other=roomy())
    table.core.workers["other"].appetite.budget = 0  # takes nothing
    table.submit("first", SYSTEM, 40)
    table.turn()
    while table.plan("home"):
        pass
    table.core.workers["other"].appetite.restore()
    table.submit("r", [*SYSTEM, 1], 4)
    assert place_of(table, "first") == "home"
    table.plan("other")
    assert place_of(table, "r") == "", "home has its plans in flight, and holds the prefix"
    saved = (len(SYSTEM) - load(table.core.workers["home"])) / 2000
    table.now = saved * 0.9
    table.plan("other")
    assert place_of(table, "r") == ""
    table.now = saved * 1.1
    table.plan("other")
    assert place_of(table, "r") == "other"
    table.run()
    assert table.tokens["r"] == answer([*SYSTEM, 1], 4)


def test_a_worker_so_much_fuller_that_computing_anew_is_sooner_is_left_alone() -> None:
    table = TableTop(home=roomy(), other=roomy())
    table.submit("first", SYSTEM, 40)
    table.turn()
    home = place_of(table, "first")
    for n in range(8):
        table.submit(f"r{n}", [*SYSTEM, n], 40)
        table.turn()
    places = [place_of(table, f"r{n}") for n in range(8)]
    assert places[0] == home
    assert len(SYSTEM) // ROW_TOKENS <= sum(place == home for place in places) < 8
    table.run()
    assert all(table.tokens[f"r{n}"] == answer([*SYSTEM, n], 40) for n in range(8))


def computed(settings: Settings, shared: bool) -> tuple[int, int]:
    """Prompt tokens computed, and steps, for sixty requests with one of six beginnings, on four workers."""
    table = TableTop(settings, **{f"w{n}": roomy() for n in range(4)})
    for n in range(60):
        head = [n % 6 if shared else n] * 64
        table.submit(f"r{n}", [*head, n, n + 1], 6)
        for _ in range(2):
            table.turn()
    table.run()
    assert all(len(table.tokens[f"r{n}"]) == 6 for n in range(60))
    return table.core.counters.prompt_tokens, len(table.plans)


def test_with_shared_prefixes_four_workers_compute_each_of_them_little_more_than_once(
    figure: Callable[[str], None],
) -> None:
    tokens, _ = computed(Settings(), shared=True)
    whole, _ = computed(Settings(prefix_cache=False), shared=True)
    least = 6 * 64 + 60 * 2
    assert tokens <= 2 * least
    assert whole == 60 * 66
    figure(f"placement, 60 requests with 6 prefixes on 4 workers: {tokens} prompt tokens computed, {least} at least")


def turns_until_all_are_served(join_after: int | None, pages: int = 600) -> tuple[int, TableTop]:
    table = TableTop(w0=PaperWorker(page_size=4, pages=pages, max_slots=32, max_step_tokens=16))
    for n in range(24):
        table.submit(f"r{n}", [n] * 6, 90)
    turns = 0
    while table.core.requests:
        if turns == join_after:
            table.join("w1", PaperWorker(page_size=4, pages=pages, max_slots=32, max_step_tokens=16))
        table.turn()
        turns += 1
    table.run()
    assert all(table.tokens[f"r{n}"] == answer([n] * 6, 90) for n in range(24))
    return turns, table


def test_when_a_second_worker_joins_running_sequences_move_to_it_and_all_are_served_in_fewer_steps(
    figure: Callable[[str], None],
) -> None:
    """Steps of one worker have 16 rows, so that 24 sequences take turns there."""
    alone, _ = turns_until_all_are_served(None)
    both, table = turns_until_all_are_served(30)
    assert both < 0.8 * alone
    moved = table.core.workers["w0"].num_drops
    assert 0 < moved <= 12
    assert table.core.workers["w1"].num_drops == 0, "none comes back"
    figure(f"rebalancing, 24 sequences: {alone} turns alone, {both} when a second worker joins at 30; {moved} moved")


def letting_go(prefill_rate: float = 0) -> TableTop:
    """One that is crowded, and one beside it with a plan unanswered and little to do."""
    table = TableTop(w0=roomy())
    for n in range(12):
        table.submit(f"r{n}", [n] * 6, 200)
    for _ in range(4):
        table.turn()
    table.join("w1", roomy())
    table.core.workers["w1"].prefill_rate = prefill_rate or table.core.workers["w0"].prefill_rate
    table.submit("other", [99] * 6, 200)
    while table.plan("w1"):
        pass
    for _ in range(6):
        table.plan("w0")
        table.deliver("w0")
    return table


def test_one_that_moves_waits_for_a_busy_worker_to_answer_and_is_not_started_again_by_the_one_it_leaves() -> None:
    table = letting_go()
    assert running(table) == {"w0": 11, "w1": 1}
    assert len(table.core.waiting) == table.core.workers["w0"].num_drops == 1
    table.deliver("w1")
    table.plan("w1")
    assert running(table) == {"w0": 11, "w1": 2}
    table.run()
    assert table.core.workers["w1"].num_drops == 0
    assert all(table.tokens[f"r{n}"] == answer([n] * 6, 200) for n in range(12))


def test_one_that_moves_comes_back_when_the_other_worker_does_not_answer_in_the_time_that_it_would_have_saved() -> None:
    table = letting_go()
    table.now += 60
    table.plan("w0")
    assert running(table) == {"w0": 12, "w1": 1}


def test_nobody_moves_to_a_worker_that_computes_so_slowly_that_it_would_start_later_there() -> None:
    assert letting_go(prefill_rate=20).core.workers["w0"].num_drops == 0


def test_when_a_second_worker_joins_what_lies_swapped_out_goes_there_at_once() -> None:
    table = TableTop(w0=PaperWorker(page_size=4, pages=30, host_pages=200, max_slots=32))
    table.core.workers["w0"].copy_rate = 1e12  # so that it swaps
    for n in range(10):
        table.submit(f"r{n}", [n] * 9, 60)
    while not table.core.workers["w0"].swapped:
        table.turn()
    swapped = [sequence.request.spec.id for sequence in table.core.workers["w0"].swapped]
    table.join("w1", roomy())
    for _ in range(12):
        table.turn()
    assert {place_of(table, name) for name in swapped} == {"w1"}
    table.run()
    assert all(table.tokens[f"r{n}"] == answer([n] * 9, 60) for n in range(10))


@pytest.mark.parametrize(
    ("num_running", "num_tokens", "left", "is_worth_it"),
    [(6, 8, 90, True), (2, 8, 90, False), (6, 80, 90, False), (6, 8, ROW_TOKENS - 1, False)],
)
def test_a_move_pays_between_unequal_workers_for_short_sequences_with_much_to_come(
    num_running: int, num_tokens: int, left: int, is_worth_it: bool
) -> None:
    table = TableTop(w0=roomy())
    for n in range(num_running):
        table.submit(f"r{n}", [n] * num_tokens, left + 1)
    for _ in range(4):
        table.turn()
    table.join("w1", roomy())
    here, there = table.core.workers.values()
    assert (target(here, here.running[-1], [Place.of(there, table.now)]) is there) == is_worth_it


@pytest.mark.parametrize(
    ("step_seconds", "under_way", "is_worth_it"), [(0.01, 0.01, True), (5.0, 0.0, False), (0.01, 5.0, False)]
)
def test_nobody_moves_to_a_worker_that_answers_later_than_the_move_would_save(
    step_seconds: float, under_way: float, is_worth_it: bool
) -> None:
    table = TableTop(Settings(plans_in_flight=1), w0=roomy())
    for n in range(7):
        table.submit(f"r{n}", [n] * 8, 90)
    for _ in range(4):
        table.turn()
    table.join("w1", roomy())
    here, there = table.core.workers.values()
    table.submit("short", [9] * 2, 90)
    table.plan("w1")
    table.now += step_seconds
    table.deliver("w1")
    table.plan("w1")
    table.now += under_way
    assert (target(here, here.running[-1], [Place.of(there, table.now)]) is there) == is_worth_it


@pytest.mark.parametrize(("growth", "reserve", "is_worth_it"), [(0, 0, True), (200, 0, False), (0, 32, False)])
def test_nobody_moves_to_a_worker_that_would_not_let_it_in_yet(growth: int, reserve: int, is_worth_it: bool) -> None:
    table = TableTop(Settings(readmit_growth=growth), w0=roomy())
    for n in range(7):
        table.submit(f"r{n}", [n] * 8, 90)
    for _ in range(4):
        table.turn()
    table.join("w1", PaperWorker(pages=26, page_size=4, max_slots=8))
    here, there = table.core.workers.values()
    table.submit("short", [9] * 2, 90)
    table.turn()
    assert there.running
    there.reserve = reserve
    assert (target(here, here.running[-1], [Place.of(there, table.now)]) is there) == is_worth_it


def test_sequences_stay_where_an_operator_wants_pages_swapped_and_nothing_computed_again() -> None:
    table = TableTop(Settings(preempt="swap"), w0=roomy())
    for n in range(12):
        table.submit(f"r{n}", [n] * 6, 60)
    for _ in range(4):
        table.turn()
    table.join("w1", roomy())
    table.run()
    assert table.core.workers["w0"].num_drops == 0

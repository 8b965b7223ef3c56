"""Who goes first: classes, fair shares between tenants, warm prefixes. Shares are counted in tokens, never in time."""

import random
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.core.policy import MOST_IDLE_ACCOUNTS, WARM_BAND
from octavo_scheduler.core.request import RequestSpec
from octavo_scheduler.core.settings import PolicyName
from octavo_scheduler.core.states import RequestState

from tests.doubles.watched_table import WatchedTable

SLOTS = 4


def bound(prompt: int, answer: int, slots: int = SLOTS) -> float:
    """2 × max(prompt price × L, answer price × M): of L tokens is the longest prompt, M tokens are in all slots at most."""
    return 2 * max(Settings.prompt_token_price * prompt, Settings.answer_token_price * slots * (prompt + answer))


def gaps(table: WatchedTable, weight: float = 1.0) -> list[float]:
    """What `a` (per unit of its weight) was given more than `b`, after each turn in which both had requests waiting."""
    found: list[float] = []
    while table.num_queued("a") and table.num_queued("b"):
        assert table.turn()
        found.append(table.served("a") / weight - table.served("b"))
    return found


def two_floods(policy: PolicyName) -> list[float]:
    table = WatchedTable(Settings(policy=policy), slots=SLOTS)
    table.flood("a", 80, prompt=16, answer=12)
    table.flood("b", 60, prompt=6, answer=20)
    found = gaps(table)
    table.run()
    table.assert_empty()
    return found


def test_two_tenants_that_both_wait_are_given_the_same_within_the_bound() -> None:
    found = two_floods("fair")
    assert len(found) > 100
    assert max(found) - min(found) <= bound(16, 12)


def test_first_come_first_served_breaks_that_bound() -> None:
    found = two_floods("fcfs")
    assert max(found) - min(found) > bound(16, 12)


def test_a_tenant_of_twice_the_weight_is_given_twice_as_much_within_the_bound() -> None:
    table = WatchedTable(Settings(tenant_weights={"a": 2.0}), slots=SLOTS)
    table.flood("a", 100, prompt=16, answer=12)
    table.flood("b", 60, prompt=16, answer=12)
    found = gaps(table, weight=2.0)
    assert max(found) - min(found) <= bound(16, 12)
    assert table.served("a") == pytest.approx(2 * table.served("b"), rel=0.15)


def test_a_tenant_that_floods_does_not_hold_up_another_one() -> None:
    table = WatchedTable(Settings(), slots=SLOTS)
    table.flood("a", 200, prompt=16, answer=12)
    for _ in range(20):
        table.turn()
    table.flood("b", 1, prompt=16, answer=12)
    before = len(table.admitted)
    while "b200" not in table.admitted:
        assert table.turn()
    assert table.admitted[before:].index("b200") == 0, "it goes to the first slot that is free"


def test_a_tenant_saves_nothing_up_while_it_asks_for_nothing() -> None:
    table = WatchedTable(Settings(), slots=SLOTS)
    table.flood("a", 1, prompt=16, answer=12)
    table.flood("b", 100, prompt=16, answer=12)
    while table.num_queued("b") > 50:
        table.turn()
    start = table.served("a") - table.served("b")
    table.flood("a", 100, prompt=16, answer=12)
    found = [gap - start for gap in gaps(table)]
    assert len(found) > 100
    assert max(found) - min(found) <= bound(16, 12)
    assert max(found) <= bound(16, 12), "it is not given what it missed"


def test_a_tenant_is_not_forgiven_for_leaving_and_coming_back() -> None:
    """It always has one dear request, never two, against a flood of cheap ones."""
    table = WatchedTable(Settings(), slots=1)
    table.flood("b", 200, prompt=4, answer=4)
    gap = 0.0
    while table.num_queued("b"):
        table.flood("a", 1, prompt=40, answer=40)
        name = next(reversed(table.tokens))
        while name not in table.finished and table.num_queued("b"):
            assert table.turn()
        gap = max(gap, table.served("a") - table.served("b"))
    assert gap <= bound(40, 40, slots=1)


def test_a_tenant_that_was_given_more_is_remembered_and_the_others_are_forgotten() -> None:
    table = WatchedTable(Settings(tenant_weights={"heavy": 0.01}), slots=2)
    table.flood("heavy", 1, prompt=40, answer=20)
    table.flood("steady", 400, prompt=4, answer=2)
    while "heavy0" not in table.finished:
        table.turn()
    for number in range(200):
        table.flood(f"t{number}", 1, prompt=4, answer=2)
        while f"t{number}{401 + number}" not in table.finished:
            table.turn()
        assert table.core.waiting.num_accounts <= 2 * len(table.core.requests) + MOST_IDLE_ACCOUNTS + 1
    for number in range(2 * len(table.core.requests) + MOST_IDLE_ACCOUNTS):
        table.core.submit(RequestSpec(id=f"u{number}", prompt=(1,), tenant=f"u{number}"), table.now)
        table.core.abort(f"u{number}", table.now)
    table.flood("heavy", 1, prompt=4, answer=2)
    heavy = table.core.requests[next(reversed(table.tokens))].account.counter
    assert heavy == 100 * (Settings.prompt_token_price * 40 + Settings.answer_token_price * 20)
    table.run()
    table.assert_empty()


def test_slots_that_are_free_at_once_are_shared() -> None:
    table = WatchedTable(Settings(), slots=8)
    table.flood("a", 20, prompt=4, answer=2)
    table.flood("b", 20, prompt=4, answer=2)
    table.plan("w")
    assert sorted(name[0] for name in table.admitted) == ["a"] * 4 + ["b"] * 4


@pytest.mark.parametrize("seed", range(4))
def test_the_tenant_that_was_given_least_is_offered_first(seed: int) -> None:
    draw = random.Random(seed)
    table = WatchedTable(Settings(prompt_token_price=draw.choice([0.0, 1.0])), slots=3)
    for _ in range(30):
        table.flood(draw.choice("abcde"), draw.choice([1, 1, 80]), draw.randrange(2, 9), draw.randrange(1, 30))
        for _ in range(draw.randrange(6)):
            table.turn()
        new = [s for s in table.core.waiting if s.request.state is RequestState.QUEUED]
        offered = table.core.waiting.candidates(table.core.workers["w"], None, lambda sequence: True)
        if new:
            least = min(s.request.account.counter for s in new)
            assert offered[0].request.account.counter == least


def test_tokens_found_in_the_prefix_cache_are_free_and_what_is_computed_again_is_not_charged_again() -> None:
    table = WatchedTable(Settings(preempt="drop"), pages=12, slots=4)
    prompt = list(range(16))
    table.submit("first", prompt, 20)
    table.turn()
    table.turn()
    table.submit("second", prompt, 20)
    counters: list[float] = []
    while table.turn():
        counters += [request.account.counter for request in table.core.requests.values()]
    assert table.finished["second"].preemptions, "the pool is too small for both"
    prompts = Settings.prompt_token_price * (16 + 16 - 12)
    answers = Settings.answer_token_price * sum(len(table.tokens[name]) for name in ("first", "second"))
    last_answer = Settings.answer_token_price
    assert max(counters) == prompts + answers - last_answer


def test_a_class_goes_before_all_lower_ones_and_shares_are_fair_within_it() -> None:
    table = WatchedTable(Settings(), slots=1)
    table.flood("a", 4, prompt=4, answer=2)
    table.flood("b", 2, prompt=4, answer=2)
    table.flood("a", 2, prompt=4, answer=2, priority=1)
    table.run()
    assert table.admitted == ["a6", "a7", "a0", "b4", "a1", "b5", "a2", "a3"]


def test_first_come_first_served_knows_classes_and_no_tenants() -> None:
    table = WatchedTable(Settings(policy="fcfs"), slots=1)
    table.flood("a", 2, prompt=4, answer=2)
    table.flood("b", 1, prompt=4, answer=2)
    table.flood("c", 1, prompt=4, answer=2, priority=1)
    table.run()
    assert table.admitted == ["c3", "a0", "a1", "b2"]


def warm_table(settings: Settings) -> tuple[WatchedTable, list[int]]:
    table = WatchedTable(settings, slots=1)
    prefix = list(range(100, 112))
    table.submit("first", [*prefix, 1], 2)
    table.run()
    table.submit("runs", [1, 2], 8)
    table.turn()
    return table, prefix


def test_a_warm_request_goes_before_a_few_cold_ones_of_its_tenant() -> None:
    table, prefix = warm_table(Settings())
    for number in range(WARM_BAND):
        table.submit(f"cold{number}", [number, 2, 3, 4, 5], 2)
    table.submit("warm", [*prefix, 2], 2)
    table.run()
    assert table.admitted[2:] == ["cold0", "warm", "cold1", "cold2", "cold3"]


def test_a_warm_request_does_not_go_before_other_tenants() -> None:
    table, prefix = warm_table(Settings())
    table.submit("cold", [1, 2, 3, 4, 5], 2, tenant="other")
    table.submit("warm", [*prefix, 2], 2, salt="")
    table.run()
    assert table.admitted[2:] == ["cold", "warm"]


def test_warm_requests_pass_a_cold_one_a_bounded_number_of_times() -> None:
    table, prefix = warm_table(Settings(max_overtakes=3))
    table.submit("cold", [1, 2, 3, 4, 5], 2)
    for number in range(20):
        table.submit(f"warm{number}", [*prefix, number], 2)
    table.run()
    assert table.admitted[2:].index("cold") == 3


def calls(work: Callable[[], object]) -> int:
    """Function calls that it makes."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("spread", ["one tenant", "many tenants", "many classes"])
def test_a_step_costs_no_more_with_4096_requests_waiting_than_with_256(spread: str) -> None:
    costs = {}
    for num_waiting in (256, 4096):
        table = WatchedTable(Settings(max_queued_tokens=1 << 30), slots=8, pages=64)
        table.flood("big", 1, prompt=200, answer=56, priority=1 << 20)
        table.turn()
        for number in range(num_waiting):
            tenant = f"t{number}" if spread == "many tenants" else ""
            priority = number if spread == "many classes" else 0
            spec = RequestSpec(id=f"r{number}", prompt=(1,) * 80, max_tokens=100, tenant=tenant, priority=priority)
            table.core.submit(spec, table.now)
        costs[num_waiting] = calls(partial(table.core.plan, "w", table.now))
        assert len(table.core.waiting) == num_waiting, "there is room for none of them"
    assert costs[4096] <= 1.1 * costs[256]

"""Every kind of bad plan is refused with a reason, and changes nothing."""

import math
import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from octavo.v1 import step_pb2 as wire
from octavo_worker.errors import PlanRefused, Reason
from octavo_worker.runner import Runner

from tests.pools import memory, poison
from tests.worker.plans import Driver, growth, int32, moves, new_slots, rows, uint16

PAGES, HOST_PAGES, SLOTS, BUDGET, CONTEXT, VOCABULARY = 20, 4, 8, 32, 64, 320


@pytest.fixture
def driver(make_runner: Callable[..., Runner]) -> Driver:
    """Slot 0 has 20 tokens in pages 1 and 2 and has sampled one; slot 1 has 10 tokens in page 3, none computed."""
    made = Driver(
        make_runner(
            pages=PAGES,
            host_pages=HOST_PAGES,
            max_slots=SLOTS,
            max_step_tokens=BUDGET,
            max_context=CONTEXT,
            page_size=16,
        )
    )
    made.send(
        new_slots=new_slots({0: range(20), 1: range(10)}),
        growth=growth({0: [1, 2], 1: [3]}),
        rows=rows({0: 20}),
    )
    return made


def state(runner: Runner) -> list[bytes]:
    slots, counts = runner.slots, runner.slots.counts
    arrays = [
        *(counts.is_active, counts.length, counts.computed, counts.num_pages, slots.table, slots.history),
        *(slots.columns[name] for name in sorted(slots.columns)),
        *(memory(runner.cache.pool), memory(runner.cache.host)),
    ]
    return [array.tobytes() for array in arrays] + [bytes([runner.last_step])]


def changed(message: wire.NewSlots, **columns: bytes) -> wire.NewSlots:
    """A copy with some columns replaced."""
    copy = wire.NewSlots()
    copy.CopyFrom(message)
    for name, value in columns.items():
        setattr(copy, name, value)
    return copy


def float32(value: float) -> bytes:
    return np.array([value], "<f4").tobytes()


def masked(*places: int, mask: bytes | None = None, samples: Sequence[int] | None = None) -> wire.Rows:
    """A row for each of the first two slots, and masks of ten words (320 tokens) for the rows at these places."""
    made = rows({0: 1, 1: 10}, samples)
    made.masked_row, made.mask = uint16(*places), bytes(40 * len(places)) if mask is None else mask
    return made


NEW = new_slots({2: [5, 6, 7]})
FORK = {"branch": uint16(1), "seed": bytes(8)}
BAD: dict[str, tuple[dict[str, object], str]] = {
    "slot out of range": ({"new_slots": new_slots({SLOTS: [1]})}, "new_slots.slot lies in 0..7"),
    "slot in use": ({"new_slots": new_slots({0: [1]})}, "slot 0, which is in use"),
    "slot started twice": (
        {"new_slots": changed(new_slots({2: [1], 3: [2]}), slot=uint16(2, 2))},
        "new_slots.slot names something twice",
    ),
    "tokens missing": ({"new_slots": changed(NEW, tokens=int32(5, 6))}, "announces 3 elements and brings 2"),
    "a column missing": ({"new_slots": changed(NEW, top_p=b"")}, "columns of new_slots have"),
    "no tokens": ({"new_slots": new_slots({2: []})}, "new_slots.num_tokens lies in 1..64"),
    "too many tokens": ({"new_slots": new_slots({2: [1] * 65})}, "new_slots.num_tokens lies in 1..64"),
    "token out of the vocabulary": ({"new_slots": new_slots({2: [320]})}, "new_slots.tokens lies in 0..319"),
    "negative token": ({"new_slots": new_slots({2: [-1]})}, "new_slots.tokens lies in 0..319"),
    "all computed": ({"new_slots": new_slots({2: [1, 2]}, computed=2)}, "last token is always computed"),
    "more prompt than tokens": ({"new_slots": new_slots({2: [1]}, num_prompt=2)}, "more prompt or computed"),
    "negative count": ({"new_slots": changed(NEW, num_tokens=int32(-3), tokens=b"")}, "announces -3 elements"),
    "freed but not in use": ({"freed_slot": uint16(5)}, "slot 5, which is not in use"),
    "freed twice": ({"freed_slot": uint16(0, 0)}, "names something twice"),
    "table of an unused slot": ({"growth": growth({5: [4]})}, "slot 5, which is not in use"),
    "null page": ({"growth": growth({0: [0]})}, "growth.pages lies in 1..20"),
    "page out of range": ({"growth": growth({0: [21]})}, "growth.pages lies in 1..20"),
    "table too long": ({"growth": growth({0: [4, 5, 6]})}, "a block table's length lies in 0..4"),
    "a negative number of pages dropped": ({"growth": growth({0: [4]}, [-1])}, "num_dropped lies between 0 and"),
    "more pages dropped than there are": ({"growth": growth({0: [4, 5]}, [3])}, "num_dropped lies between 0 and"),
    "computed pages dropped": ({"growth": growth({0: []}, [1])}, "ends before the tokens that its slot has computed"),
    "dropped for other slots than grown": (
        {"growth": growth({0: [4]}, [1, 1])},
        "columns of growth have 1, 2, 1 elements",
    ),
    "swap out of nowhere": ({"swap_out": moves({21: 1})}, "swap_out.source lies in 1..20"),
    "swap out to nowhere": ({"swap_out": moves({1: 5})}, "swap_out.target lies in 1..4"),
    "swap in of nowhere": ({"swap_in": moves({5: 1})}, "swap_in.source lies in 1..4"),
    "swap in to the null page": ({"swap_in": moves({1: 0})}, "swap_in.target lies in 1..20"),
    "copy onto one page twice": ({"copy": moves({1: 5, 2: 5})}, "copy.target names something twice"),
    "copy of a negative page": ({"copy": moves({-1: 5})}, "copy.source lies in 1..20"),
    "zero out of range": ({"zero": int32(21)}, "zero lies in 1..20"),
    "moves of unequal length": ({"copy": wire.PageMoves(source=int32(1, 2), target=int32(3))}, "have 2, 1 elements"),
    "half an element": ({"zero": b"\1\0\0"}, "no multiple of 4"),
    "fork of an unused slot": (
        {"forks": wire.Forks(source=uint16(5), target=uint16(6), **FORK)},
        "slot 5, which is not in use",
    ),
    "fork onto a used slot": (
        {"forks": wire.Forks(source=uint16(0), target=uint16(1), **FORK)},
        "slot 1, which is in use",
    ),
    "row of an unused slot": ({"rows": rows({5: 1})}, "slot 5, which is not in use"),
    "row twice": ({"rows": wire.Rows(slot=uint16(0, 0))}, "rows.slot names something twice"),
    "empty row": ({"rows": rows({0: 0}, [0])}, "rows.num_tokens lies in 1..32"),
    "negative row": ({"rows": rows({1: -1}, [0])}, "rows.num_tokens lies in 1..32"),
    "more than it knows": ({"rows": rows({1: 11})}, "more tokens than its slot has"),
    "sample before the end": ({"rows": rows({1: 9})}, "samples a token that its slot already has"),
    "sample of a stranger": (
        {"rows": wire.Rows(slot=uint16(0), num_samples=uint16(2), sample_slot=uint16(0, 1))},
        "slot 1 is sampled from the row of slot 0",
    ),
    "several samples, unnamed": ({"rows": rows({0: 1}, [2])}, "does not say which"),
    "sample twice": (
        {"rows": wire.Rows(slot=uint16(0), num_samples=uint16(2), sample_slot=uint16(0, 0))},
        "rows.sample_slot names something twice",
    ),
    "mask of no row": ({"rows": masked(2)}, "rows.masked_row lies in 0..1"),
    "mask twice": ({"rows": masked(1, 1)}, "rows.masked_row does not ascend"),
    "mask of a row that samples nothing": ({"rows": masked(0, samples=[0, 1])}, "names a row that samples nothing"),
    "masks of unequal length": ({"rows": masked(0, 1, mask=bytes(12))}, "12 bytes, which are no 2 masks"),
    "half a word of a mask": ({"rows": masked(0, mask=bytes(6))}, "6 bytes, which are no 1 masks"),
    "mask without rows": ({"rows": masked(mask=bytes(4))}, "4 bytes, which are no 0 masks"),
    "mask of more tokens than there are": ({"rows": masked(0, mask=bytes(44))}, "a mask has 11 words, more than 320"),
    "columns of unequal length": (
        {"rows": wire.Rows(slot=uint16(0, 1), num_tokens=int32(1))},
        "columns of rows have 2, 1, 2 elements",
    ),
    "positions without pages": (
        {"new_slots": new_slots({2: range(20)}), "growth": growth({2: [4]}), "rows": rows({2: 20})},
        "positions that its block table does not cover",
    ),
    "more tokens than a step computes": (
        {
            "new_slots": new_slots({2: range(30), 3: range(30)}),
            "growth": growth({2: [4, 5], 3: [6, 7]}),
            "rows": rows({2: 20, 3: 20}, [0, 0]),
        },
        "a step computes at most 32 tokens, not 40",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_plan_is_refused_and_changes_nothing(name: str, driver: Driver) -> None:
    parts, sentence = BAD[name]
    before = state(driver.runner)
    with pytest.raises(PlanRefused, match=re.escape(sentence)) as refusal:
        driver.send(**parts)
    assert refusal.value.reason is Reason.INVALID
    assert state(driver.runner) == before


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("temperature", math.nan),
        ("temperature", -1),
        ("temperature", math.inf),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_p", math.nan),
        ("min_p", -0.1),
        ("min_p", 2),
        ("repetition_penalty", 0),
        ("repetition_penalty", math.nan),
        ("presence_penalty", math.inf),
        ("frequency_penalty", math.nan),
    ],
)
def test_sampling_values_out_of_range_are_refused(column: str, value: float, driver: Driver) -> None:
    with pytest.raises(PlanRefused, match=f"new_slots.{column} is out of range"):
        driver.send(new_slots=changed(NEW, **{column: float32(value)}))


def test_a_good_plan_after_a_refused_one_gives_what_it_always_would(driver: Driver) -> None:
    with pytest.raises(PlanRefused):
        driver.send(rows=rows({5: 1}))
    driver.step -= 1
    after = driver.send(rows=rows({0: 1, 1: 10}))
    assert len(after) == 2


@pytest.mark.parametrize("step", [0, 1, 3, 1 << 40])
def test_a_step_that_is_missing_or_comes_twice_is_out_of_sequence(step: int, driver: Driver) -> None:
    before = state(driver.runner)
    with pytest.raises(PlanRefused, match="came after step 1") as refusal:
        driver.runner.execute(wire.StepPlan(step=step))
    assert refusal.value.reason is Reason.OUT_OF_SEQUENCE
    assert state(driver.runner) == before


def test_a_full_plan_may_skip_steps_and_forgets_all_slots(driver: Driver) -> None:
    plan = wire.StepPlan(step=9, full=True, new_slots=new_slots({0: [1, 2]}), growth=growth({0: [7]}))
    driver.runner.execute(plan)
    counts = driver.runner.slots.counts
    assert counts.is_active.tolist() == [True] + [False] * (SLOTS - 1)
    assert (counts.length[0], counts.computed[0], counts.num_pages[0]) == (2, 0, 1)
    with pytest.raises(PlanRefused):
        driver.runner.execute(plan)


def test_a_sequence_ends_at_the_longest_context(make_runner: Callable[..., Runner]) -> None:
    driver = Driver(make_runner(max_context=16, page_size=16))
    driver.send(new_slots=new_slots({0: range(15)}), growth=growth({0: [1]}), rows=rows({0: 15}))
    with pytest.raises(PlanRefused, match="a sequence holds at most 16 tokens"):
        driver.send(rows=rows({0: 1}))


def test_thousands_of_mutated_plans_neither_crash_the_worker_nor_touch_other_pages(driver: Driver) -> None:
    """Bytes of a good plan are changed at random; the worker refuses or executes, and pages 10..20 stay as they are."""
    poison(driver.runner.cache.pool)
    others = memory(driver.runner.cache.pool)[10:]
    canary = others.tobytes()
    rng = np.random.default_rng(0)
    good = wire.StepPlan(
        step=2,
        new_slots=new_slots({2: [5, 6, 7]}),
        growth=growth({2: [4], 0: [5]}),
        copy=moves({1: 6}),
        rows=rows({0: 1, 1: 10, 2: 3}),
    ).SerializeToString()
    reasons = []
    for _ in range(3000):
        data = bytearray(good)
        for place in rng.integers(0, len(data), rng.integers(1, 4)):
            data[place] = rng.integers(0, 10)
        try:
            plan = wire.StepPlan.FromString(bytes(data))
        except DecodeError:
            continue
        driver.runner.reset()
        plan.full, plan.step = True, 1
        try:
            driver.runner.execute(plan)
        except PlanRefused as refusal:
            reasons.append(refusal.reason)
    assert len(reasons) > 100
    assert set(reasons) == {Reason.INVALID}
    assert others.tobytes() == canary

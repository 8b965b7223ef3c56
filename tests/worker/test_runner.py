"""Executing plans: deltas, swaps, copies, forks, and what is counted."""

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from octavo.v1 import step_pb2 as wire
from octavo_worker.errors import PlanRefused, Reason
from octavo_worker.runner import Runner

from tests.pools import memory, poison
from tests.worker.plans import Driver, growth, int32, moves, new_slots, rows, tokens_of, uint16

PROMPT = np.random.default_rng(5).integers(3, 320, 37).tolist()
Make = Callable[..., Runner]


def test_hello_says_what_the_worker_can_hold(make_runner: Make, kernels: str) -> None:
    runner = make_runner(pages=9, host_pages=3, worker_id="w1", max_slots=5, max_step_tokens=40)
    hello = runner.hello()
    assert (hello.worker_id, hello.device_pages, hello.host_pages, hello.max_slots) == ("w1", 9, 3, 5)
    assert (hello.max_step_tokens, hello.max_context, hello.vocab_size) == (40, 512, 320)
    assert (hello.kernels, hello.batch_invariant, hello.needs_zeroed_pages) == (kernels, kernels == "cpu", False)
    page = hello.geometry
    assert (page.page_size, page.num_layers, page.num_kv_heads, page.head_dim) == (16, 2, 2, 16)
    layout = {"reference": "ref.token_dim", "cpu": "cpu.16", "triton": "ref.token_dim"}[kernels]
    assert (page.dtype, page.layout, page.page_bytes) == ("float32", layout, 16 * 2 * 2 * 16 * 2 * 4)
    assert len(hello.weights_digest) == 32


def test_workers_that_would_answer_differently_say_so(make_runner: Make) -> None:
    """The digest covers the weights, their format, and the dtypes of activations and pages."""
    settings = [{}, {"weights": "bfloat16"}, {"dtype": "bfloat16"}, {"kv_dtype": "bfloat16"}]
    digests = {make_runner(**each).hello().weights_digest for each in settings}
    assert len(digests) == len(settings)
    assert make_runner(page_size=8, pages=9).hello().weights_digest in digests
    assert make_runner(kv_dtype="bfloat16").hello().geometry.dtype == "bfloat16"


def test_a_steady_decode_plan_carries_a_slot_and_nothing_else(make_runner: Make) -> None:
    driver = Driver(make_runner())
    first = driver.send(new_slots=new_slots({3: PROMPT}), growth=growth({3: [5, 2, 9, 4]}), rows=rows({3: 37}))
    plan = wire.StepPlan(step=2, rows=wire.Rows(slot=uint16(3)))
    assert plan.ByteSize() <= 10
    driver.runner.execute(plan)
    history = driver.runner.slots.history[3]
    assert history[:38].tolist() == PROMPT + first
    assert driver.runner.slots.counts.length[3] == 39
    assert driver.runner.counters.tokens_computed == 38
    assert driver.runner.counters.tokens_sampled == 2


def masks(*allowed: set[int]) -> bytes:
    """A bit a token, of a vocabulary of 320."""
    return b"".join(sum(1 << token for token in tokens).to_bytes(40, "little") for tokens in allowed)


def test_masked_rows_draw_what_their_masks_allow_and_the_others_what_they_always_do(make_runner: Make) -> None:
    prompts = {slot: PROMPT[slot : slot + 9] for slot in range(4)}
    sampling = {"temperature": 2.0, "repetition_penalty": 1.3, "top_p": 0.9}

    def drawn(**masked: bytes) -> list[list[int]]:
        driver = Driver(make_runner())
        first = rows(dict.fromkeys(prompts, 9), [1, 0, 1, 1])
        first.num_tokens = int32(9, 4, 9, 9)
        pages = growth({slot: driver.take(2) for slot in prompts})
        out = [driver.send(new_slots=new_slots(prompts, sampling=sampling), growth=pages, rows=first)]
        second = rows(dict.fromkeys(prompts, 1), [1, 0, 1, 1])
        for name, value in masked.items():
            setattr(second, name, value)
        out.append(driver.send(rows=second))
        out.append(driver.send(rows=rows({0: 1, 2: 1, 3: 1})))
        return out

    free = drawn()
    some = {7, 8, 300, 319}
    both = drawn(masked_row=uint16(0, 3), mask=masks({5}, some))
    assert both[0] == free[0]
    assert both[1][:2] == [5, free[1][1]]
    assert both[1][2] in some
    assert both[2][1] == free[2][1], "masks do not outlast their step"
    short = drawn(masked_row=uint16(2), mask=masks({5})[:4])
    assert short[1] == [free[1][0], 5, free[1][2]], "what a mask does not reach is forbidden"


def test_masks_that_follow_their_plan_do_what_those_do_that_came_with_it(make_runner: Make) -> None:
    prompts = {slot: PROMPT[slot : slot + 9] for slot in range(3)}
    scores: dict[str, Any] = {"score_slot": uint16(0, 2), "score_position": int32(10, 10), "num_best": 2}

    def drawn(more: dict[str, Any], *, are_late: bool) -> list[bytes]:
        driver = Driver(make_runner())
        pages = growth({slot: driver.take(2) for slot in prompts})
        start = new_slots(prompts, sampling={"temperature": 2.0})
        driver.send(new_slots=start, growth=pages, rows=rows(dict.fromkeys(prompts, 9)))
        some = masks({5}, {7, 8, 300, 319})
        second = wire.Rows(slot=uint16(0, 1, 2), masked_row=uint16(0, 2), mask=b"" if are_late else some, **more)
        result = driver.runner.execute(wire.StepPlan(step=2, rows=second), lambda: some)
        third = driver.runner.execute(wire.StepPlan(step=3, rows=wire.Rows(slot=uint16(0, 1, 2))))
        return [result.token, result.logprobs, third.token]

    for more in ({}, scores):
        assert drawn(more, are_late=True) == drawn(more, are_late=False)


def test_where_nobody_waits_for_samples_any_more_they_may_be_any(make_runner: Make) -> None:
    def drawn(**masked: Any) -> list[int]:
        driver = Driver(make_runner())
        driver.send(new_slots=new_slots({0: PROMPT}), growth=growth({0: driver.take(3)}), rows=rows({0: 37}))
        plan = wire.StepPlan(step=2, rows=wire.Rows(slot=uint16(0), **masked))
        return tokens_of(driver.runner.execute(plan, lambda: b""))

    assert drawn(masked_row=uint16(0)) == drawn()


@pytest.mark.parametrize("data", [bytes(5), bytes(44)])
def test_masks_that_follow_and_cannot_be_read_fail_the_step(make_runner: Make, data: bytes) -> None:
    driver = Driver(make_runner())
    driver.send(new_slots=new_slots({0: PROMPT}), growth=growth({0: driver.take(3)}), rows=rows({0: 37}))
    plan = wire.StepPlan(step=2, rows=wire.Rows(slot=uint16(0), masked_row=uint16(0)))
    with pytest.raises(PlanRefused, match="are no 1 masks of at most 320 tokens") as refused:
        driver.runner.execute(plan, lambda: data)
    assert refused.value.reason is Reason.FAILED
    assert not driver.runner.slots.counts.length.any()


def test_a_worker_that_takes_no_late_masks_refuses_a_plan_without_them(make_runner: Make) -> None:
    driver = Driver(make_runner())
    driver.send(new_slots=new_slots({0: PROMPT}), growth=growth({0: driver.take(3)}), rows=rows({0: 37}))
    with pytest.raises(PlanRefused, match="which this worker does not take") as refused:
        driver.send(rows=wire.Rows(slot=uint16(0), masked_row=uint16(0)))
    assert refused.value.reason is Reason.INVALID


def test_forks_draw_from_the_mask_of_the_row_that_they_fork_from(make_runner: Make) -> None:
    driver = Driver(make_runner())
    first = wire.Rows(slot=uint16(0), num_tokens=int32(37), num_samples=uint16(3), sample_slot=uint16(0, 1, 2))
    first.masked_row, first.mask = uint16(0), masks({5, 6, 7})
    forks = wire.Forks(source=uint16(0, 0), target=uint16(1, 2), branch=uint16(1, 2), seed=bytes(16))
    pages = growth({0: driver.take(3)})
    out = driver.send(
        new_slots=new_slots({0: PROMPT}, sampling={"temperature": 5.0}), growth=pages, forks=forks, rows=first
    )
    assert len(out) == 3
    assert {*out} <= {5, 6, 7}


def test_rows_of_many_slots_answer_as_each_would_alone(make_runner: Make) -> None:
    prompts = {slot: PROMPT[slot : slot + 5 + 4 * slot] for slot in range(6)}
    truth = [Driver(make_runner(invariant=True)).generate(prompt, 4) for prompt in prompts.values()]
    driver = Driver(make_runner(invariant=True))
    pages = {slot: driver.take(3) for slot in prompts}
    out = [
        driver.send(
            new_slots=new_slots(prompts), growth=growth(pages), rows=rows({s: len(p) for s, p in prompts.items()})
        )
    ]
    order = [4, 0, 5, 2, 1, 3]
    for _ in range(3):
        drawn = driver.send(rows=wire.Rows(slot=uint16(*order)))
        out.append([drawn[order.index(slot)] for slot in prompts])
    assert [list(answer) for answer in zip(*out, strict=True)] == truth


@pytest.mark.parametrize("swap", [False, True])
def test_a_sequence_interrupted_at_any_token_goes_on_as_if_nothing_had_happened(make_runner: Make, swap: bool) -> None:
    sampling = {"temperature": 0.9, "top_p": 0.95, "seed": 77}
    settings = {"invariant": True, "host_pages": 8}
    truth = Driver(make_runner(**settings)).generate(PROMPT, 12, sampling=sampling)
    runner = make_runner(**settings)
    for cut in range(1, 12):
        runner.reset()
        driver = Driver(runner)
        driver.send(new_slots=new_slots({0: PROMPT}, sampling=sampling), growth=growth({0: [1, 2, 3, 4]}))
        out = driver.send(rows=rows({0: 37}))
        while len(out) < cut:
            out += driver.send(rows=wire.Rows(slot=uint16(0)))
        known = PROMPT + out
        again = new_slots({7: known}, num_prompt=37, computed=len(known) - 1 if swap else 0, sampling=sampling)
        pages = {7: [11, 9, 10, 12]}
        if swap:
            driver.send(freed_slot=uint16(0), swap_out=moves({1: 3, 2: 8, 3: 1, 4: 2}))
            poison(runner.cache.pool)
            back = moves({3: 11, 8: 9, 1: 10, 2: 12})
            out += driver.send(swap_in=back, new_slots=again, growth=growth(pages), rows=wire.Rows(slot=uint16(7)))
        else:
            driver.send(freed_slot=uint16(0))
            out += driver.send(new_slots=again, growth=growth(pages), rows=rows({7: len(known)}))
        while len(out) < 12:
            out += driver.send(rows=wire.Rows(slot=uint16(7)))
        assert out == truth


def test_a_swap_moves_exactly_its_pages_and_their_bytes(make_runner: Make) -> None:
    driver = Driver(make_runner(pages=6, host_pages=4))
    cache = driver.runner.cache
    after, host = memory(cache.pool), memory(cache.host)
    after[:] = np.random.default_rng(0).integers(0, 256, after.shape, np.uint8)
    before, host[:] = after.copy(), 0
    driver.send(swap_out=moves({2: 4, 5: 1}))
    assert np.array_equal(host[[4, 1]], before[[2, 5]])
    assert not host[[0, 2, 3]].any()
    driver.send(swap_in=moves({4: 6, 1: 3}))
    assert np.array_equal(after[[6, 3]], before[[2, 5]])
    assert np.array_equal(after[[0, 1, 2, 4, 5]], before[[0, 1, 2, 4, 5]])
    assert [result.swapped_bytes for result in driver.results] == [2 * cache.geometry.page_bytes] * 2
    assert cache.swapped_bytes == 4 * cache.geometry.page_bytes


def test_moves_are_observed_in_the_order_of_the_plan(make_runner: Make) -> None:
    """Swap out, swap in, copy, zero: page 1 leaves, is overwritten, copied, and zeroed at last."""
    driver = Driver(make_runner(pages=4, host_pages=2))
    cache = driver.runner.cache
    pool, host = memory(cache.pool), memory(cache.host)
    pool[1], host[2] = 1, 2
    driver.send(swap_out=moves({1: 1}), swap_in=moves({2: 1}), copy=moves({1: 3}), zero=int32(1))
    assert (host[1] == 1).all()
    assert (pool[3] == 2).all()
    assert not pool[1].any()
    assert cache.pages_copied == 1


def test_a_plan_without_rows_is_answered_without_tokens(make_runner: Make) -> None:
    driver = Driver(make_runner())
    assert driver.send() == []
    assert (driver.results[0].step, driver.runner.last_step) == (1, 1)


def test_branches_are_drawn_from_one_row_and_go_their_own_ways(make_runner: Make) -> None:
    sampling = {"temperature": 1.0, "seed": 9}
    truth = []
    for branch in range(3):
        alone = Driver(make_runner(invariant=True))
        truth.append(alone.generate(PROMPT[:32], 5, sampling={**sampling, "branch": branch}))

    driver = Driver(make_runner(invariant=True))
    forks = wire.Forks(
        source=uint16(0, 0), target=uint16(1, 2), branch=uint16(1, 2), seed=np.array([9, 9], "<u8").tobytes()
    )
    out = [
        driver.send(
            new_slots=new_slots({0: PROMPT[:32]}, sampling=sampling),
            growth=growth({0: [1, 2]}),
            forks=forks,
            rows=wire.Rows(slot=uint16(0), num_tokens=int32(32), num_samples=uint16(3), sample_slot=uint16(0, 1, 2)),
        )
    ]
    assert driver.runner.step.num_head_rows == 1
    own = growth({0: [3], 1: [4], 2: [5]})
    out.append(driver.send(growth=own, rows=wire.Rows(slot=uint16(0, 1, 2))))
    while len(out) < 5:
        out.append(driver.send(rows=wire.Rows(slot=uint16(0, 1, 2))))
    assert [list(answer) for answer in zip(*out, strict=True)] == truth
    assert len({tuple(answer) for answer in truth}) == 3


@pytest.mark.parametrize("page_size", [4, 16])
def test_branches_copy_a_shared_page_before_they_write_to_it(make_runner: Make, page_size: int) -> None:
    """One of three branches keeps the half full page they share; the others take it off their tables for a copy."""
    sampling = {"temperature": 1.0, "seed": 9}
    truth = []
    for branch in range(3):
        alone = Driver(make_runner(invariant=True, page_size=page_size))
        truth.append(alone.generate(PROMPT, 3, sampling={**sampling, "branch": branch}))
    assert len({tuple(answer) for answer in truth}) == 3

    driver = Driver(make_runner(invariant=True, page_size=page_size))
    poison(driver.runner.cache.pool)  # what lies there may be what an earlier runner left, the same as now
    last = len(PROMPT) // page_size + 1
    forks = wire.Forks(
        source=uint16(0, 0), target=uint16(1, 2), branch=uint16(1, 2), seed=np.array([9, 9], "<u8").tobytes()
    )
    out = [
        driver.send(
            new_slots=new_slots({0: PROMPT}, sampling=sampling),
            growth=growth({0: range(1, last + 1)}),
            forks=forks,
            rows=wire.Rows(slot=uint16(0), num_tokens=int32(37), num_samples=uint16(3), sample_slot=uint16(0, 1, 2)),
        )
    ]
    pool = memory(driver.runner.cache.pool)
    before = pool.copy()
    out.append(
        driver.send(
            copy=wire.PageMoves(source=int32(last, last), target=int32(20, 22)),
            growth=growth({0: [20], 2: [22]}, [1, 1]),
            rows=wire.Rows(slot=uint16(0, 1, 2)),
        )
    )
    assert np.array_equal(pool[1:last], before[1:last])
    changed = pool[[20, last, 22]] != before[last]
    assert changed.any(-1).all()
    assert changed.any(0).sum() <= driver.runner.cache.geometry.page_bytes // page_size, "one token's"
    out.append(driver.send(rows=wire.Rows(slot=uint16(0, 1, 2))))
    assert [list(answer) for answer in zip(*out, strict=True)] == truth


def test_the_last_pages_of_a_table_are_replaced_and_dropped(make_runner: Make) -> None:
    """Without rows: what the tables say after growth that only adds, that replaces, and that only drops."""
    driver = Driver(make_runner(page_size=4))
    driver.send(new_slots=new_slots({0: PROMPT[:5], 3: PROMPT[:5]}), growth=growth({0: [1, 2, 3], 3: [4, 5]}))
    driver.send(growth=growth({3: [9, 8, 7], 0: []}, [1, 2]))
    slots = driver.runner.slots
    assert [slots.table[slot, : slots.counts.num_pages[slot]].tolist() for slot in (0, 3)] == [[1], [4, 9, 8, 7]]
    driver.send(growth=growth({0: [6]}))
    assert slots.table[0, : slots.counts.num_pages[0]].tolist() == [1, 6]


def test_only_rows_that_sample_go_through_the_head(make_runner: Make) -> None:
    driver = Driver(make_runner())
    driver.send(
        new_slots=new_slots({0: PROMPT, 1: PROMPT}),
        growth=growth({0: [1, 2, 3], 1: [4, 5, 6]}),
        rows=rows({0: 20, 1: 37}, [0, 1]),
    )
    assert driver.runner.step.num_head_rows == 1


def test_a_step_that_fails_is_answered_and_leaves_no_slot(make_runner: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(make_runner())
    driver.send(new_slots=new_slots({0: PROMPT}), growth=growth({0: [1, 2, 3]}), rows=rows({0: 37}))

    def fail(*_: object) -> None:
        raise TypeError("no such thing")

    with monkeypatch.context() as patch:
        patch.setattr(driver.runner.decoder, "replay", fail)
        with pytest.raises(PlanRefused, match="step 2 failed: TypeError: no such thing") as refusal:
            driver.send(rows=wire.Rows(slot=uint16(0)))
    assert refusal.value.reason is Reason.FAILED
    assert not driver.runner.slots.counts.is_active.any()
    driver.send(full=True, new_slots=new_slots({0: PROMPT}), growth=growth({0: [1, 2, 3]}), rows=rows({0: 37}))


def out_of_device_memory() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(
    ("where", "allocate"),
    [
        ("read_plan", lambda: bytearray(1 << 62)),
        ("foresee", lambda: np.empty(1 << 58)),
        ("apply", lambda: mmap.mmap(-1, 1 << 60)),
        ("fill", lambda: torch.empty(1 << 58)),
        ("advance", out_of_device_memory),
    ],
)
def test_EC06_an_allocation_that_fails_anywhere_in_a_step_is_said_to_be_one(
    where: str, allocate: Callable[[], object], make_runner: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(make_runner())
    first = {"new_slots": new_slots({0: PROMPT}), "growth": growth({0: [1, 2, 3]}), "rows": rows({0: 37})}
    with monkeypatch.context() as patch:
        patch.setattr(f"octavo_worker.runner.{where}", lambda *_: allocate())
        with pytest.raises(PlanRefused) as refusal:
            driver.send(**first)
    assert refusal.value.reason is Reason.OUT_OF_MEMORY
    assert not driver.runner.slots.counts.is_active.any()
    driver.send(full=True, **first)


def test_pages_are_sized_from_memory_when_no_number_is_given(make_runner: Make) -> None:
    page_bytes = make_runner().cache.geometry.page_bytes
    runner = make_runner(pages=None, kv_cache_memory=page_bytes * 10 + 5, swap_space=page_bytes * 3)
    assert (runner.cache.device_pages, runner.cache.host_pages) == (9, 3)
    assert runner.cache.pool.nbytes == page_bytes * 10

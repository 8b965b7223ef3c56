"""Mutated plans against a worker's Runner: refused ones change nothing, executed ones touch the pages that they name."""

import random
import tempfile
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError
from octavo.v1 import step_pb2 as wire
from octavo_worker.batch import Plan, read_plan
from octavo_worker.config import WorkerConfig
from octavo_worker.errors import PlanRefused, Reason
from octavo_worker.runner import Runner, build_runner

from tests.doubles.tiny_model import make_tiny_model
from tests.fuzz.findings import Findings
from tests.fuzz.mutate import mutate_message, mutated
from tests.pools import memory
from tests.worker.plans import Driver, growth, int32, moves, new_slots, rows, tokens_of, uint16

PAGES, HOST_PAGES, SLOTS, BUDGET, CONTEXT, VOCABULARY = 20, 4, 8, 32, 64, 320
NULL_PAGE, NO_NUMBER = 0, -1
"""The latter is sampled where logits are no numbers, as of pages that hold anything."""


def samples() -> list[wire.StepPlan]:
    """Good second plans: slot 0 has 21 tokens in pages 1 and 2, all but the last computed; slot 1 has 10 in page 3."""
    decode = wire.StepPlan(step=2, rows=wire.Rows(slot=uint16(0)))
    mixed = wire.StepPlan(
        step=2,
        new_slots=new_slots({2: [5, 6, 7], 5: range(30)}, sampling={"temperature": 0.7, "top_k": 5}),
        growth=growth({2: [4], 5: [5, 6]}),
        rows=rows({0: 1, 1: 10, 2: 3, 5: 18}, [1, 1, 1, 0]),
    )
    swaps = wire.StepPlan(step=2, freed_slot=uint16(0), swap_out=moves({1: 1, 2: 2}), copy=moves({3: 7}), zero=int32(9))
    back = wire.StepPlan(step=2, swap_in=moves({1: 8, 2: 9}), growth=growth({1: [8]}, [0]), rows=rows({1: 4}, [0]))
    fork = wire.StepPlan(
        step=2,
        forks=wire.Forks(source=uint16(1, 1), target=uint16(3, 4), branch=uint16(1, 2), seed=bytes(range(16))),
        rows=wire.Rows(slot=uint16(1), num_tokens=int32(10), num_samples=uint16(3), sample_slot=uint16(1, 3, 4)),
    )
    whole = wire.StepPlan(
        step=9, full=True, new_slots=new_slots({0: range(9)}), growth=growth({0: [7]}), rows=rows({0: 9})
    )
    dropped = wire.StepPlan(step=2, growth=growth({1: [11]}, [1]), copy=moves({3: 11}), rows=rows({1: 10}))
    return [decode, mixed, swaps, back, fork, whole, dropped]


def state(runner: Runner) -> list[bytes]:
    """All that a plan can change."""
    slots, counts = runner.slots, runner.slots.counts
    arrays = [
        *(counts.is_active, counts.length, counts.computed, counts.num_pages, slots.table, slots.history),
        *(slots.columns[name] for name in sorted(slots.columns)),
        *(memory(runner.cache.pool), memory(runner.cache.host)),
    ]
    return [array.tobytes() for array in arrays] + [runner.last_step.to_bytes(8, "little")]


def written(plan: Plan, runner: Runner) -> tuple[set[int], set[int]]:
    """Device and host pages that an executed plan may have written."""
    device = {NULL_PAGE, *plan.swap_in.target.tolist(), *plan.copy.target.tolist(), *plan.zero.tolist()}
    for slot in plan.rows.slot.tolist():
        device.update(runner.slots.table[slot, : runner.slots.counts.num_pages[slot]].tolist())
    return device, {NULL_PAGE, *plan.swap_out.target.tolist()}


def changed_pages(before: np.ndarray, after: np.ndarray) -> set[int]:
    return set(np.flatnonzero((before != after).any(axis=1)).tolist())


class PlanFuzzer:
    """One runner, brought back to the same state before each case that finds it changed."""

    def __init__(self, runner: Runner) -> None:
        self.findings = Findings()
        self.runner = runner
        self.samples = samples()
        self.encoded = [message.SerializeToString() for message in self.samples]
        noise = np.random.default_rng(0)
        for pool in (memory(runner.cache.pool), memory(runner.cache.host)):
            pool[:] = noise.integers(0, 60, pool.shape, np.uint8)  # small numbers in every dtype
        self.begin()

    def begin(self) -> None:
        self.runner.reset()
        first = {"new_slots": new_slots({0: range(20), 1: range(10)}), "growth": growth({0: [1, 2], 1: [3]})}
        Driver(self.runner).send(**first, rows=rows({0: 20}))
        self.before = state(self.runner)
        self.pages = [memory(pool).copy() for pool in (self.runner.cache.pool, self.runner.cache.host)]

    def run(self, case: int) -> None:
        plan = self.plan(random.Random(case))
        self.findings.cases += 1
        if plan is None:
            self.findings.refused += 1
            return
        try:
            result = self.runner.execute(plan)
        except PlanRefused as refusal:
            self.refused(case, refusal)
        except Exception as error:
            self.findings.crash(case, error)
            self.begin()
        else:
            self.accepted(case, plan, result)

    def plan(self, draw: random.Random) -> wire.StepPlan | None:
        number, plan = draw.randrange(len(self.samples)), wire.StepPlan()
        if draw.randrange(3) == 0:
            try:
                plan.MergeFromString(mutated(draw, self.encoded[number], self.encoded))
            except DecodeError:
                return None
        else:
            plan.CopyFrom(self.samples[number])
            for _ in range(draw.choice((1, 1, 1, 2, 3))):
                mutate_message(draw, plan)
        if draw.randrange(8):
            plan.step = self.runner.last_step + 1
        return plan

    def refused(self, case: int, refusal: PlanRefused) -> None:
        self.findings.refused += 1
        has_failed = refusal.reason in (Reason.FAILED, Reason.OUT_OF_MEMORY)
        if has_failed:
            self.findings.crash(case, refusal)
        if has_failed or state(self.runner) != self.before:
            if not has_failed:
                self.findings.state_change(case, f"refused ({refusal.message}), and the state is another")
            self.begin()

    def accepted(self, case: int, message: wire.StepPlan, result: wire.StepResult) -> None:
        plan, tokens = read_plan(message), tokens_of(result)
        self.findings.accepted += 1
        allowed = written(plan, self.runner)
        pools = (self.runner.cache.pool, self.runner.cache.host)
        for name, before, pool, may in zip(("device", "host"), self.pages, pools, allowed, strict=True):
            if strange := changed_pages(before, memory(pool)) - may:
                self.findings.state_change(case, f"{name} pages {sorted(strange)} are changed and the plan names {may}")
        if len(tokens) != plan.rows.num_samples.sum() or not all(NO_NUMBER <= token < VOCABULARY for token in tokens):
            self.findings.state_change(case, f"sampled {tokens}")
        self.begin()


def make_runner(folder: Path, kind: type[Runner] = Runner) -> Runner:
    """With the kernels that this machine would take by itself."""
    return build_runner(
        WorkerConfig(
            model=make_tiny_model(folder / "tiny", layers=1),
            dtype="float32",
            pages=PAGES,
            host_pages=HOST_PAGES,
            max_slots=SLOTS,
            max_step_tokens=BUDGET,
            max_context=CONTEXT,
            threads=1,
        ),
        make=kind,
    )


def run(first: int, count: int, kind: type[Runner] = Runner) -> Findings:
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = PlanFuzzer(make_runner(Path(folder), kind))
        for case in range(first, first + count):
            fuzzer.run(case)
    return fuzzer.findings

"""A worker that kills itself: `python -m tests.faults.worker KIND PHASE AFTER LOG FLAGS…`.

KIND is `real`, the production worker, or `paper`, the production link around a paper worker, without torch or tensors. At
plan AFTER it reaches PHASE, writes the moment and the phase to LOG and sends itself SIGKILL; `never` does not. With one of
`versions.VERSIONS` in place of a phase it lives, and speaks that; with one of `ills.ILLS` it lives, and is ill.
"""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.v1 import step_pb2 as wire
from octavo_kernels.ops import Geometry
from octavo_worker.flags import read_flags
from octavo_worker.link import Link

from tests.doubles.paper_worker import PaperWorker
from tests.faults.ills import ILLS, Ledger, make_ill
from tests.faults.versions import VERSIONS, speak

PHASES = ("before receive", "mid-step", "before send", "after send")


class Doomed(Link):
    """Dies at its time."""

    def __init__(self, config: Any, runner: Any, phase: str, after: int, log: str) -> None:
        super().__init__(config, runner)
        self.phase, self.left, self.log = phase, after, log
        submit = runner.submit

        def doomed_submit(plan: wire.StepPlan, masks: Any) -> Any:
            pending = submit(plan, masks)
            self.reach("mid-step")
            return pending

        runner.submit = doomed_submit

    def reach(self, phase: str) -> None:
        """Count this phase, and die in it when it is time."""
        if phase != self.phase:
            return
        self.left -= 1
        if self.left <= 0:
            with open(self.log, "a", encoding="utf-8") as file:
                file.write(f"{time.monotonic()} {self.config.worker_id} {phase}\n")
            os.kill(os.getpid(), signal.SIGKILL)

    def receive(self, seconds: float) -> wire.SchedulerMessage | None:
        if self.has_joined and self.runner.last_step:
            self.reach("before receive")
        return super().receive(seconds)

    def send_result(self) -> None:
        self.reach("before send")
        super().send_result()
        self.reach("after send")


@dataclass(slots=True)
class There:
    """A result that is there."""

    result: wire.StepResult

    def is_there(self) -> bool:
        return True


@dataclass(slots=True)
class PaperPending:
    step: int
    tokens: There


class PaperRunner:
    """What the link needs of a runner, on paper."""

    def __init__(self, worker_id: str) -> None:
        self.worker_id = worker_id
        self.paper = PaperWorker(page_size=4, pages=96, host_pages=32, max_slots=24, max_step_tokens=128)
        self.cache = type("Cache", (), {"device_pages": 96, "geometry": Geometry(4, 1, 1, 16, "float32")})
        self.ops = type("Ops", (), {"memory": None})

    @property
    def last_step(self) -> int:
        return self.paper.step

    def reset(self) -> None:
        self.paper.reset()

    def hello(self) -> wire.Hello:
        return self.paper.hello(self.worker_id)

    def submit(self, plan: wire.StepPlan, masks: object) -> PaperPending:
        """`masks`: of plans that are sent without, which this one never is."""
        time.sleep(0.002)
        return PaperPending(plan.step, There(self.paper.execute(plan)))

    def result(self, pending: PaperPending) -> wire.StepResult:
        return pending.tokens.result


def main() -> None:
    kind, phase, after, log, *flags = sys.argv[1:]
    config = read_flags(flags)
    runner: Any
    if kind == "paper":
        runner = PaperRunner(config.worker_id)
    else:
        from octavo_worker.runner import build_runner
        from octavo_worker.warming import warm_up

        runner = build_runner(config)
        warm_up(runner)
        if phase in ILLS:
            make_ill(runner, phase, int(after), Ledger(Path(log)))
    link = Doomed(config, runner, phase, int(after), log)
    if phase in VERSIONS:
        speak(link, phase)
    signal.signal(signal.SIGTERM, lambda *_: link.stop())
    link.run()


if __name__ == "__main__":
    main()

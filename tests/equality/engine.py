"""The real core and the real worker's runner on a table top, in one process and without sockets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from octavo.v1 import step_pb2
from octavo_scheduler.core import Settings
from octavo_scheduler.core.settings import PreemptMode
from octavo_worker.config import WorkerConfig
from octavo_worker.runner import Runner, build_runner

from tests.doubles.table_top import TableTop

POSITIONS = range(2, 35)
"""Answer lengths at which `preempted_at` can preempt."""

PAGE = 16
HEAD = 3 * PAGE


class RunnerWorker:
    """A runner where a table top expects a worker, in float32 on the reference unless the configuration says otherwise.

    `pages`: how many of its pages it admits to have; None: all.
    """

    def __init__(self, model: Path, **config: Any) -> None:
        settings = {"dtype": "float32", "kernels": "reference", **config}
        self.runner: Runner = build_runner(WorkerConfig(model=model, **settings))
        self.pages: int | None = None

    def reset(self) -> None:
        self.runner.reset()

    def hello(self, worker_id: str) -> step_pb2.Hello:
        hello = self.runner.hello()
        hello.worker_id = worker_id
        hello.device_pages = self.pages or hello.device_pages
        return hello

    def execute(self, plan: step_pb2.StepPlan) -> step_pb2.StepResult:
        return self.runner.execute(plan)

    @property
    def slots(self) -> list[int]:
        """Slots in use."""
        return np.flatnonzero(self.runner.slots.counts.is_active).tolist()


def generate(
    worker: RunnerWorker,
    prompts: Sequence[Sequence[int]],
    num_tokens: int,
    settings: Settings | None = None,
    temperature: float = 0.0,
) -> list[list[int]]:
    """Answers to all prompts, asked at once."""
    worker.pages = None
    table = TableTop(settings, w=worker)
    for number, prompt in enumerate(prompts):
        table.submit(str(number), list(prompt), num_tokens, seed=number, temperature=temperature)
    table.run()
    table.assert_empty()
    return [table.tokens[str(number)] for number in range(len(prompts))]


def preempt_at(
    worker: RunnerWorker, mode: PreemptMode, position: int, prompts: Sequence[Sequence[int]], temperature: float = 0.0
) -> TableTop:
    """Two sequences, pages of 16: the second is preempted once, when `position` tokens of its answer are known.

    At that moment the first one crosses into a new page and none is free. Of the first prompt (48 tokens or more) as many
    are taken as that needs; of the second 16. Answers: position + 3 and 35 tokens.
    """
    crossing = position - 1
    worker.pages = HEAD // PAGE + -(-(PAGE + crossing) // PAGE)
    table = TableTop(Settings(preempt=mode), w=worker)
    table.submit("0", list(prompts[0][: HEAD - crossing]), crossing + 4, seed=0, temperature=temperature)
    table.submit("1", list(prompts[1][:PAGE]), 35, seed=1, temperature=temperature)
    table.run()
    table.assert_empty()
    return table

"""Tensor-parallel groups as real processes under the real scheduler: what they answer, and what the loss of a rank costs."""

import asyncio
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from octavo_client import AsyncClient, SamplingParams
from octavo_client.results import Delta

from tests.doubles.tiny_model import make_tiny_model
from tests.equality.reference import NEAR_TIE, Answer, Reference, compare
from tests.patience import PATIENCE
from tests.processes import launched, module, running, serving

PROMPTS = [[(number * 31 + 7 * n) % 256 + 3 for n in range(5 + number % 40)] for number in range(20)]
NUM_TOKENS = 40
GREEDY = SamplingParams(max_tokens=NUM_TOKENS, temperature=0, ignore_eos=True)
POOL = ("--dtype=float32", "--page-size=16", "--pages=40", "--host-pages=40", "--threads=1")
GROUP = "--tensor-parallel-size=2"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "m", heads=8, kv_heads=4)


@pytest.fixture(scope="module")
def truth(model: Path) -> list[Answer]:
    reference = Reference(model)
    return [reference.answer(prompt, NUM_TOKENS) for prompt in PROMPTS]


async def answers(address: str) -> tuple[list[list[int]], int]:
    """To all prompts, asked at once; and how many sequences were swapped out meanwhile."""
    async with AsyncClient(address) as client:
        outputs = await asyncio.gather(*(client.generate(prompt, GREEDY) for prompt in PROMPTS))
        return [list(each.outputs[0].token_ids) for each in outputs], (await client.status()).counters.swaps


def answers_of(model: Path, *worker: str) -> tuple[list[list[int]], int]:
    with serving(model, scheduler=["--preempt=swap"], worker=[*POOL, *worker]) as address:
        return asyncio.run(answers(address))


def test_two_ranks_answer_20_prompts_as_one_worker_does_but_for_counted_ties(
    model: Path, truth: list[Answer], figure: Callable[[str], None]
) -> None:
    """In a pool so small that sequences are swapped, on both ranks, and come back."""
    alone, _ = answers_of(model)
    group, num_swaps = answers_of(model, GROUP)
    assert num_swaps > 0
    assert compare(truth, alone) <= 1
    num_ties = compare([Answer(ids, each.gaps) for ids, each in zip(alone, truth, strict=True)], group)
    figure(f"tensor parallel 2: {num_ties} of {len(group)} answers left one worker's at a tie under {NEAR_TIE}")


def others(process: "subprocess.Popen[str]") -> list[int]:
    """Process ids of the ranks that a worker started."""
    return [int(each) for each in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@contextmanager
def scheduler(model: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Without workers; yields where clients and where workers dial."""
    steps = f"ipc://{folder}/steps"
    command = module("octavo_scheduler", f"--model={model}", "--listen=127.0.0.1:0", f"--workers={steps}")
    with running(command, ready=r"serving .* on ([\d.]+:\d+)") as match:
        yield match[1], steps


def worker(model: Path, steps: str, *flags: str) -> list[str]:
    return module("octavo_worker", f"--model={model}", f"--scheduler={steps}", *POOL, *flags)


async def lose_a_rank(address: str, victim: int) -> list[list[int]]:
    """Kill a process while each prompt is answered three times on two workers, and return the answers.

    More than either worker has room for: so both get some, however their speeds were measured as they came.
    """
    found: list[list[int]] = [[] for _ in 3 * PROMPTS]

    async def stream(client: AsyncClient, number: int) -> None:
        async for event in client.stream(PROMPTS[number % len(PROMPTS)], GREEDY):
            if isinstance(event, Delta):
                found[number] += event.token_ids

    async with AsyncClient(address) as client, asyncio.TaskGroup() as tasks:
        streams = [tasks.create_task(stream(client, number)) for number in range(len(found))]
        running: set[str] = set()
        while running != {"group", "other"}:
            assert not all(each.done() for each in streams), f"only {running} had any"
            running = {each.worker_id for each in (await client.status()).workers if each.running}
        os.kill(victim, signal.SIGKILL)
    return found


@pytest.mark.parametrize(("rank", "other"), [(0, []), (1, [GROUP])])
def test_the_loss_of_a_rank_ends_its_group_and_no_stream_where_another_worker_or_group_is_there(
    model: Path, truth: list[Answer], rank: int, other: list[str], tmp_path: Path
) -> None:
    with scheduler(model, tmp_path) as (address, steps), ExitStack() as stack:
        stack.enter_context(running(worker(model, steps, "--worker-id=other", *other), ready="joined"))
        command = worker(model, steps, "--worker-id=group", GROUP)
        group = stack.enter_context(launched(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        assert group.stdout is not None
        assert "joined" in group.stdout.readline()
        ranks = [group.pid, *others(group)]
        found = asyncio.run(lose_a_rank(address, ranks[rank]))
        _, err = group.communicate(timeout=PATIENCE)
        assert compare(3 * truth, found) <= 3
        if rank == 0:
            assert group.returncode == -signal.SIGKILL
        else:
            assert group.returncode == 1
            assert "rank 1 of this group was killed by signal 9; the group ends with it" in err
        wait_for_the_end_of(ranks[1])


def wait_for_the_end_of(pid: int) -> None:
    """Of a process that is nobody's child any more."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        has_ended, _, _ = select.select([descriptor], [], [], PATIENCE)
        os.close(descriptor)
        assert has_ended, "rank 1 outlives its group"

"""Prompts of book length, and one that is much too long, sent to a scheduler whose health is asked for all the while.

`python -m tests.faults.long_prompts MODEL COUNT` writes them, says so, and sends them to the address that it then reads. It
is a process of its own, so that what it takes does not hold up whoever asks for health.
"""

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from octavo.v1 import inference_pb2 as pb
from octavo.v1 import inference_pb2_grpc
from octavo_client.local import LocalServer, Programs
from tokenizers import Tokenizer

from tests.patience import PATIENCE
from tests.processes import module

TOKENS, ANSWER_TOKENS = 50_000, 4
CONTEXT = 65_536
HUGE_BYTES = 27_000_000
SECONDS_BETWEEN_PROBES = 0.005
PATIENCE_SECONDS = 600.0
SCHEDULER_FLAGS = ("--max-queued-tokens=100000000", "--max-step-tokens=8192", f"--max-context={CONTEXT}")
WORKER_FLAGS = ("--step-ms=2", "--slots=16", "--pages=16384", f"--context={CONTEXT}")


def probe(model: Path, count: int) -> dict[str, Any]:
    """Sends them all at once. What became of them, and how long health took to be answered meanwhile, in milliseconds; and
    by an idle scheduler beside it, which shows how much of that is the machine's."""
    programs = Programs(worker=module("benchmarks.paced_worker"))
    asked, idle = (
        LocalServer(model, scheduler_flags=SCHEDULER_FLAGS, worker_flags=WORKER_FLAGS, programs=programs) for _ in "12"
    )
    with (
        running(module("tests.faults.long_prompts", str(model), str(count))) as sending,
        asked,
        idle,
        grpc.insecure_channel(asked.address) as busy_channel,
        grpc.insecure_channel(idle.address) as idle_channel,
    ):
        health = [Health(busy_channel), Health(idle_channel)]
        assert sending.stdin is not None
        assert sending.stdout is not None
        sending.stdin.write(f"{asked.address}\n")
        sending.stdin.flush()
        while sending.poll() is None:
            for each in health:
                each.ask()
            time.sleep(SECONDS_BETWEEN_PROBES)
        said = json.loads(sending.stdout.read())
    return {
        **said,
        "probes": len(health[0].seconds),
        "health_ms": health[0].figures(),
        "idle_health_ms": health[1].figures(),
    }


class Health:
    """Of one scheduler, asked time and again."""

    def __init__(self, channel: grpc.Channel) -> None:
        grpc.channel_ready_future(channel).result(PATIENCE_SECONDS)
        self.stub = health_pb2_grpc.HealthStub(channel)
        self.seconds: list[float] = []

    def ask(self) -> None:
        began = time.perf_counter()
        answer = self.stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
        self.seconds.append(time.perf_counter() - began)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING

    def figures(self) -> dict[str, float]:
        ms = sorted(1e3 * each for each in self.seconds)
        return {"p50": round(ms[len(ms) // 2], 1), "p99": round(ms[int(0.99 * len(ms))], 1), "max": round(ms[-1], 1)}


@contextmanager
def running(command: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    """From its first line on; killed where it has not ended by itself."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def prompts(tokenizer: Tokenizer, count: int) -> list[pb.Prompt]:
    """Every second one as text. All begin differently, so that nothing is found in a cache."""
    ids = tokenizer.encode("".join(random.Random(1).choices("abcdefghij ", k=2 * TOKENS))).ids[:TOKENS]
    text = tokenizer.decode(ids)
    return [
        pb.Prompt(token_ids=pb.TokenIds(ids=[number, *ids])) if number % 2 else pb.Prompt(text=f"{number} {text}")
        for number in range(count)
    ]


async def send(address: str, asked: Sequence[pb.Prompt]) -> dict[str, Any]:
    """All at once, and one of 27 MB. How each ends, and the tokens of the shortest and the longest that was read."""
    lengths: list[int] = []
    options = pb.GenerationOptions(stopping=pb.StoppingOptions(max_tokens=ANSWER_TOKENS, ignore_eos=True))

    async def one(stub: Any, prompt: pb.Prompt) -> str:
        call = stub.Generate(pb.GenerateRequest(prompt=prompt, options=options))
        if await call.code() is grpc.StatusCode.OK:
            lengths.append((await call).usage.prompt_tokens)
        return str((await call.code()).name)

    async with grpc.aio.insecure_channel(address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        huge = asyncio.create_task(one(stub, pb.Prompt(text="x" * HUGE_BYTES)))
        ends = Counter(await asyncio.gather(*(one(stub, prompt) for prompt in asked)))
        return {
            "long_prompts": len(asked),
            "ends": dict(ends),
            "prompt_tokens": [min(lengths, default=0), max(lengths, default=0)],
            "huge_bytes": HUGE_BYTES,
            "huge": await huge,
        }


if __name__ == "__main__":
    model_folder, number_of_prompts = sys.argv[1:]
    made = prompts(Tokenizer.from_file(f"{model_folder}/tokenizer.json"), int(number_of_prompts))
    print("the prompts are written", flush=True)
    print(json.dumps(asyncio.run(send(sys.stdin.readline().strip(), made))))

"""What the scheduling core costs per step, without and with the wire.

Steady decode of 256 sequences (and of 2,048, for the cost of one more row): plan and encode, apply, bytes of a plan, and
the memory blocks that one step allocates. Then the whole way over ipc, loop and link included, to a worker that computes
nothing.
Prints one line of JSON: medians and 99th percentiles in microseconds.
"""

import gc
import json
import statistics
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import zmq
from octavo.v1 import step_pb2
from octavo_scheduler.core import Core, Settings, events
from octavo_scheduler.core.events import Output
from octavo_scheduler.core.request import RequestSpec
from octavo_scheduler.link import RouterLink
from octavo_scheduler.loop import Loop
from octavo_scheduler.wire import Epoch, encode_plan

from benchmarks.paced_worker import num_samples

STEPS = 400
WARM_UP = 40
EPOCH = Epoch(1, 1)


def joined(name: str, num_sequences: int) -> events.Joined:
    return events.Joined(
        worker=name,
        page_size=16,
        page_bytes=1 << 20,
        device_pages=max(num_sequences * 60, 200),
        host_pages=0,
        max_slots=num_sequences,
        max_step_tokens=8192,
        max_context=8192,
        vocab_size=50_000,
    )


def steady(num_sequences: int, core: Core | None = None) -> Core:
    """A core (given, or a plain one) in which all sequences are decoding, at all places of a page."""
    core = core or Core(Settings(max_num_seqs=num_sequences, max_step_tokens=8192))
    core.apply(joined("w", num_sequences), 0.0)
    for number in range(num_sequences):
        prompt = tuple(range(number, number + 30 + number % 16))
        core.submit(RequestSpec(id=str(number), prompt=prompt, max_tokens=2000), 0.0)
    for _ in range(WARM_UP):
        step(core)
    return core


def step(core: Core) -> tuple[float, float, int]:
    """(seconds to plan and encode, seconds to apply, bytes of the plan)"""
    started = time.perf_counter()
    plan = core.plan("w", 0.0)
    assert plan is not None
    frame = encode_plan(EPOCH, plan)
    planned = time.perf_counter()
    done = events.StepDone("w", plan.step, (1,) * sum(plan.row_samples))
    ready = time.perf_counter()
    core.apply(done, 0.0)
    return planned - started, time.perf_counter() - ready, len(frame)


def percentiles(seconds: list[float]) -> tuple[float, float]:
    """Median and 99th percentile in microseconds."""
    ordered = sorted(seconds)
    return round(statistics.median(ordered) * 1e6, 1), round(ordered[len(ordered) * 99 // 100] * 1e6, 1)


def measure(num_sequences: int) -> tuple[tuple[float, float], tuple[float, float], float]:
    core = steady(num_sequences)
    gc.collect()
    gc.disable()
    rows = [step(core) for _ in range(STEPS)]
    gc.enable()
    plans, applies, sizes = zip(*rows, strict=True)
    return percentiles(list(plans)), percentiles(list(applies)), statistics.median(sizes)


def allocations(num_sequences: int) -> int:
    """Memory blocks that one step allocates and leaves behind or hands on, by median."""
    core = steady(num_sequences)
    counts = []
    for _ in range(20):
        tracemalloc.start()
        step(core)
        counts.append(sum(trace.count for trace in tracemalloc.take_snapshot().statistics("filename")))
        tracemalloc.stop()
    return int(statistics.median(counts))


def audit(num_sequences: int, num_pages: int) -> tuple[float, float]:
    """(microseconds of one look of the auditor at a full pool, its share of a core in percent)"""
    core = Core(Settings(max_num_seqs=num_sequences, max_step_tokens=8192))
    core.apply(replace(joined("w", num_sequences), device_pages=num_pages), 0.0)
    num_tokens = num_pages // num_sequences * 16 - 40
    for number in range(num_sequences):
        core.submit(RequestSpec(id=str(number), prompt=(number,) * num_tokens, max_tokens=40), 0.0)
    while core.waiting or core.workers["w"].running[-1].num_generated < 1:
        step(core)
    seconds: list[float] = []
    now = 0.0
    for _ in range(100):
        now = core.auditor.due
        started = time.perf_counter()
        core.apply(events.Tick(), now)
        seconds.append(time.perf_counter() - started)
    assert not core.auditor.findings, "a sound core breaks no law"
    return percentiles(seconds)[0], round(100 * statistics.median(seconds) / (core.auditor.due - now), 3)


def over_ipc(num_sequences: int) -> tuple[float, float]:
    """Microseconds from one result to the next, with one plan in flight: plan, encode, ipc, empty worker, ipc, apply."""
    with tempfile.TemporaryDirectory() as folder:
        link = RouterLink(f"ipc://{folder}/w")
        core = Core(Settings(max_num_seqs=num_sequences, max_step_tokens=8192, plans_in_flight=1))
        loop = Loop(core, link, time.monotonic, lambda outputs: None, lambda is_ready: None, boot_id=1)
        thread = threading.Thread(target=loop.run)
        thread.start()
        try:
            for number in range(num_sequences):
                loop.post(submission(number))
            times = empty_worker(link.address, num_sequences)
        finally:
            loop.stop()
            thread.join()
            link.close()
    return percentiles([b - a for a, b in zip(times[WARM_UP:], times[WARM_UP + 1 :], strict=False)])


def submission(number: int) -> Callable[[Core, float], list[Output]]:
    spec = RequestSpec(id=str(number), prompt=tuple(range(number, number + 30)), max_tokens=2000)
    return lambda core, now: core.submit(spec, now)


def empty_worker(address: str, num_sequences: int) -> list[float]:
    """Answers each plan at once with token 1 for every sample; when it did."""
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    socket.connect(address)
    pool = joined("w", num_sequences)
    hello = step_pb2.Hello(protocol_major=1, worker_id="w", weights_digest=b"w", kernels="empty")
    hello.geometry.page_size, hello.geometry.page_bytes = pool.page_size, pool.page_bytes
    hello.device_pages, hello.max_slots, hello.max_step_tokens = pool.device_pages, pool.max_slots, pool.max_step_tokens
    hello.max_context, hello.vocab_size = pool.max_context, pool.vocab_size
    socket.send(step_pb2.WorkerMessage(hello=hello).SerializeToString())
    times: list[float] = []
    while len(times) < STEPS + WARM_UP:
        message = step_pb2.SchedulerMessage.FromString(socket.recv())
        if message.WhichOneof("body") != "plan":
            continue
        token = b"\1\0\0\0" * num_samples(message.plan.rows)
        result = step_pb2.StepResult(step=message.plan.step, token=token)
        socket.send(step_pb2.WorkerMessage(epoch=message.epoch, result=result).SerializeToString())
        times.append(time.perf_counter())
    socket.close()
    context.term()
    return times


def main() -> int:
    plan, apply, size = measure(256)
    large_plan, large_apply, _ = measure(2048)
    loop = over_ipc(256)
    empty = over_ipc(1)
    audit_us, audit_percent = audit(256, 10_000)
    figures = {
        "plan_256_us": plan[0],
        "plan_256_p99_us": plan[1],
        "per_row_us": round((large_plan[0] - plan[0]) / (2048 - 256), 2),
        "apply_256_us": apply[0],
        "apply_256_p99_us": apply[1],
        "apply_per_row_us": round((large_apply[0] - apply[0]) / (2048 - 256), 2),
        "plan_256_bytes": size,
        "loop_256_us": loop[0],
        "loop_256_p99_us": loop[1],
        "loop_us": empty[0],
        "loop_p99_us": empty[1],
        "audit_10k_us": audit_us,
        "audit_10k_percent": audit_percent,
        "allocations": allocations(256),
    }
    print(json.dumps({"target": "bench-core", **figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

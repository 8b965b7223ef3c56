"""A run in words: one line for each frame, fault, plan and output, with its virtual time."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from google.protobuf.message import DecodeError
from octavo.v1 import step_pb2

from tests.simulation.paper import column
from tests.simulation.world import World


@contextmanager
def told(world: World) -> Iterator[None]:
    """Makes a run print what happens."""

    def say(what: str) -> None:
        print(f"{world.timeline.now:12.4f}  {what}")

    class LoopLog(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(f"  loop: {record.getMessage()}")

    log = logging.getLogger("octavo.scheduler")
    before, loop_log = (log.level, log.propagate), LoopLog()
    log.addHandler(loop_log)
    log.setLevel(logging.INFO)
    log.propagate = False
    world.network.tell = lambda way, peer, frame, kind: say(
        f"{'<-' if way == 'up' else '->'} {peer.decode():<8} {in_words(way, frame)}{f' [{kind}]' if kind else ''}"
    )
    world.core.tell = lambda what: say(f"    core: {what}")
    world.tell = say
    say(f"{world.scenario.settings}")
    for name, station in world.stations.items():
        say(f"{name}: {vars(station.paper) | {'device': None, 'host': None}}")

    try:
        yield
    finally:
        log.removeHandler(loop_log)
        log.level, log.propagate = before


def in_words(way: str, frame: bytes) -> str:
    message = step_pb2.WorkerMessage() if way == "up" else step_pb2.SchedulerMessage()
    try:
        message.ParseFromString(frame)
    except DecodeError:
        return f"garbage {frame.hex()}"
    body = message.WhichOneof("body")
    what = getattr(message, str(body))
    match body:
        case "plan":
            said = plan_in_words(what)
        case "result":
            said = f"result {what.step}: {column('i', what.token)}"
        case "nack":
            said = f"nack {what.step}: {step_pb2.Nack.Reason.Name(what.reason)}"
        case "hello":
            said = f"hello of {what.worker_id}"
        case "heartbeat":
            said = f"heartbeat, {what.last_step} steps done"
        case _:
            said = str(body)
    return f"({message.epoch.counter}) {said}"


def plan_in_words(plan: step_pb2.StepPlan) -> str:
    rows = plan.rows
    parts = {
        "frees slots": column("H", plan.freed_slot),
        "swaps out": list(zip(column("i", plan.swap_out.source), column("i", plan.swap_out.target), strict=True)),
        "swaps in": list(zip(column("i", plan.swap_in.source), column("i", plan.swap_in.target), strict=True)),
        "copies": list(zip(column("i", plan.copy.source), column("i", plan.copy.target), strict=True)),
        "zeroes": column("i", plan.zero),
        "starts": column("H", plan.new_slots.slot),
        "pages": column("i", plan.growth.pages),
        "forks": list(zip(column("H", plan.forks.source), column("H", plan.forks.target), strict=True)),
        "rows": column("H", rows.slot),
        "of tokens": column("i", rows.num_tokens),
        "samples": column("H", rows.num_samples),
    }
    return f"plan {plan.step}{' (full)' if plan.full else ''}: " + ", ".join(
        f"{name} {value}" for name, value in parts.items() if value
    )

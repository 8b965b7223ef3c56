"""A worker that computes nothing and takes a fixed time for each step: an engine whose speed is known.

Answers token 300 for every sample; with `--stamps` a token that tells its step, and in a file when the result was sent.
Started like `octavo worker`; ends when its lifeline does.
"""

import argparse
import mmap
import os
import select
import sys
import time
from pathlib import Path

import zmq
from octavo.v1 import step_pb2

TOKEN = 300
STAMPS = 512
"""Steps that can be told apart: tokens from TOKEN on."""


class Stamps:
    """When the results of the last STAMPS steps were sent, in monotonic seconds: a file that several processes map."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(8 * STAMPS))
        with path.open("r+b") as file:
            self.at = memoryview(mmap.mmap(file.fileno(), 8 * STAMPS)).cast("d")


def hello(options: argparse.Namespace) -> step_pb2.Hello:
    greeting = step_pb2.Hello(
        protocol_major=1,
        worker_id=options.worker_id,
        weights_digest=b"paced",
        kernels="paced",
        device_pages=options.pages,
        max_slots=options.slots,
        max_step_tokens=8192,
        max_context=options.context,
        vocab_size=options.vocabulary,
    )
    greeting.geometry.page_size, greeting.geometry.page_bytes = 16, 1 << 20
    return greeting


def serve(options: argparse.Namespace) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    socket.connect(options.scheduler)
    socket.send(step_pb2.WorkerMessage(hello=hello(options)).SerializeToString())
    busy_until, last_step = 0.0, 0
    stamps = Stamps(options.stamps) if options.stamps else None
    while True:
        if not socket.poll(100):
            if select.select([options.lifeline], [], [], 0)[0] and not os.read(options.lifeline, 1):
                break
            continue
        message = step_pb2.SchedulerMessage.FromString(socket.recv())
        match message.WhichOneof("body"):
            case "welcome":
                print(
                    f"octavo worker: {options.worker_id} joined {options.scheduler}, {options.pages} pages", flush=True
                )
            case "goodbye" | "refusal":
                break
            case "heartbeat":  # else it would be lost after some idle seconds
                beat = step_pb2.Heartbeat(phase=step_pb2.Heartbeat.PHASE_IDLE, last_step=last_step)
                socket.send(step_pb2.WorkerMessage(epoch=message.epoch, heartbeat=beat).SerializeToString())
            case "plan":
                last_step = message.plan.step
                busy_until = max(busy_until, time.monotonic()) + options.step_ms / 1000
                time.sleep(max(0.0, busy_until - time.monotonic()))
                place = message.plan.step % STAMPS if stamps else 0
                token = (TOKEN + place).to_bytes(4, "little") * num_samples(message.plan.rows)
                result = step_pb2.StepResult(step=message.plan.step, token=token)
                if stamps:
                    stamps.at[place] = time.monotonic()
                socket.send(step_pb2.WorkerMessage(epoch=message.epoch, result=result).SerializeToString())
    socket.close()
    context.term()


def num_samples(rows: step_pb2.Rows) -> int:
    """An empty column means one sample for each row; slots are two bytes."""
    return sum(memoryview(rows.num_samples).cast("H")) if rows.num_samples else len(rows.slot) // 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="not read")
    parser.add_argument("--scheduler", required=True)
    parser.add_argument("--worker-id", required=True)
    parser.add_argument("--lifeline", type=int, required=True)
    parser.add_argument("--step-ms", type=float, default=20.0)
    parser.add_argument("--stamps", type=Path, help="file of times")
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--pages", type=int, default=96)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=320)
    serve(parser.parse_args())
    return 0


if __name__ == "__main__":
    sys.exit(main())

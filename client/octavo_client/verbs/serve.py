"""octavo serve: a scheduler and its workers on this machine, until it is told to end."""

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

from octavo_client.addresses import DEFAULT_ADDRESS
from octavo_client.default_model import find_default_model
from octavo_client.local import LocalServer, Programs

SECONDS_BETWEEN_LOOKS = 0.5

# Flag, metavar (None: a switch), help. The two programs check the values.
SCHEDULER_FLAGS: tuple[tuple[str, str | None, str], ...] = (
    ("--served-model-name", "NAME", "name of the model in requests"),
    ("--max-num-seqs", "N", "sequences that run at once (default: 256)"),
    ("--max-chunk", "N", "most prompt tokens of one sequence in a step"),
    ("--preempt", "auto|swap|drop", "what happens to a sequence that has to make room"),
    ("--no-prefix-cache", None, "compute every prompt from its first token"),
    ("--admin-listen", "ADDRESS", "where administrators are served (default: at --listen, with clients)"),
    ("--frontends", "N", "processes that serve clients beside each other (default: the scheduler alone does)"),
    ("--http", "ADDRESS", "serve the web page, /metrics and JSON there (default: nowhere)"),
    ("--token-file", "FILE", "ask clients for a bearer token of this file, one a line"),
    ("--admin-token-file", "FILE", "tokens of administrators; without it clients with a token cannot administrate"),
    ("--record", "FILE", "record what the scheduling core does, for octavo replay"),
    ("--record-tokens", None, "with token ids, tenants and salts as they are"),
)
WORKER_FLAGS: tuple[tuple[str, str | None, str], ...] = (
    ("--device", "NAME", "where workers compute: cpu or cuda"),
    ("--dtype", "NAME", "what to compute in: auto, float32, bfloat16 or float16"),
    ("--weights", "NAME", "format of the weights: auto, float32, bfloat16, int8 or int4"),
    ("--kv-dtype", "NAME", "dtype of K and V in pages: auto, float32, bfloat16, float16, int8 or fp8"),
    ("--kernels", "NAME", "implementation of the kernels"),
    ("--ops", "NAME", "attention or other ops of an installed package (entry points octavo.ops)"),
    ("--page-size", "N", "tokens of a page (default: 16)"),
    ("--pages", "N", "device pages"),
    ("--kv-cache-memory", "SIZE", "memory of the device pages, like 2GiB"),
    ("--kv-memory-share", "X", "or their share of the free device memory (default: 0.3)"),
    ("--gpu-memory-utilization", "X", "share of a GPU's memory that a worker takes (default: 0.9)"),
    ("--host-pages", "N", "pages of the host tier"),
    ("--swap-space", "SIZE", "or their memory, like 1GiB"),
    ("--max-slots", "N", "sequences that a worker can run at once (default: 64)"),
    ("--threads", "N", "threads that a worker computes with (default: one a core)"),
    ("--tensor-parallel-size", "N", "processes that a worker is made of; they share each matrix and the KV heads"),
    ("--invariant", None, "same bits for a row in any batch and chunking"),
)
SHARED_FLAGS: tuple[tuple[str, str | None, str], ...] = (
    ("--max-step-tokens", "N", "most tokens of one step"),
    ("--max-context", "N", "longest sequence, in tokens"),
)


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    parser = verbs.add_parser(
        "serve",
        help="serve a model from this machine",
        description="Starts a scheduler and workers on this machine and serves a model until Ctrl-C or SIGTERM.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="Hugging Face folder or GGUF file (default: the small one of the demo)",
    )
    parser.add_argument(
        "--listen", default=DEFAULT_ADDRESS, help="loopback address or unix:PATH (default: %(default)s)"
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="worker processes (default: 1)")
    parser.add_argument("--quiet", action="store_true", help="show what the processes print only if they fail to start")
    for flag, metavar, text in (*SCHEDULER_FLAGS, *SHARED_FLAGS, *WORKER_FLAGS):
        if metavar is None:
            parser.add_argument(flag, action="store_true", help=text)
        else:
            parser.add_argument(flag, metavar=metavar, help=text)
    parser.set_defaults(run=serve)


def serve(args: argparse.Namespace, programs: Programs | None = None) -> int:
    """Serves until a signal comes; 0. Raises StartFailed when the scheduler or the last worker ends before that."""
    server = LocalServer(
        args.model or find_default_model(),
        workers=args.workers,
        listen=args.listen,
        scheduler_flags=_given(args, (*SCHEDULER_FLAGS, *SHARED_FLAGS)),
        worker_flags=_given(args, (*WORKER_FLAGS, *SHARED_FLAGS)),
        verbose=not args.quiet,
        programs=programs,
    )
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            for child in server.children:
                child.kill()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    try:
        server.start(stop)
        if not stop.is_set():
            print(_ready_line(server, args), flush=True)
        _watch(server, stop)
    except BaseException:
        server.close(grace=1.0)  # without its workers a scheduler has nothing to wait for
        raise
    print("octavo: ending when the answers in hand are done; once more ends at once", file=sys.stderr, flush=True)
    server.close()
    return 0


def _ready_line(server: LocalServer, args: argparse.Namespace) -> str:
    workers = "1 worker" if args.workers == 1 else f"{args.workers} workers"
    page = f", or open http://{args.http}/" if args.http and not args.http.startswith("unix:") else ""
    pool = f", each with {server.pool}" if server.pool else ""
    return (
        f"octavo: serving {server.model_name} on {server.address} with {workers}{pool}; "
        f"try: octavo chat --address {server.address}{page}"
    )


def _watch(server: LocalServer, stop: threading.Event) -> None:
    """Waits for `stop`. The loss of one worker among several is reported, not fatal: the others take over its work."""
    scheduler, *workers = server.children
    num_workers = len(workers)
    while not stop.wait(SECONDS_BETWEEN_LOOKS):
        if scheduler.exit_code() is not None:
            raise scheduler.failure()
        for lost in [worker for worker in workers if worker.exit_code() is not None]:
            workers.remove(lost)
            if not workers:
                raise lost.failure()
            print(f"octavo: {lost.failure()} ({len(workers)} of {num_workers} workers left)", file=sys.stderr)


def _given(args: argparse.Namespace, flags: Sequence[tuple[str, str | None, str]]) -> list[str]:
    words: list[str] = []
    for flag, metavar, _ in flags:
        value = getattr(args, flag.removeprefix("--").replace("-", "_"))
        if value not in (None, False):
            words += [flag] if metavar is None else [flag, value]
    return words

"""Command line of the worker."""

import argparse
import ipaddress
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from octavo_worker.config import DTYPES, KV_DTYPES, WEIGHTS, WorkerConfig, parse_bytes
from octavo_worker.errors import ConfigError


class Parser(argparse.ArgumentParser):
    """Raises ConfigError where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def read_flags(arguments: Sequence[str]) -> WorkerConfig:
    """Raises ConfigError with one sentence."""
    values = vars(parser().parse_args(arguments))
    for name in ("kv_cache_memory", "swap_space"):
        if values[name] is not None:
            values[name] = parse_bytes(values[name])
    config = WorkerConfig(**{name: value for name, value in values.items() if value is not None})
    if not config.scheduler.startswith(("ipc://", "tcp://")):
        raise ConfigError(f"--scheduler is ipc://PATH or tcp://HOST:PORT, not {config.scheduler!r}")
    if not config.wants_curve and not is_local(config.scheduler):
        raise ConfigError(
            f"{config.scheduler} is another machine and the link is not encrypted; give --curve-key and "
            "--curve-server-key (octavo keys makes them)"
        )
    if config.lifeline is not None and not is_open(config.lifeline):
        raise ConfigError(f"--lifeline {config.lifeline} is no open file descriptor")
    return config


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def is_local(address: str) -> bool:
    """Whether an address stays on this machine."""
    host = address.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    if address.startswith("ipc://") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, of which only a resolver knows where it leads
        return False


def parser() -> Parser:
    made = Parser(prog="octavo_worker", description="Execute the plans of an Octavo scheduler.", allow_abbrev=False)
    add = made.add_argument
    add("--model", type=Path, required=True, help="Hugging Face folder or .gguf file")
    add("--scheduler", required=True, help="ipc://PATH or tcp://HOST:PORT")
    add("--worker-id", default=f"{socket.gethostname()}-{os.getpid()}")
    add("--device", default="cpu", help="cpu, cuda, cuda:1 and so on")
    add("--dtype", help=f"what to compute in: {', '.join(DTYPES)}; auto: what the kernels do best")
    add("--weights", help=f"format of the weights: {', '.join(WEIGHTS)}; auto: as --dtype")
    add("--kv-dtype", help=f"of K and V in pages: {', '.join(KV_DTYPES)}; auto: as --dtype")
    add("--kernels", help="name of the kernels; default: the best for the device")
    add(
        "--ops",
        metavar="NAME",
        help="ops that an installed package replaces, by the name of its entry point; or FILE.py:NAME",
    )
    add("--invariant", action="store_true", help="bits independent of batch and chunking; slow")
    add("--page-size", type=int, help="tokens a page (16)")
    pages = made.add_mutually_exclusive_group()
    pages.add_argument("--pages", type=int, help="usable pages")
    pages.add_argument("--kv-cache-memory", help="size of the page pool, such as 2GiB")
    pages.add_argument("--kv-memory-share", type=float, help="share of free main memory for the page pool (0.3)")
    add("--gpu-memory-utilization", type=float, help="share of a GPU's memory that the worker takes in all (0.9)")
    host = made.add_mutually_exclusive_group()
    host.add_argument("--host-pages", type=int, help="usable pages of the host tier (0)")
    host.add_argument("--swap-space", help="size of the host tier, such as 1GiB")
    add("--max-slots", type=int, help="most sequences at once (64)")
    add("--max-step-tokens", type=int, help="most tokens a step (512)")
    add("--max-context", type=int, help="longest sequence; default: the model's")
    add("--threads", type=int, help="threads to compute with; default: all cores")
    add("--tensor-parallel-size", type=int, help="processes that share each matrix and the KV heads (1)")
    add("--curve-key", type=Path, help="this worker's .key_secret file")
    add("--curve-server-key", type=Path, help="the scheduler's .key file")
    add("--lifeline", type=int, help="file descriptor whose end of file ends the worker")
    return made

"""`python -m octavo_scheduler`: flags, signals, exit codes."""

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

from octavo.audit import refuse_unpickling

from octavo_scheduler.batches import EventLoop
from octavo_scheduler.config import Config, read_config
from octavo_scheduler.errors import StartError
from octavo_scheduler.lifeline import watch_lifeline
from octavo_scheduler.model import load_model
from octavo_scheduler.server import Scheduler

SWITCH_SECONDS = 0.0005
"""After which a thread makes way for another one. While long prompts were tokenised and admitted, a health check took 75 ms
at the 99th percentile on two busy cores, and 149 ms with Python's own 5 ms."""


async def serve(config: Config) -> int:
    """Until SIGTERM or SIGINT: then running streams may end, which a second signal cuts short. The exit code.

    SIGHUP has tokens and keys read again.
    """
    signals: asyncio.Queue[int] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, signals.put_nowait, number)
    model = load_model(config.model, config.served_model_name, config.max_context)
    scheduler = Scheduler(config, model)
    await scheduler.start()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, scheduler.reload)
    words = f"serving {model.name} on {scheduler.address}, workers dial {scheduler.link.address}"
    if scheduler.admin_address != scheduler.address:
        words += f", administrators {scheduler.admin_address}"
    if scheduler.http_address is not None:
        words += f", browsers {scheduler.http_address}"
    print(f"octavo scheduler: {words}", flush=True)
    await first(signals.get(), scheduler.failed.wait())
    await first(scheduler.stop(grace=0 if scheduler.failed.is_set() else config.grace), signals.get())
    return 1 if scheduler.failed.is_set() else 0


async def first(*waits: Coroutine[Any, Any, object]) -> None:
    """Until one of them is done; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        config = read_config(arguments)
        logging.basicConfig(level=config.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        if config.lifeline is not None:
            watch_lifeline(config.lifeline)
        with asyncio.Runner(loop_factory=EventLoop) as runner:
            return runner.run(serve(config))
    except StartError as error:
        print(f"octavo scheduler: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    refuse_unpickling()
    sys.setswitchinterval(SWITCH_SECONDS)
    sys.exit(main())

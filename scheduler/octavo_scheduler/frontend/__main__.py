"""`python -m octavo_scheduler.frontend`: one front process. Its scheduler starts it."""

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence

from octavo.audit import refuse_unpickling

from octavo_scheduler.__main__ import SWITCH_SECONDS, first
from octavo_scheduler.batches import EventLoop
from octavo_scheduler.errors import StartError
from octavo_scheduler.frontend.config import FrontendConfig, read_frontend_config
from octavo_scheduler.frontend.server import Frontend
from octavo_scheduler.limits import MAX_REQUEST_SECONDS
from octavo_scheduler.model import load_model


async def serve(config: FrontendConfig) -> int:
    """Until SIGTERM: then running streams may end, which a second one cuts short. So does the scheduler's end, at once.
    The exit code.

    SIGHUP has tokens read again.
    """
    event_loop = asyncio.get_running_loop()
    signals: asyncio.Queue[int] = asyncio.Queue()
    event_loop.add_signal_handler(signal.SIGTERM, signals.put_nowait, signal.SIGTERM)
    gone = asyncio.Event()
    event_loop.add_reader(config.lifeline, gone.set)
    frontend = Frontend(config, load_model(config.model, config.served_model_name, config.max_context))
    await frontend.start()
    event_loop.add_signal_handler(signal.SIGHUP, frontend.reload)
    failed = frontend.uplink.failed
    await first(signals.get(), gone.wait(), failed.wait())
    if not gone.is_set() and not failed.is_set():
        await first(frontend.front.drain(MAX_REQUEST_SECONDS), signals.get(), gone.wait(), failed.wait())
    event_loop.remove_reader(config.lifeline)
    await frontend.stop(grace=0)
    return 1 if failed.is_set() else 0


def main(arguments: Sequence[str] | None = None) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends when its scheduler says so
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to be read again
    try:
        config = read_frontend_config(arguments)
        logging.basicConfig(level=config.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        with asyncio.Runner(loop_factory=EventLoop) as runner:
            return runner.run(serve(config))
    except StartError as error:
        print(f"octavo front process: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    refuse_unpickling()
    sys.setswitchinterval(SWITCH_SECONDS)
    sys.exit(main())

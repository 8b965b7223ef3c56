"""`python -m octavo_scheduler`: flags, signals, exit codes."""

import asyncio
import logging
import signal
import sys

from octavo_scheduler.config import Config, read_config
from octavo_scheduler.errors import StartError
from octavo_scheduler.lifeline import watch_lifeline
from octavo_scheduler.model import load_model
from octavo_scheduler.server import Scheduler


def refuse_unpickling(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook: nothing in this process may unpickle."""
    if event == "pickle.find_class":
        raise RuntimeError(f"unpickling is not allowed here: {arguments}")


async def serve(config: Config) -> None:
    """Until SIGTERM or SIGINT."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    model = load_model(config.model, config.served_model_name)
    scheduler = Scheduler(config, model)
    await scheduler.start()
    print(
        f"octavo scheduler: serving {model.name} on {scheduler.address}, workers dial {scheduler.link.address}",
        flush=True,
    )
    await stopping.wait()
    await scheduler.stop()


def main() -> int:
    sys.addaudithook(refuse_unpickling)
    try:
        config = read_config()
        logging.basicConfig(level=config.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        if config.lifeline is not None:
            watch_lifeline(config.lifeline)
        asyncio.run(serve(config))
    except StartError as error:
        print(f"octavo scheduler: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A scheduler that says what it holds: `python -m tests.faults.scheduler KEPT_SECONDS FLAGS…`.

It is the production one. At SIGUSR1 it writes a line of JSON to its standard error: how many entries its maps have, how many
pages are free, how many objects of its own are alive, and how many pieces of memory Python has given out at all.
KEPT_SECONDS: for how long it knows named answers.
"""

import asyncio
import gc
import json
import signal
import sys

from octavo_scheduler.batches import EventLoop
from octavo_scheduler.config import Config, read_config
from octavo_scheduler.core import Core
from octavo_scheduler.core.events import Output
from octavo_scheduler.kept import Kept
from octavo_scheduler.model import load_model
from octavo_scheduler.server import Scheduler

SAYS = "this scheduler holds "


class Telling(Scheduler):
    """Tells from the loop's thread, between two turns."""

    def tell_at(self, number: signal.Signals) -> None:
        asyncio.get_running_loop().add_signal_handler(number, self.loop.post, self._tell)

    def _tell(self, core: Core, now: float) -> list[Output]:
        gc.collect()
        print(SAYS + json.dumps({**self._maps(core), **self._pages(core)}), file=sys.stderr, flush=True)
        return []

    def _maps(self, core: Core) -> dict[str, int]:
        front, workers = self.front, core.workers.values()
        ours = [each for each in gc.get_objects() if str(type(each).__module__).startswith("octavo_scheduler.")]
        return {
            "requests": len(core.requests),
            "waiting": len(core.waiting),
            "sequences": sum(len(worker.running) + len(worker.swapped) for worker in workers),
            "plans_in_flight": sum(len(worker.in_flight) for worker in workers),
            "transcripts": len(front.live),
            "labels": len(front.labels()),
            "kept": len(front.kept),
            "readers": front.num_readers,
            "aside": front.num_aside,
            "objects": len(ours),
            "blocks": sys.getallocatedblocks(),
        }

    def _pages(self, core: Core) -> dict[str, int]:
        pools = [pool for worker in core.workers.values() for pool in (worker.device, worker.host)]
        return {"pages_free": sum(each.num_free for each in pools), "pages_total": sum(each.total for each in pools)}


async def serve(config: Config, kept_seconds: float) -> None:
    """Until SIGTERM."""
    is_ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, is_ended.set)
    scheduler = Telling(config, load_model(config.model, config.served_model_name, config.max_context))
    scheduler.front.kept = Kept(kept_seconds)
    scheduler.tell_at(signal.SIGUSR1)
    await scheduler.start()
    print(f"serving on {scheduler.address}", flush=True)
    await is_ended.wait()
    await scheduler.stop(config.grace)


if __name__ == "__main__":
    kept, *flags = sys.argv[1:]
    with asyncio.Runner(loop_factory=EventLoop) as runner:
        runner.run(serve(read_config(flags), float(kept)))

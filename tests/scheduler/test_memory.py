"""What the scheduler remembers does not grow with the number of requests it has served."""

import gc
import random
import tracemalloc
from collections.abc import Iterator, Sized
from types import ModuleType
from typing import Any

from octavo.v1 import step_pb2
from octavo_scheduler.core import Core, Settings
from octavo_scheduler.core.events import Finished, Flush, Output
from octavo_scheduler.core.request import RequestSpec
from octavo_scheduler.loop import Loop

from tests.doubles.paper_worker import PaperWorker

MOST_LIVE = 8


class PaperLink:
    """A paper worker where the loop expects a transport; it answers at once."""

    def __init__(self) -> None:
        self.worker = PaperWorker(page_size=4, pages=48, host_pages=16)
        self.answers = [step_pb2.WorkerMessage(hello=self.worker.hello())]

    def receive(self, timeout: float) -> list[tuple[bytes, bytes]]:
        answers, self.answers = self.answers, []
        return [(b"peer", message.SerializeToString()) for message in answers]

    def send(self, peer: bytes, frame: bytes) -> bool:
        message = step_pb2.SchedulerMessage.FromString(frame)
        if message.HasField("plan"):
            result = self.worker.execute(message.plan)
            self.answers.append(step_pb2.WorkerMessage(epoch=message.epoch, result=result))
        return True

    def wake(self) -> None: ...
    def has_lost_a_peer(self) -> bool:
        return False


class Days:
    """A loop that serves request after request on a clock that counts turns."""

    def __init__(self) -> None:
        self.now = 0.0
        self.draw = random.Random(0)
        self.num_submitted = self.num_ended = 0
        self.core = Core(Settings())
        self.loop = Loop(self.core, PaperLink(), lambda: self.now, self._deliver, lambda ready: None, boot_id=1)

    def _deliver(self, outputs: list[Output]) -> None:
        self.num_ended += sum(isinstance(output, Finished) for output in outputs)

    def _submit(self) -> None:
        draw, number = self.draw, self.num_submitted
        self.num_submitted += 1
        spec = RequestSpec(
            id=str(number),
            prompt=tuple(draw.randrange(900) for _ in range(draw.randrange(1, 9))),
            max_tokens=draw.randrange(1, 4),
            tenant=f"tenant {number}",
            salt=f"salt {number}",
            priority=draw.randrange(2),
            deadline=self.now + draw.choice([1.0, 1000.0]),
            queue_deadline=self.now + 1000.0,
        )
        self.loop.post(lambda core, now: core.submit(spec, now))
        if draw.random() < 0.05:
            self.loop.post(lambda core, now: core.abort(spec.id, now))

    def serve(self, count: int, num_live: int = MOST_LIVE) -> None:
        """Until so many more have ended; all the while `num_live` are live."""
        enough = self.num_ended + count
        while self.num_ended < enough:
            while self.num_submitted < self.num_ended + num_live:
                self._submit()
            self.now += 0.1
            self.loop.turn(0)

    def rest(self) -> None:
        """Nobody comes for a while, until the last deadline of all is over; what can be found in pages is forgotten."""
        self.serve(self.num_submitted - self.num_ended, num_live=0)
        self.now += 2000.0
        self.loop.post(lambda core, now: core.apply(Flush(), now))
        self.loop.turn(0)


def reachable(root: object) -> Iterator[Any]:
    """Every object that hangs on `root`, but no code."""
    seen, queue = {id(root)}, [root]
    while queue:
        found = queue.pop()
        yield found
        for other in gc.get_referents(found):
            if id(other) not in seen and not isinstance(other, type | ModuleType) and not callable(other):
                seen.add(id(other))
                queue.append(other)


def test_PG10_after_thousands_of_requests_the_loop_remembers_no_more_than_it_has_pages_and_counters_for() -> None:
    """Every request comes from another tenant, so that nothing kept for each of them goes unnoticed. What stays is what
    can be found in 64 pages, at most 64 accounts and as many deadlines that have not come yet."""
    days = Days()
    for _ in range(5):
        days.serve(1000)
        sizes = [len(each) for each in reachable(days.loop) if isinstance(each, Sized)]
        assert max(sizes) <= 4 * MOST_LIVE + 64
        assert len(sizes) <= 600
    days.rest()
    core = days.core
    assert not core.requests
    assert not core.waiting
    assert not core.waiting.queued_of
    assert not core.workers["paper"].running
    assert core.counters.accepted == core.counters.ended == days.num_submitted


def test_PG10_a_thousand_more_requests_take_less_than_a_kilobyte() -> None:
    days = Days()
    days.serve(250)
    days.rest()
    tracemalloc.start()
    in_use = []
    for _ in range(9):
        days.serve(250)
        days.rest()
        gc.collect()
        in_use.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert in_use[-1] - in_use[0] < 2 * 1024

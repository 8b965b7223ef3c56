"""What the front asks of the core: put by the event loop, answered in the loop's thread between two turns."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from octavo_scheduler.core import Core
from octavo_scheduler.core.events import Output
from octavo_scheduler.core.states import WorkerState
from octavo_scheduler.errors import RequestError, RequestFailed
from octavo_scheduler.loop import Command

log = logging.getLogger("octavo.scheduler")

Answer = TypeVar("Answer")
Question = Callable[[Core, float, list[Output]], Answer]
"""What it changes in the core may lead to outputs, which it appends."""


class Posts(Protocol):
    """The loop, as far as questions go."""

    def post(self, command: Command) -> None: ...


async def ask(loop: Posts, question: Question[Answer]) -> Answer:
    """The answer. Raises the RequestError that the question raised."""
    event_loop = asyncio.get_running_loop()
    answer: asyncio.Future[Answer] = event_loop.create_future()

    def put(core: Core, now: float) -> list[Output]:
        outputs: list[Output] = []
        try:
            event_loop.call_soon_threadsafe(_settle, answer, question(core, now, outputs), None)
        except RequestError as error:
            event_loop.call_soon_threadsafe(_settle, answer, None, error)
        except Exception:  # no question may end the loop, and with it the service
            log.exception("an operator's question could not be answered")
            failure = RequestFailed("the scheduler could not answer; its log says why")
            event_loop.call_soon_threadsafe(_settle, answer, None, failure)
        return outputs

    loop.post(put)
    return await answer


def _settle(answer: "asyncio.Future[Any]", result: object, error: RequestError | None) -> None:
    if answer.done():  # whoever asked has left
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


def is_ready(core: Core, now: float, outputs: list[Output]) -> bool:
    """Whether a worker is here that takes new requests."""
    return any(worker.state is WorkerState.READY for worker in core.workers.values())

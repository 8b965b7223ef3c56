"""How tests wait for what must come about.

PATIENCE only guards against waiting for ever. It measures nothing: no sound run reaches it, however slow the machine is.
"""

import asyncio
import inspect
import time
from collections.abc import Callable

PATIENCE = 120.0
"""Seconds."""
PAUSE = 0.005


async def until(condition: Callable[[], object], missing: str = "it does not come about") -> None:
    """Asks until the answer, awaited where it has to be, is true. Fails with the words `missing` where none comes."""
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = condition()
        if await answer if inspect.isawaitable(answer) else answer:
            return
        assert time.monotonic() < deadline, missing
        await asyncio.sleep(PAUSE)

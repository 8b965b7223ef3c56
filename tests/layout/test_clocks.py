"""The wall clock may be set at any time, so durations, leases and deadlines are never measured by it."""

import ast
from collections.abc import Iterator

import pytest

from tests.layout.rules import lies_in
from tests.layout.tree import Source, imports, sources

WALL_CLOCKS = {"time.time", "time.time_ns", "time.CLOCK_REALTIME"}
WALL_CLOCKS |= {f"datetime.{name}" for name in ("datetime.now", "datetime.utcnow", "datetime.today", "date.today")}

# Whoever needs the date itself: a chat template that tells it to the model, certificates and their first and last day,
# messages of others that have a field for it.
DATES = (
    *("octavo_scheduler.template", "octavo_scheduler.keys", "octavo_scheduler.compat.vllm_engine"),
    "tests.client.test_channel",
    "tests.foreign.matrix",
)

FOUND = [
    "import time\ndeadline = time.time() + 5",
    "import time\nloop(clock=time.time)",
    "import time as t\nnow = t.time_ns()",
    "from time import time\nstarted = time()",
    "import time\nnow = time.clock_gettime(time.CLOCK_REALTIME)",
    "import datetime\nnow = datetime.datetime.now(datetime.UTC)",
    "from datetime import datetime\nnow = datetime.utcnow()",
]
PASSED = [
    "import time\ntime.monotonic() + time.perf_counter() - time.monotonic_ns()",
    "import time\ntime.sleep(1)",
    "event.time()\nself.time = 5",
    "from datetime import datetime\nepoch = datetime(2020, 1, 1)",
]


def wall_clocks(source: Source) -> Iterator[str]:
    """Every mention of a wall clock, called or handed on."""
    names = {each.alias: each.name for each in imports(source)}
    for node in ast.walk(source.tree):
        name = _dotted(node, names)
        if name in WALL_CLOCKS:
            yield f"{source.module}:{node.lineno} reads {name}"  # type: ignore[attr-defined]


def _dotted(node: ast.AST, names: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, names)}.{node.attr}"
    return names.get(node.id, "") if isinstance(node, ast.Name) else ""


def test_CK01_nothing_but_dates_is_taken_from_the_wall_clock() -> None:
    found = [each for source in sources() if not lies_in(source.module, DATES) for each in wall_clocks(source)]
    assert found == []


@pytest.mark.parametrize("text", FOUND)
def test_a_wall_clock_is_found(text: str) -> None:
    assert len(list(wall_clocks(Source("octavo_worker.bad", text)))) == 1


@pytest.mark.parametrize("text", PASSED)
def test_a_steady_clock_passes(text: str) -> None:
    assert list(wall_clocks(Source("octavo_worker.good", text))) == []

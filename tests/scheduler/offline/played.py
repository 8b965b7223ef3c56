"""Recordings of services whose truth is known: workers take exactly what a model says."""

import random
from pathlib import Path

from octavo_scheduler.core import Core, Settings
from octavo_scheduler.core.events import Event, Joined
from octavo_scheduler.core.request import RequestSpec
from octavo_scheduler.offline.change import Change
from octavo_scheduler.offline.latency import LatencyModel, Load
from octavo_scheduler.offline.meter import Figures, Meter
from octavo_scheduler.offline.traffic import Asked, Traffic
from octavo_scheduler.offline.what_if import Simulation
from octavo_scheduler.record import Recorder

TRUTH = LatencyModel(Load(0.010, 2e-4, 1e-3, 1e-7, 1e-9))
NOTHING = Change({}, {})
NOBODY = Meter().figures(Core(Settings()))


def pool(name: str = "w", pages: int = 60, page_size: int = 4) -> Joined:
    return Joined(
        worker=name,
        page_size=page_size,
        page_bytes=1000 * page_size,
        device_pages=pages,
        host_pages=30,
        max_slots=16,
        max_step_tokens=64,
        max_context=400,
        vocab_size=900,
    )


def busy_minute(count: int = 60) -> list[Asked]:
    draw = random.Random(4)
    requests = []
    for number in range(count):
        prompt = (*range(8), *(draw.randrange(900) for _ in range(draw.randrange(1, 30))))
        spec = RequestSpec(id=str(number), prompt=prompt, max_tokens=draw.randrange(1, 40), n=draw.choice([1, 1, 2]))
        requests.append(Asked(at=draw.random() * 3, spec=spec))
    return sorted(requests, key=lambda asked: asked.at)


def play(path: Path, requests: list[Asked], events: list[tuple[float, Event]], settings: Settings) -> Figures:
    """Has a recorded core serve the requests with workers that take the true times."""
    numbered = [Asked(at=a.at, spec=RequestSpec(**{**vars(a.spec), "id": str(i)})) for i, a in enumerate(requests)]
    traffic = Traffic(numbered, events, [], NOBODY, ended_at=1e9)
    simulation = Simulation(traffic, settings, NOTHING, TRUTH)
    recorder = simulation.core = Recorder(settings, path)
    figures = simulation.run()
    recorder.close()
    return figures

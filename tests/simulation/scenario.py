"""What a seed draws: pools, settings, requests, latencies, and which faults of which kinds."""

from dataclasses import dataclass
from random import Random

from octavo_scheduler.core import Settings
from octavo_scheduler.core.request import RequestSpec, Sampling

from tests.simulation.network import FRAME_FAULTS, Weather
from tests.simulation.paper import VOCAB_SIZE, Paper

BRANCHES = (1, 1, 2, 4)
"""Branches of a request are drawn from here."""


@dataclass(frozen=True)
class Fate:
    """What becomes of a request, besides its answer."""

    arrives_at: float
    cancelled_after: float | None = None
    stopped_after: int | None = None
    """Tokens heard before the front finds a stop string ..."""
    stopped_by: int = 0
    """... which began so many tokens before."""
    is_poisonous: bool = False


@dataclass(frozen=True)
class Scenario:
    settings: Settings
    weather: Weather
    survivor: Paper
    others: list[Paper]
    survivor_joins_at: float
    requests: list[tuple[RequestSpec, Fate]]
    step_seconds: float
    turn_seconds: float
    faults: tuple[str, ...]
    fault_seconds: float
    """Mean time between two faults that are not of frames."""
    faults_until: float
    step_fault_rate: float


STEP_FAULTS = ("step failed", "step failed half done", "plan called invalid", "result malformed")
WORLD_FAULTS = (
    "connection reset",
    "connection dark",
    "connection clogged",
    "worker killed",
    "worker left",
    "worker frozen briefly",
    "worker frozen long",
    "worker drained",
    "worker joined late",
    "worker restarted at once",
    "twin refused",
    "other weights refused",
    "other protocol refused",
    "absurd pool refused",
    "result of an old epoch",
    "result from a stranger",
    "garbage from a member",
    "garbage from a stranger",
    "scheduler paused briefly",
    "scheduler paused long",
    "prefixes flushed",
    "unknown request aborted",
    "request aborted twice",
    "live id submitted again",
)


def draw_scenario(draw: Random, *, is_liveness: bool) -> Scenario:
    """Each seed has its own mixture: a fault is possible in some seeds and out of the question in others."""
    longest = draw.choice((6, 12, 24, 24, 48))
    step_seconds = draw.choice((0.001, 0.01, 0.03))
    requests = draw_requests(draw, longest, step_seconds, is_liveness=is_liveness)
    arrived = max(fate.arrives_at for _, fate in requests)
    share = draw.choice((0.0, 0.1, 0.3))
    return Scenario(
        settings=draw_settings(draw),
        weather=Weather(
            rate=draw.choice((0.0, 0.0, 0.003, 0.01, 0.03)),
            kinds=tuple(kind for kind in FRAME_FAULTS if draw.random() < 0.4),
            latency=draw.choice((0.0001, 0.002, 0.01)),
        ),
        survivor=draw_paper(draw, holds=longest),
        others=[draw_paper(draw, holds=0) for _ in range(draw.choice((0, 0, 0, 1, 1, 2, 3, 7)))],
        survivor_joins_at=draw.choice((0.0, 0.0, 0.0, arrived)),
        requests=requests,
        step_seconds=step_seconds,
        turn_seconds=draw.choice((0.0, 0.0001, 0.002)),
        faults=tuple(kind for kind in (*WORLD_FAULTS, *STEP_FAULTS) if draw.random() < share),
        fault_seconds=max(arrived, step_seconds * 20) / draw.choice((2, 4, 8)),
        faults_until=arrived + step_seconds * draw.choice((5, 20, 50)),
        step_fault_rate=draw.choice((0.01, 0.05)),
    )


def draw_settings(draw: Random) -> Settings:
    return Settings(
        max_num_seqs=draw.choice((2, 4, 256)),
        max_step_tokens=draw.choice((4, 8, 16, 64)),
        max_chunk=draw.choice((None, None, 1, 3, 7)),
        preempt=draw.choice(("auto", "swap", "drop")),
        prefix_cache=draw.random() < 0.85,
        plans_in_flight=draw.choice((1, 2, 2)),
        max_overtakes=draw.choice((0, 1, 4, 32)),
        max_queued_requests=draw.choice((5, 4096, 4096, 4096)),
        max_faults=draw.choice((1, 2, 3)),
        max_nacks=draw.choice((1, 2, 4)),
        copy_bytes_per_second=draw.choice((1e4, 1e5, 1e6)),
    )


def draw_paper(draw: Random, *, holds: int) -> Paper:
    """A pool of 4 to 64 pages that holds at least one sequence of `holds` tokens."""
    page_size = draw.choice((1, 2, 3, 4))
    least = max(4, -(-holds // page_size))
    pages = draw.choice((least, min(64, least + least // 2), draw.randint(least, max(64, least))))
    return Paper(
        page_size=page_size,
        device_pages=pages,
        host_pages=draw.choice((0, 3, 16, 64)),
        max_slots=draw.choice((1, 3, 8)),
        max_step_tokens=draw.choice((3, 8, 64)),
        max_context=draw.choice((max(holds, 12), 4096, 4096)),
        needs_zeroed_pages=draw.random() < 0.25,
    )


def draw_requests(
    draw: Random, longest: int, step_seconds: float, *, is_liveness: bool
) -> list[tuple[RequestSpec, Fate]]:
    """Prompts begin alike now and then, so that prefixes are found; some are one token apart."""
    count = draw.choice((6, 12, 20)) if longest < 24 else draw.choice((4, 8, 12))
    gap = step_seconds * longest * draw.choice((0.0, 0.1, 0.5))
    trunks = [[draw.randrange(VOCAB_SIZE) for _ in range(longest)] for _ in range(2)]
    stops = frozenset(draw.sample(range(VOCAB_SIZE), draw.choice((0, 0, 4))))
    has_ends = draw.random() < 0.6 and not is_liveness
    arrives_at, found = 0.0, []
    for number in range(count):
        arrives_at += gap * draw.random()
        num_prompt = draw.randint(1, longest - 1)
        num_shared = draw.choice((0, num_prompt, draw.randint(0, num_prompt)))
        prompt = draw.choice(trunks)[:num_shared] + [draw.randrange(VOCAB_SIZE) for _ in range(num_prompt - num_shared)]
        spec = RequestSpec(
            id=f"r{number}",
            prompt=tuple(prompt),
            n=draw.choice(BRANCHES),
            max_tokens=draw.randint(1, longest - num_prompt),
            stop_token_ids=stops,
            sampling=Sampling(seed=draw.choice((0, draw.getrandbits(64)))),
            priority=draw.choice((0, 0, 0, 1, 2)),
            salt=draw.choice(("", "", "other")),
            deadline=arrives_at + step_seconds * draw.choice((1, 20, 100)) if has_ends and draw.random() < 0.15 else None,
        )
        found.append((spec, draw_fate(draw, arrives_at, step_seconds, has_ends=has_ends)))
    return found


def draw_fate(draw: Random, arrives_at: float, step_seconds: float, *, has_ends: bool) -> Fate:
    is_poisonous = draw.random() < 0.01
    match draw.random() if has_ends else 1.0:
        case chance if chance < 0.1:
            after = step_seconds * draw.choice((0.0, 2.0, 20.0, 60.0)) * draw.random()
            return Fate(arrives_at, cancelled_after=after, is_poisonous=is_poisonous)
        case chance if chance < 0.2:
            heard = draw.randint(1, 12)
            return Fate(arrives_at, stopped_after=heard, stopped_by=draw.randint(0, heard), is_poisonous=is_poisonous)
    return Fate(arrives_at, is_poisonous=is_poisonous)

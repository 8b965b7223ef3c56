"""What a seed draws: pools, settings, requests, latencies, and which faults of which kinds."""

from dataclasses import dataclass, replace
from math import ceil
from random import Random

from octavo_scheduler.core import Settings
from octavo_scheduler.core.request import RequestSpec, Sampling

from tests.simulation.coverage import STEP_FAULTS, WORLD_FAULTS
from tests.simulation.network import FRAME_FAULTS, Weather
from tests.simulation.paper import VOCAB_SIZE, Paper

ROOMY_SHARE = 0.15
FLOOD_SHARE = 0.04
SLOW_MASK_SECONDS = 4.0
"""Longer than the shortest lease of a step."""
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
    unknown_after: int | None = None
    """Tokens of a constrained answer after which nobody can say what may come next."""


@dataclass(frozen=True)
class Scenario:
    settings: Settings
    weather: Weather
    survivor: Paper
    others: list[Paper]
    survivor_joins_at: float
    row_tokens: int
    """What a sequence adds to a worker's load: few tokens, as sequences are short."""
    others_join_at: float
    steps_until_others_join: int
    """At most: as soon as a sequence lies swapped out, they do."""
    is_roomy: bool
    """Long answers, and workers with room for them all that come when many run, or lie swapped out: then some move."""
    is_flood: bool
    """One worker with few slots, and so many urgent requests that the others start by having waited longest."""
    tenants: tuple[str, ...]
    priorities: tuple[int, ...]
    longest: int
    """Tokens of the longest request, prompt and answer."""
    has_ends: bool
    """Some requests are cancelled, stopped or run out of time."""
    has_masks: bool
    """Some requests are constrained or ask for log-probabilities; the worker that stays can do that, not every other can."""
    constrained_share: float
    mask_seconds: float
    """What a mask takes, on average."""
    slow_mask_rate: float
    """How many take SLOW_MASK_SECONDS longer."""
    step_seconds: float
    turn_seconds: float
    faults: tuple[str, ...]
    fault_interval: int
    """Mean number of events between two faults that are not of frames."""
    step_fault_rate: float

    def capacity(self, paper: Paper) -> int:
        """Longest sequence that a worker may hold."""
        return min(paper.max_context, int(paper.num_device * self.settings.max_tenant_share) * paper.page_size + 1)


def draw_scenario(draw: Random, *, is_liveness: bool) -> Scenario:
    """Each seed has its own mixture: a fault is possible in some seeds and out of the question in others."""
    is_roomy = draw.random() < ROOMY_SHARE
    is_tight = is_roomy and draw.random() < 0.5
    is_flood = not is_roomy and draw.random() < FLOOD_SHARE
    longest = 48 if is_roomy else 12 if is_flood else draw.choice((6, 12, 24, 24, 48))
    step_seconds = draw.choice((0.001, 0.01, 0.03))
    share = draw.choice((0.0, 0.15, 0.4))
    settings = draw_settings(draw)
    if longest > 24:
        settings = replace(settings, max_tenant_share=1.0)
    if is_roomy:
        settings = replace(
            settings,
            max_num_seqs=256,
            max_step_tokens=64,
            readmit_growth=64,
            preempt=draw.choice(("auto", "auto", "swap")),
        )
    if is_flood:
        settings = replace(settings, max_wait_seconds=0.0, max_overtakes=draw.choice((0, 1, 4)))
    has_masks = draw.random() < 0.4
    survivor = draw_paper(draw, holds=longest, share=settings.max_tenant_share, has_masks=has_masks)
    num_others = draw.choice((1, 2, 3) if is_roomy else (0,) if is_flood else (0, 0, 0, 1, 1, 2, 3, 7))
    others = [draw_paper(draw, holds=0, has_masks=has_masks and draw.random() < 0.75) for _ in range(num_others)]
    if is_roomy:
        make_roomy(survivor, pages=24 if is_tight else 256)
        settings = replace(settings, copy_bytes_per_second=draw.choice((1e5, 1e6, 1e7)))
        for paper in others:
            make_roomy(paper, pages=draw.choice((256, 28)))
    if is_flood:
        survivor.max_slots = draw.choice((1, 2, 3))
    is_alike = draw.random() < 0.25
    return Scenario(
        settings=settings,
        has_masks=has_masks,
        constrained_share=draw.choice((0.5, 0.8, 1.0)) if has_masks else 0.0,
        mask_seconds=step_seconds * draw.choice((0.01, 0.3, 3.0)),
        slow_mask_rate=draw.choice((0.0, 0.0, 0.02)) if has_masks else 0.0,
        weather=Weather(
            rate=draw.choice((0.0, 0.0, 0.005, 0.02, 0.05)),
            kinds=tuple(kind for kind in FRAME_FAULTS if draw.random() < 0.4),
            latency=draw.choice((0.0001, 0.002, 0.01)),
        ),
        survivor=survivor,
        others=others,
        survivor_joins_at=0.0 if is_roomy else draw.choice((0.0, 0.0, 0.0, step_seconds * 40)),
        others_join_at=step_seconds * draw.choice((5, 20)) if is_roomy else 0.0,
        row_tokens=draw.choice((8, 16)) if is_roomy else 4,
        steps_until_others_join=draw.choice((0, 100)) if is_tight else 0,
        is_roomy=is_roomy,
        is_flood=is_flood,
        tenants=("",) if is_alike else ("", "a", "b"),
        priorities=(0, 2, 2, 2, 2) if is_flood else (0,) if is_alike else (0, 0, 0, 1, 2),
        longest=longest,
        has_ends=draw.random() < 0.6 and not is_liveness,
        step_seconds=step_seconds,
        turn_seconds=draw.choice((0.0, 0.0001, 0.002)),
        faults=tuple(kind for kind in (*WORLD_FAULTS, *STEP_FAULTS) if draw.random() < share),
        fault_interval=draw.choice((20, 50, 100)),
        step_fault_rate=draw.choice((0.02, 0.1)),
    )


def make_roomy(paper: Paper, *, pages: int) -> None:
    """Slots for all requests that a simulation has at a time, and pages for them (256), or for some."""
    paper.page_size, paper.num_device, paper.num_host, paper.max_slots = 4, pages, 64, 16
    paper.max_step_tokens, paper.max_context = 64, 4096
    paper.reset()


def draw_settings(draw: Random) -> Settings:
    return Settings(
        max_num_seqs=draw.choice((2, 4, 256)),
        max_step_tokens=draw.choice((4, 8, 16, 64)),
        max_chunk=draw.choice((None, None, 1, 3, 7)),
        preempt=draw.choice(("auto", "swap", "swap", "drop")),
        prefix_cache=draw.random() < 0.85,
        plans_in_flight=draw.choice((1, 2, 2)),
        policy=draw.choice(("fair", "fair", "fcfs")),
        tenant_weights=draw.choice(({}, {"a": 3.0})),
        max_wait_seconds=draw.choice((0.0, 0.2, 30.0)),
        max_overtakes=draw.choice((0, 1, 4, 32)),
        readmit_growth=draw.choice((0, 4, 64)),
        max_reserve_share=draw.choice((0.0, 0.25, 0.5)),
        max_queued_requests=draw.choice((5, 4096, 4096, 4096)),
        max_queued_tokens=draw.choice((100, 1 << 21, 1 << 21)),
        max_tenant_queued_requests=draw.choice((None, None, 3)),
        max_tenant_queued_tokens=draw.choice((None, None, 60)),
        max_tenant_share=draw.choice((1.0, 1.0, 0.5)),
        max_faults=draw.choice((1, 2, 3)),
        max_nacks=draw.choice((1, 2, 4)),
        copy_bytes_per_second=draw.choice((1e4, 1e5, 1e6)),
    )


def draw_paper(draw: Random, *, holds: int, has_masks: bool, share: float = 1.0) -> Paper:
    """A pool of 4 to 64 pages that holds at least one sequence of `holds` tokens. `has_masks`: it knows what these are."""
    page_size = draw.choice((1, 1, 2, 3, 4))
    least = max(4, ceil(-(-holds // page_size) / share))
    pages = draw.choice((least, least, min(64, least + least // 3), draw.randint(least, max(64, least))))
    return Paper(
        page_size=page_size,
        device_pages=pages,
        host_pages=draw.choice((0, 3, 16, 64, 64)),
        max_slots=draw.choice((1, 3, 8, 8)),
        max_step_tokens=draw.choice((3, 8, 64)),
        max_context=draw.choice((max(holds, 12), 4096, 4096)),
        needs_zeroed_pages=draw.random() < 0.25,
        can_fork=has_masks or draw.random() < 0.85,
        can_mask=has_masks,
        takes_late_masks=has_masks and draw.random() < 0.7,
    )


class Arrivals:
    """Requests without end. Their prompts begin alike now and then, so that prefixes are found; some differ in one token."""

    def __init__(self, draw: Random, scenario: Scenario) -> None:
        longest = scenario.longest
        self._draw, self._scenario = draw, scenario
        self._gap = scenario.step_seconds * longest * draw.choice((0.0,) if scenario.is_flood else (0.0, 0.1, 0.5))
        self._trunks = [[draw.randrange(VOCAB_SIZE) for _ in range(longest)] for _ in range(2)]
        self._stops = frozenset(draw.sample(range(VOCAB_SIZE), draw.choice((0, 0, 4))))
        self._num_asked = 0

    def wave(self, now: float) -> list[tuple[RequestSpec, Fate]]:
        """The next few requests, from now on."""
        arrives_at, found = now, []
        for _ in range(self._draw.choice((3, 5, 8))):
            arrives_at += self._gap * self._draw.random()
            found.append((self.request(arrives_at), self._fate(arrives_at)))
        return found

    def request(self, arrives_at: float) -> RequestSpec:
        draw, scenario = self._draw, self._scenario
        self._num_asked += 1
        num_prompt = draw.randint(1, draw.choice((4, 4, 4, 12, 40)) if scenario.is_roomy else scenario.longest - 1)
        num_shared = draw.choice((0, num_prompt, draw.randint(0, num_prompt)))
        prompt = draw.choice(self._trunks)[:num_shared]
        prompt += [draw.randrange(VOCAB_SIZE) for _ in range(num_prompt - num_shared)]
        is_urgent = scenario.has_ends and draw.random() < 0.2
        is_hasty = scenario.has_ends and draw.random() < 0.1
        too_long = draw.randint(1, 3) if scenario.has_ends and draw.random() < 0.03 else 0
        spare = (
            scenario.capacity(scenario.survivor) - num_prompt + too_long if too_long else scenario.longest - num_prompt
        )
        return RequestSpec(
            id=f"r{self._num_asked}",
            prompt=tuple(prompt),
            n=draw.choice((1,) if scenario.is_flood else BRANCHES),
            max_tokens=self._max_tokens(spare) if not too_long else spare,
            stop_token_ids=self._stops,
            sampling=Sampling(seed=draw.choice((0, draw.getrandbits(64)))),
            priority=draw.choice(scenario.priorities),
            tenant=draw.choice(scenario.tenants),
            salt=draw.choice(("", "", "other")),
            deadline=arrives_at + scenario.step_seconds * draw.choice((1, 20, 40, 100))
            if is_urgent or too_long
            else None,
            queue_deadline=arrives_at + scenario.step_seconds * draw.choice((1, 20)) if is_hasty else None,
            is_constrained=draw.random() < scenario.constrained_share,
            logprobs=draw.choice((None, None, 0, 2)) if scenario.has_masks else None,
            prompt_logprobs=draw.choice((None, None, None, 0, 3)) if scenario.has_masks else None,
        )

    def _max_tokens(self, spare: int) -> int:
        draw = self._draw
        if self._scenario.is_roomy:
            return draw.choice((spare, spare, draw.randint(1, spare)))
        return min(spare, 2) if self._scenario.is_flood else draw.choice((1, spare, draw.randint(1, spare)))

    def _fate(self, arrives_at: float) -> Fate:
        draw, scenario = self._draw, self._scenario
        is_poisonous = draw.random() < 0.01
        match draw.random() if scenario.has_ends else 1.0:
            case chance if chance < 0.1:
                after = scenario.step_seconds * draw.choice((0.0, 2.0, 20.0, 60.0)) * draw.random()
                return Fate(arrives_at, cancelled_after=after, is_poisonous=is_poisonous)
            case chance if chance < 0.2:
                heard = draw.randint(1, 12)
                return Fate(
                    arrives_at, stopped_after=heard, stopped_by=draw.randint(0, heard), is_poisonous=is_poisonous
                )
            case chance if chance < 0.22:
                return Fate(arrives_at, unknown_after=draw.randint(0, 6), is_poisonous=is_poisonous)
        return Fate(arrives_at, is_poisonous=is_poisonous)

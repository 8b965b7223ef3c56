"""All cases of paged attention that are worth telling apart, what each must give in float64, and how far off it is."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import combinations, product
from typing import Any

import torch
from octavo_kernels.choice import pick
from octavo_kernels.ops import Geometry, Ops
from torch import Tensor

from tests.kernels import steps
from tests.kernels.steps import Row, dense, make_case, run_attention

KV_HEADS = 2
LAYERS, LAYER = 2, 1
LENGTH = 131
"""That windows are measured by."""
ROWS = {
    "decode": [Row(0, 1), Row(LENGTH - 1, 1), Row(300, 1)],
    "extend": [Row(0, 37), Row(LENGTH - 23, 23), Row(284, 17)],
}
WINDOWS = ("none", "1", "page-1", "page", "page+1", "length-1", "length", "length+1")
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
BOUND = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 6e-3}
"""Of the largest error, over the largest result."""


@dataclass(frozen=True)
class Case:
    """One of them."""

    dtype: str
    cache: str  # "own": that of the activations
    head_dim: int
    page_size: int
    group: int
    window: str
    softcap: float
    path: str

    @property
    def cache_dtype(self) -> str:
        return self.dtype if self.cache == "own" else self.cache

    @property
    def window_size(self) -> int:
        name, _, change = self.window.replace("-", "+-").partition("+")
        base = {"none": 0, "page": self.page_size, "length": LENGTH}.get(name)
        return (int(name) if base is None else base) + int(change or 0)


CHOICES: dict[str, tuple[Any, ...]] = {
    "dtype": tuple(DTYPES),
    "cache": ("own", "int8", "fp8"),
    "head_dim": (64, 80, 96, 128, 256),
    "page_size": (16, 32, 64),
    "group": (1, 3, 4, 7, 8),
    "path": tuple(ROWS),
    "window": WINDOWS,
    "softcap": (0.0, 5.0),
}
WAYS, WAYS_EACH = ("window", "softcap"), 4
"""What is told a kernel with each call, and how many combinations of that each kernel is given."""


def all_cases() -> Iterator[Case]:
    """Every combination of what a kernel is compiled for, each with some WAYS to look back: all of these for the first, and
    for every other one a few that are drawn for it, so that each of them meets everything else time and again.

    Those of one cache come one after the other.
    """
    ways = list(product(*(CHOICES[name] for name in WAYS)))
    names = [name for name in CHOICES if name not in WAYS]
    for number, values in enumerate(product(*(CHOICES[name] for name in names))):
        for drawn in random.Random(number).sample(ways, WAYS_EACH) if number else ways:
            yield Case(**dict(zip((*names, *WAYS), (*values, *drawn), strict=True)))


def covering_cases(seed: int = 0) -> list[Case]:
    """A few of them, in which every two choices meet."""
    rng = random.Random(seed)
    missing = {((a, x), (b, y)) for a, b in combinations(CHOICES, 2) for x, y in product(CHOICES[a], CHOICES[b])}
    chosen = []
    while missing:
        (a, x), (b, y) = min(missing, key=str)
        tries = [{name: rng.choice(values) for name, values in CHOICES.items()} | {a: x, b: y} for _ in range(60)]
        best = max(tries, key=lambda found: len(missing & pairs(found)))
        missing -= pairs(best)
        chosen.append(Case(**best))
    return chosen


def pairs(found: dict[str, Any]) -> set[object]:
    """Of two choices each."""
    return set(combinations(found.items(), 2))


def cache_of(case: Case) -> tuple[str, str, int, int, int, str]:
    """What it takes to write the cache that a case reads, as arguments of `prepared`."""
    return case.dtype, case.cache_dtype, case.head_dim, case.page_size, case.group, case.path


def check(case: Case) -> float:
    """The largest error over the largest result, in the interpreter."""
    step, rows = prepared(*cache_of(case))
    options: dict[str, Any] = {"window": case.window_size, "softcap": case.softcap}
    found = run_attention(kernels(), step, LAYER, **options).double()
    truth = dense(step, rows, case.group * KV_HEADS, **options)
    return float((found - truth).abs().max() / truth.abs().max()) if found.isfinite().all() else float("inf")


@lru_cache(maxsize=1)
def kernels() -> Ops:
    return pick("cpu", "triton")


@lru_cache(maxsize=2)
def prepared(
    dtype: str, cache: str, head_dim: int, page_size: int, group: int, path: str
) -> tuple[steps.Case, list[Row]]:
    """A step and its rows; keys and values are those that are left in the cache."""
    geometry = Geometry(page_size, LAYERS, KV_HEADS, head_dim, cache)
    rows = ROWS[path]
    case = make_case(kernels(), rows, geometry, group * KV_HEADS, layer=LAYER, dtype=DTYPES[dtype])
    case.keys = [stored(k, cache) for k in case.keys]
    case.values = [stored(v, cache) for v in case.values]
    return case, rows


def stored(x: Tensor, cache: str) -> Tensor:
    """What is left of [..., D] in a cache: float32."""
    if cache in DTYPES:
        return x.to(DTYPES[cache]).float()
    most = {"int8": 127, "fp8": 448}[cache]
    exact = x.float().abs().amax(-1, keepdim=True) / most
    scale = exact.bfloat16().float()
    scale = torch.where(scale < exact, (scale.bfloat16().view(torch.int16) + 1).view(torch.bfloat16).float(), scale)
    scaled = x.float() * torch.where(scale > 0, 1 / scale, 0)
    return (scaled.round() if cache == "int8" else scaled.to(torch.float8_e4m3fn).float()) * scale


assert {field.name for field in fields(Case)} == set(CHOICES)

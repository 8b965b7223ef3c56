"""Thousands of requests, some of them cancelled, late or malformed, and workers that die: nothing of them is left."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doubles.tiny_model import make_tiny_model
from tests.faults.cluster import cluster
from tests.faults.soak import MAPS, OUTCOMES, Soak

KEPT_SECONDS = 0.5
WARM, REQUESTS = 1000, 10_000
MOST_GROWTH = 0.02
"""Of the pieces of memory that Python has given out."""


@pytest.mark.timeout(1200)
def test_after_requests_of_every_fate_all_pages_are_free_all_maps_empty_and_nothing_has_grown(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    program = ("tests.faults.scheduler", str(KEPT_SECONDS))
    with cluster(make_tiny_model(tmp_path / "model"), tmp_path, "paper", program=program) as made:
        soak = Soak(made, KEPT_SECONDS)
        asyncio.run(soak.begin())
        warm = asyncio.run(soak.block(-WARM, WARM))
        found = asyncio.run(soak.block(0, REQUESTS))
    assert warm["problems"] + found["problems"] == []
    assert [found[name] for name in OUTCOMES] == [REQUESTS * share // 100 for share in (73, 20, 5, 2)]
    assert found["kills"] > 0
    assert found["accepted"] == found["terminal"]
    assert found["accepted"] >= found["answered"]
    before, left = warm["left"], found["left"]
    assert {name: left[name] for name in MAPS} == dict.fromkeys(MAPS, 0)
    assert left["pages_free"] == left["pages_total"] > 0
    assert left["objects"] <= before["objects"]
    assert left["blocks"] < (1 + MOST_GROWTH) * before["blocks"]
    figure(f"soak: {found}")

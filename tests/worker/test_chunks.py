"""Prompts in chunks: each row writes its own positions of its own pages and no byte elsewhere."""

from collections.abc import Callable

import numpy as np
import pytest
from octavo.v1 import step_pb2 as wire
from octavo_worker.runner import Runner

from tests.pools import memory
from tests.worker.plans import Driver, growth, new_slots, rows, uint16

Make = Callable[..., Runner]
BOS = 1
IDS = np.random.default_rng(11).integers(3, 320, 400).tolist()


def bytes_of(runner: Runner, pages: list[int]) -> bytes:
    return memory(runner.cache.pool)[pages].tobytes()


def test_CP04_a_short_history_with_a_long_chunk_beside_a_long_one_with_a_short_chunk(make_runner: Make) -> None:
    """Pages of 32. A computes 96 tokens from 0, B 64 tokens from 96; each has a page more than that needs."""
    runner = make_runner(page_size=32, pages=20, invariant=True)
    a, b = IDS[:96], IDS[100:260]
    alone = [Driver(make_runner(page_size=32, invariant=True)).generate(prompt, 4) for prompt in (a, b)]
    pool = memory(runner.cache.pool)
    pool[:] = np.random.default_rng(0).integers(0, 256, pool.shape, np.uint8)
    driver = Driver(runner)
    pages = {0: [7, 3, 12, 5], 1: [9, 2, 15, 4, 11, 8]}
    driver.send(new_slots=new_slots({1: b}), growth=growth({1: pages[1]}), rows=rows({1: 96}, [0]))
    written = [*pages[0][:3], *pages[1][3:5]]
    others = [page for page in range(21) if page not in written]
    before, due = bytes_of(runner, others), pool[written]
    out = driver.send(new_slots=new_slots({0: a}), growth=growth({0: pages[0]}), rows=rows({0: 96, 1: 64}))
    assert bytes_of(runner, others) == before, "history, spare pages and pages of nobody stay as they were"
    same = (pool[written] == due).reshape(-1, runner.cache.geometry.block_bytes)
    assert not same.all(-1).any(), "every head's block of the chunks was written"
    answers = [[token] for token in out]
    for _ in range(3):
        drawn = driver.send(rows=wire.Rows(slot=uint16(0, 1)))
        answers = [[*answer, token] for answer, token in zip(answers, drawn, strict=True)]
    assert answers == alone


@pytest.mark.parametrize("length", [1, 3, 4, 5, 16, 17, 22])
@pytest.mark.parametrize("bos", [[BOS], []])
def test_CP06_positions_of_a_prompt_in_chunks_are_those_of_the_prompt_in_one_piece(
    make_runner: Make, bos: list[int], length: int
) -> None:
    prompt = [*bos, *IDS[:length]]
    found = {}
    for chunk in (4, len(prompt)):
        driver = Driver(make_runner(page_size=4, invariant=True))
        memory(driver.runner.cache.pool)[:] = 0
        step, pages = driver.runner.step, [9, 3, 5, 1, 7, 2]
        parts: dict[str, object] = {"new_slots": new_slots({2: prompt}), "growth": growth({2: pages})}
        tokens, positions, places, out = [], [], [], []
        for start in range(0, len(prompt), chunk):
            size = min(chunk, len(prompt) - start)
            out += driver.send(rows=rows({2: size}, [int(start + size == len(prompt))]), **parts)
            parts = {}
            tokens += step.token[:size].tolist()
            positions += step.position[:size].tolist()
            places += step.kv_index[:size].tolist()
        held = bytes_of(driver.runner, pages)
        found[chunk] = tokens, positions, places, out, held
    whole = found[len(prompt)]
    assert whole[:2] == (prompt, list(range(len(prompt))))
    assert found[4] == whole

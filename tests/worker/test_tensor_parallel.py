"""Ranks together compute what one worker computes. They run in threads here; tests/e2e has the processes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from octavo.v1 import step_pb2 as wire
from octavo_worker.config import WorkerConfig
from octavo_worker.errors import GroupLost, PlanRefused
from octavo_worker.runner import Runner
from safetensors.torch import load_file, save_file

from tests.doubles.rank_threads import GroupInThreads
from tests.doubles.tiny_model import make_tiny_model
from tests.pools import memory
from tests.worker.gguf_files import write_gguf
from tests.worker.plans import Driver, growth, moves, new_slots, rows, uint16

PROMPT = np.random.default_rng(3).integers(3, 320, 40).tolist()
Make = Callable[..., Runner]
SETTINGS: dict[str, Any] = {"dtype": "float32", "pages": 64, "max_context": 512, "threads": 1}


def group_of(size: int, model: Path, kernels: str, **settings: Any) -> GroupInThreads:
    return GroupInThreads(WorkerConfig(**{**SETTINGS, "model": model, "kernels": kernels, **settings}), size)


def logits_after(worker: Any, prompt: list[int] = PROMPT) -> torch.Tensor:
    """Of rank 0, or of the only one."""
    pages = list(range(1, 2 + len(prompt) // 16))
    Driver(worker).send(new_slots=new_slots({0: prompt}), growth=growth({0: pages}), rows=rows({0: len(prompt)}))
    (first, *_) = getattr(worker, "runners", [worker])
    worker.reset()
    return torch.tensor(np.asarray(first.decoder.logits)[0])


def same_answers(group: GroupInThreads, alone: Runner, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(logits_after(group), logits_after(alone), rtol=0, atol=tolerance)
    assert Driver(group).generate(PROMPT, 24) == Driver(alone).generate(PROMPT, 24)  # type: ignore[arg-type]


@pytest.mark.parametrize(("heads", "kv_heads", "size"), [(4, 4, 2), (8, 4, 2), (8, 4, 4), (6, 3, 3)])
def test_ranks_answer_what_one_worker_answers(
    make_runner: Make, kernels: str, heads: int, kv_heads: int, size: int, tmp_path: Path
) -> None:
    model = make_tiny_model(tmp_path, heads=heads, kv_heads=kv_heads, intermediate=96, vocab=323, tie=size != 2)
    group = group_of(size, model, kernels)
    same_answers(group, make_runner(model=model))
    assert all(rank.sums == group.ranks[0].sums > 2 * 2 * 24 for rank in group.ranks), "two a layer and step"


@pytest.mark.parametrize(("kv_heads", "size"), [(1, 2), (2, 4)])
def test_AS08_with_fewer_KV_heads_than_ranks_each_rank_holds_a_whole_one(
    make_runner: Make, kernels: str, kv_heads: int, size: int, tmp_path: Path
) -> None:
    model = make_tiny_model(tmp_path, heads=8, kv_heads=kv_heads)
    group = group_of(size, model, kernels)
    assert {runner.hello().geometry.num_kv_heads for runner in group.runners} == {1}
    same_answers(group, make_runner(model=model))


def test_each_rank_holds_its_part_of_the_matrices_and_of_every_page(
    make_runner: Make, kernels: str, tmp_path: Path
) -> None:
    model = make_tiny_model(tmp_path, hidden=128, heads=8, kv_heads=4, intermediate=256)
    group, alone = group_of(2, model, kernels), make_runner(model=model)
    assert {runner.hello().geometry.page_bytes for runner in group.runners} == {alone.hello().geometry.page_bytes // 2}
    (whole, *_), parts = alone.decoder.weights.layers, [runner.decoder.weights.layers[0] for runner in group.runners]
    for name in ("qkv", "output", "gate", "up", "down"):
        sizes = {getattr(layer, name).num_bytes for layer in parts}
        assert sizes == {getattr(whole, name).num_bytes // 2}


def test_biases_are_added_once(make_runner: Make, kernels: str, tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path, heads=8, kv_heads=4)
    tensors = load_file(model / "model.safetensors")
    for layer in range(2):
        for name, width in (("q", 128), ("k", 64), ("v", 64), ("o", 64)):
            bias = torch.randn(width, generator=torch.Generator().manual_seed(width + layer))
            tensors[f"model.layers.{layer}.self_attn.{name}_proj.bias"] = bias
    save_file(tensors, model / "model.safetensors")
    same_answers(group_of(2, model, kernels), make_runner(model=model))


@pytest.mark.parametrize("settings", [{"dtype": "bfloat16"}, {"weights": "int8"}, {"weights": "int4"}])
def test_lower_precision_stays_as_near_in_a_group(
    make_runner: Make, kernels: str, settings: dict[str, str], tmp_path: Path
) -> None:
    ops = make_runner().cache.ops
    if settings.get("weights", "float32") not in ops.formats:
        pytest.skip(f"{kernels} does not do {settings}")
    model = make_tiny_model(tmp_path, heads=8, kv_heads=4)
    truth = logits_after(make_runner(model=model))
    near, alone = (
        logits_after(group_of(2, model, kernels, **settings)),
        logits_after(make_runner(model=model, **settings)),
    )
    error, of_one = (float((each - truth).norm() / truth.norm()) for each in (near, alone))
    assert error < 1.2 * of_one


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0"])
def test_blocks_of_a_gguf_file_keep_their_values_in_parts(
    make_runner: Make, kernels: str, kind: str, tmp_path: Path
) -> None:
    if "int4" not in make_runner().cache.ops.formats:
        pytest.skip(f"{kernels} does not keep blocks")
    folder = make_tiny_model(tmp_path / "m", kv_heads=4)
    model = write_gguf(folder, tmp_path / "m.gguf", matrices=gguf.GGMLQuantizationType[kind])
    same_answers(group_of(2, model, kernels, weights="int4"), make_runner(model=model, weights="int4"), tolerance=5e-2)


def test_a_row_has_the_same_bits_in_any_batch_and_chunking_on_four_ranks(tmp_path: Path) -> None:
    """So the terms of a sum are added in one order, however many rows there are."""
    model = make_tiny_model(tmp_path, heads=8, kv_heads=4)
    group = group_of(4, model, "reference", invariant=True)
    assert group.runners[0].hello().batch_invariant
    truth = logits_after(group)
    for chunk in (1, 7, 39):
        driver = Driver(group)  # type: ignore[arg-type]
        parts: dict[str, Any] = {"new_slots": new_slots({0: PROMPT}), "growth": growth({0: [1, 2, 3]})}
        for start in range(0, len(PROMPT), chunk):
            driver.send(rows=rows({0: min(chunk, len(PROMPT) - start)}, [int(start + chunk >= len(PROMPT))]), **parts)
            parts = {}
        group.reset()
        assert np.array_equal(np.asarray(group.runners[0].decoder.logits)[0], truth.numpy())


def test_a_swap_moves_every_ranks_share_of_its_pages(kernels: str, tmp_path: Path) -> None:
    group = group_of(2, make_tiny_model(tmp_path, kv_heads=4), kernels, pages=4, host_pages=3)
    pools = [memory(runner.cache.pool) for runner in group.runners]
    for number, pool in enumerate(pools):
        pool[1] = 7 + number
    driver = Driver(group)  # type: ignore[arg-type]
    driver.send(swap_out=moves({1: 3}))
    driver.send(swap_in=moves({3: 2}))
    assert [set(pool[2].tolist()) for pool in pools] == [{7}, {8}]


def test_page_counts_are_those_of_the_rank_with_least_room(kernels: str, tiny: Path) -> None:
    config = WorkerConfig(**{**SETTINGS, "model": tiny, "kernels": kernels, "pages": 64, "host_pages": 9})
    group = GroupInThreads(config, 2, pages=17, host_pages=30)
    assert {(runner.limits.device_pages, runner.limits.host_pages) for runner in group.runners} == {(17, 9)}


def test_a_plan_that_cannot_be_applied_is_refused_by_all_ranks_and_the_group_goes_on(kernels: str, tiny: Path) -> None:
    group = group_of(2, tiny, kernels)
    driver = Driver(group)  # type: ignore[arg-type]
    with pytest.raises(PlanRefused, match="slot 5, which is not in use"):
        group.execute(wire.StepPlan(step=1, rows=wire.Rows(slot=uint16(5))))
    assert len(driver.generate(PROMPT, 3)) == 3


def test_a_step_that_fails_on_one_rank_ends_the_group(
    kernels: str, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = group_of(2, tiny, kernels)

    def out_of_memory(*_: object) -> None:
        group.ranks[0].table.barrier.abort()  # as the connections of a process that ends break
        raise MemoryError("no room")

    monkeypatch.setattr(group.runners[1].decoder, "replay", out_of_memory)
    with pytest.raises(GroupLost, match="rank 0: step 1 failed"):
        Driver(group).generate(PROMPT, 1)  # type: ignore[arg-type]


def test_ranks_that_sample_different_tokens_end_the_group(
    kernels: str, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = group_of(2, tiny, kernels)
    replay, sampled = group.runners[1].decoder.replay, group.runners[1].sampled

    def and_change_a_token() -> None:
        replay()
        sampled[0] += 1

    monkeypatch.setattr(group.runners[1].decoder, "replay", and_change_a_token)
    with pytest.raises(GroupLost, match="did something else than another rank"):
        Driver(group).generate(PROMPT, 1)  # type: ignore[arg-type]


def test_a_group_and_a_worker_alone_are_of_one_model_unless_ranks_round_their_own_columns(
    make_runner: Make, kernels: str, tiny: Path
) -> None:
    assert group_of(2, tiny, kernels).runners[0].hello().weights_digest == make_runner().hello().weights_digest
    if "int8" in make_runner().cache.ops.formats:
        alone = make_runner(weights="int8").hello().weights_digest
        assert group_of(2, tiny, kernels, weights="int8").runners[0].hello().weights_digest != alone

"""Who has which part of a model: everything once, KV heads where their queries are, and a sentence where it does not fit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from octavo_kernels.ops import Blocks
from octavo_worker.architecture import Architecture, from_huggingface
from octavo_worker.config import WorkerConfig
from octavo_worker.errors import ConfigError
from octavo_worker.folder import read_json
from octavo_worker.group.seat import per_rank
from octavo_worker.group.shard import Part, Shard, all_of
from octavo_worker.source import open_source

from tests.doubles.tiny_model import make_tiny_model
from tests.models import smollm2

SMOLLM2 = {"heads": 9, "kv_heads": 3, "intermediate": 1536, "hidden": 576, "head_dim": 64}


def architecture(tmp_path: Path, **shape: Any) -> Architecture:
    return from_huggingface(read_json(make_tiny_model(tmp_path, **shape) / "config.json"))


def columns_of(part: Part) -> list[int]:
    return list(range(part.start, part.stop))


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_every_query_inner_column_and_token_belongs_to_exactly_one_rank(size: int, tmp_path: Path) -> None:
    a = architecture(tmp_path, heads=8, kv_heads=2, vocab=323)
    for whole, name in ((a.q_width, "queries"), (a.intermediate, "inner"), (a.vocab, "vocabulary")):
        parts = [getattr(Shard(rank, size), name)(a) for rank in range(size)]
        assert [column for part in parts for column in columns_of(part)] == list(range(whole))
        assert max(part.stop - part.start for part in parts) == -(-whole // size), "what gathering makes room for"


@pytest.mark.parametrize(("kv_heads", "size"), [(1, 2), (2, 4), (4, 2), (4, 4), (2, 8), (8, 2)])
def test_AS08_every_rank_has_the_KV_heads_of_its_queries_and_at_least_one(
    kv_heads: int, size: int, tmp_path: Path
) -> None:
    a = architecture(tmp_path, heads=8, kv_heads=kv_heads)
    for rank in range(size):
        shard = Shard(rank, size)
        own, queries, keys = shard.of(a), shard.queries(a), shard.keys(a)
        assert own.kv_heads == max(1, kv_heads // size)
        assert (queries.stop - queries.start, keys.stop - keys.start) == (own.q_width, own.kv_width)
        for head in range(own.heads):
            query = queries.start // a.head_dim + head
            key = keys.start // a.head_dim + head // (own.heads // own.kv_heads)
            assert key == query // (a.heads // a.kv_heads), "as in the whole model"


def test_smollm2_is_not_cut_in_two_and_the_sentence_says_why_and_what_would_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        Shard(0, 2).of(architecture(tmp_path, **SMOLLM2))
    assert str(refusal.value) == (
        "--tensor-parallel-size 2 does not divide this model: it has 9 query heads, 3 KV heads and an inner width of 1536; "
        "3 would do"
    )
    assert Shard(2, 3).of(architecture(tmp_path, **SMOLLM2)).heads == 3


@pytest.mark.model
def test_the_real_smollm2_is_refused_likewise() -> None:
    with pytest.raises(ConfigError, match="9 query heads, 3 KV heads and an inner width of 1536; 3 would do"):
        Shard(0, 2).of(open_source(smollm2()).architecture)


@pytest.mark.parametrize(
    ("shape", "size"),
    [({"heads": 6, "kv_heads": 6}, 4), ({"heads": 12, "kv_heads": 4}, 6), ({"intermediate": 126}, 4), ({}, 8)],
)
def test_what_cannot_be_shared_out_evenly_is_refused(shape: dict[str, Any], size: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"--tensor-parallel-size {size} does not divide this model"):
        Shard(0, size).of(architecture(tmp_path, **shape))


def test_groups_that_share_a_scale_are_not_cut(tmp_path: Path) -> None:
    a = architecture(tmp_path, heads=4, head_dim=16, intermediate=128)
    assert Shard(0, 2).of(a, "int4").intermediate == 64
    assert Shard(0, 4).of(a, "bfloat16").heads == 1
    with pytest.raises(ConfigError, match="of which int4 takes 32 columns at a time; 2 would do"):
        Shard(0, 4).of(a, "int4")


def test_parts_of_blocks_are_blocks_unless_one_is_cut() -> None:
    data = np.random.default_rng(0).integers(0, 60, (6, 4 * 34), np.uint8)
    blocks = Blocks("Q8_0", data)
    kept = Part(128, 32, 96).of_columns(Part(6, 2, 5).of_rows(blocks))
    assert isinstance(kept, Blocks)
    assert np.array_equal(kept.floats(), blocks.floats()[2:5, 32:96], equal_nan=True)
    cut = Part(128, 16, 80).of_columns(blocks)
    assert np.array_equal(np.asarray(cut), blocks.floats()[:, 16:80], equal_nan=True)
    assert all_of(128).of_columns(blocks).shape == (6, 128)


def test_the_degree_is_part_of_the_digest_only_where_each_rank_rounds_its_own_columns() -> None:
    one, two = Shard(0, 1), Shard(1, 2)
    for format in ("float32", "bfloat16", "int4", "int8_groups"):
        assert two.digest(b"weights", format) == one.digest(b"weights", format) == b"weights"
    assert one.digest(b"weights", "int8") == b"weights"
    assert len({shard.digest(b"weights", "int8") for shard in (one, two, Shard(0, 4))}) == 3
    assert two.digest(b"weights", "int8") == Shard(0, 2).digest(b"weights", "int8")


@pytest.mark.parametrize(("device", "devices"), [("cuda", ["cuda:0", "cuda:1"]), ("cuda:4", ["cuda:4", "cuda:5"])])
def test_each_rank_has_a_gpu_of_its_own(device: str, devices: list[str]) -> None:
    config = WorkerConfig(model=Path("m"), device=device, tensor_parallel_size=2)
    assert [per_rank(config, rank).device for rank in range(2)] == devices
    assert per_rank(config, 1).threads is None


def test_ranks_on_cpus_share_cores_and_memory() -> None:
    config = per_rank(WorkerConfig(model=Path("m"), threads=8, tensor_parallel_size=2), 1)
    assert (config.device, config.threads, config.kv_memory_share) == ("cpu", 8, 0.15)

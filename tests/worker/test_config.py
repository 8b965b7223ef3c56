"""Flags and values that are refused, each with a sentence."""

from pathlib import Path

import pytest
from octavo_kernels.choice import pick
from octavo_kernels.ops import Geometry
from octavo_worker.cache import new_pool
from octavo_worker.config import WorkerConfig, parse_bytes
from octavo_worker.errors import ConfigError
from octavo_worker.flags import read_flags
from octavo_worker.precision import Precision, choose
from octavo_worker.runner import build_runner

BASE = ["--model", "m", "--scheduler", "ipc:///run/octavo.ipc"]


@pytest.mark.parametrize(
    ("text", "size"), [("1048576", 2**20), ("2GiB", 2**31), ("1.5 KiB", 1536), ("3MB", 3_000_000), ("7B", 7)]
)
def test_sizes_are_read_with_their_units(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "2 gigs", "-1MiB", "1e9"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a size"):
        parse_bytes(text)


def test_flags_become_one_frozen_configuration() -> None:
    config = read_flags([*BASE, "--kv-cache-memory", "1GiB", "--swap-space", "1MiB", "--invariant", "--max-slots", "9"])
    assert (config.model, config.kv_cache_memory, config.swap_space) == (Path("m"), 2**30, 2**20)
    assert (config.invariant, config.max_slots, config.page_size, config.dtype) == (True, 9, 16, "auto")
    with pytest.raises(AttributeError):
        config.max_slots = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--pages", "0"], "--pages lies between 1 and"),
        (["--page-size", "0"], "--page-size lies between 1 and 1024, not at 0"),
        (["--max-slots", "70000"], "--max-slots lies between 1 and 65535"),
        (["--threads", "0"], "--threads lies between"),
        (["--kv-memory-share", "1.5"], "--kv-memory-share lies above 0 and up to 0.95"),
        (["--pages", "5", "--kv-cache-memory", "1GiB"], "not allowed with argument"),
        (["--dtype", "int8"], "--dtype is one of auto, float32, bfloat16, float16, not 'int8'"),
        (["--weights", "int3"], "--weights is one of auto, float32, .* int4, not 'int3'"),
        (["--kv-dtype", "int4"], "--kv-dtype is one of auto, float32, .* fp8, not 'int4'"),
        (["--curve-key", "k"], "--curve-key and --curve-server-key go together"),
        (["--unknown"], "unrecognized arguments"),
    ],
)
def test_bad_flags_are_refused(flags: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_flags([*BASE, *flags])


def test_loopback_needs_no_keys_and_another_machine_does() -> None:
    for address in ("tcp://127.0.0.1:5", "tcp://localhost:5", "tcp://[::1]:5", "ipc:///run/x"):
        read_flags(["--model", "m", "--scheduler", address])
    for address in ("scheduler:5555", "127.example.org:5", "127.0.0.1.example.org:5", "0.0.0.0:5", "[::]:5", "*:5"):
        with pytest.raises(ConfigError, match="the link is not encrypted"):
            read_flags(["--model", "m", "--scheduler", f"tcp://{address}"])


def test_a_configuration_made_in_code_is_checked_too() -> None:
    with pytest.raises(ConfigError, match="--host-pages"):
        WorkerConfig(model=Path("m"), host_pages=-1)


def test_short_names_of_dtypes_will_do() -> None:
    config = read_flags([*BASE, "--dtype", "fp32", "--weights", "bf16", "--kv-dtype", "fp16"])
    assert (config.dtype, config.weights, config.kv_dtype) == ("float32", "bfloat16", "float16")


@pytest.mark.parametrize("flag", ["dtype", "weights", "kv_dtype"])
def test_a_dtype_that_does_not_exist_is_refused_in_code_too(flag: str) -> None:
    with pytest.raises(ConfigError, match=f"--{flag.replace('_', '-')} is one of auto, float32, .*, not 'int3'"):
        WorkerConfig(model=Path("m"), **{flag: "int3"})  # type: ignore[arg-type]


def test_auto_is_what_the_kernels_like_best_and_the_rest_follows(tiny: Path) -> None:
    ops = pick("cpu", "reference")
    assert choose(WorkerConfig(model=tiny), ops) == Precision("float32", "float32", "float32")
    assert choose(WorkerConfig(model=tiny, dtype="float16"), ops) == Precision("float16", "float16", "float16")
    mixed = WorkerConfig(model=tiny, weights="bfloat16", kv_dtype="float16")
    assert choose(mixed, ops) == Precision("float32", "bfloat16", "float16")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"weights": "int4"}, "--weights int4 is nothing that the reference kernels do; they do float32, bfloat16"),
        ({"weights": "fp8"}, "--weights fp8 is nothing that the reference kernels do; they do float32, bfloat16"),
        ({"kv_dtype": "int8"}, "--kv-dtype int8 is nothing that the reference kernels do; they do float32, bfloat16"),
        ({"invariant": True, "dtype": "bfloat16"}, "--dtype bfloat16 is nothing .* they do float32$"),
    ],
)
def test_what_the_kernels_cannot_do_is_one_sentence_that_lists_what_they_can(
    tiny: Path, settings: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        build_runner(WorkerConfig(model=tiny, kernels="reference", **settings))  # type: ignore[arg-type]


def test_a_pool_that_memory_cannot_hold_is_one_sentence() -> None:
    geometry = Geometry(page_size=16, num_layers=30, num_kv_heads=3, head_dim=64, dtype="float32")
    with pytest.raises(ConfigError, match=r"pages take .* GiB, more than there is"):
        new_pool(geometry, 2**30, ops := pick("cpu", "reference"), ops.new_pool)

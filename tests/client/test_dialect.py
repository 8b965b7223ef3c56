"""Settings in the words of other engines."""

from pathlib import Path
from typing import Any

import pytest
from octavo_client import device, dialect, errors
from octavo_client.dialect import translate
from octavo_client.settings import scheduler_flags, worker_flags


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(device, "NVIDIA", tmp_path / "none")


class CustomAttention:
    pass


def test_the_settings_of_another_engine_become_flags_of_ours() -> None:
    with pytest.warns(UserWarning, match="int8 is as small"):
        ours = translate(
            "model",
            {
                "dtype": "bfloat16",
                "gpu_memory_utilization": 0.9,
                "max_num_seqs": 100,
                "tensor_parallel_size": 2,
                "max_num_batched_tokens": 4096,
                "enable_chunked_prefill": True,
                "chunked_prefill_token_size": 512,
                "block_size": 32,
                "swap_space": 4,
                "load_in_low_bit": "fp8",
                "attention_class": CustomAttention,
            },
        )
    assert " ".join(scheduler_flags(ours)) == "--max-num-seqs 100 --max-step-tokens 4096 --max-chunk 512"
    flags = worker_flags(ours)
    assert set(zip(flags[::2], flags[1::2], strict=True)) == {
        ("--device", "cpu"),
        ("--page-size", "32"),
        ("--max-slots", "100"),
        ("--max-step-tokens", "4096"),
        ("--dtype", "bfloat16"),
        ("--weights", "int8"),
        ("--gpu-memory-utilization", "0.9"),
        ("--swap-space", "4096MiB"),
        ("--tensor-parallel-size", "2"),
        ("--ops", f"{Path(__file__).resolve()}:CustomAttention"),
    }


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"load_in_low_bit": "sym_int4"}, {"weights": "int4"}),
        ({"quantization": "awq"}, {}),
        ({"data_parallel_size": 3}, {"num_workers": 3}),
        ({"enforce_eager": True, "disable_log_stats": True, "tokenizer_mode": "auto", "pipeline_parallel_size": 1}, {}),
        ({"tokenizer": "model", "revision": None, "max_model_len": None}, {}),
        ({"enable_prefix_caching": False}, {"enable_prefix_caching": False}),
    ],
)
def test_other_words_for_what_is_done_here_are_taken(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    assert translate("model", theirs) == ours | {"device": "cpu"}


@pytest.mark.parametrize(
    ("theirs", "sentence"),
    [
        ({"tokenizer": "another"}, "tokenizer is not for choice here, other than as the model's own"),
        ({"pipeline_parallel_size": 2}, "pipeline_parallel_size is not for choice here, other than as 1"),
        ({"revision": "v2"}, "revision is not for choice here, other than as 'main'"),
        ({"load_in_low_bit": "nf3"}, "weights in 'nf3' are not known here; fp8, "),
        ({"attention_class": int}, "attention_class must be a class in a file"),
    ],
)
def test_what_is_not_done_here_is_refused_with_a_sentence(theirs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(errors.ConfigError, match=sentence):
        translate("model", theirs)


@pytest.mark.parametrize(
    ("theirs", "sentence"),
    [
        ({"trust_remote_code": True}, "code in model folders is never run"),
        ({"enable_chunked_prefill": False}, "always computed in chunks"),
    ],
)
def test_what_is_done_otherwise_and_harms_nobody_is_a_warning(theirs: dict[str, Any], sentence: str) -> None:
    with pytest.warns(UserWarning, match=sentence):
        assert translate("model", theirs) == {"device": "cpu"}


def test_on_a_gpu_fp8_stays_fp8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect, "best_device", lambda: "cuda")
    assert translate("model", {"load_in_low_bit": "fp8"}) == {"device": "cuda", "weights": "fp8"}


def test_a_prefix_cache_that_is_not_wanted_is_off() -> None:
    assert scheduler_flags({"enable_prefix_caching": False}) == ["--no-prefix-cache"]
    assert scheduler_flags({"enable_prefix_caching": True}) == []


def test_without_a_driver_nothing_looks_for_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert device.best_device() == "cpu"
    monkeypatch.setattr(device, "NVIDIA", tmp_path)
    monkeypatch.setattr(device, "version", lambda _: "2.13.0+cpu")
    assert device.best_device() == "cpu"
    monkeypatch.setattr(device, "version", lambda _: "2.13.0")
    assert device.best_device() == "cuda"

"""Headers that claim what is not there: one sentence each, and nothing is allocated because a header says so."""

import json
import shutil
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from octavo.gguf_header import MAX_ELEMENTS, BadHeader, read_header
from octavo_scheduler.errors import StartError
from octavo_scheduler.model import load_model
from octavo_worker.architecture import from_gguf, from_huggingface
from octavo_worker.errors import ModelError
from octavo_worker.folder import INDEX, Folder
from octavo_worker.gguf_file import GgufFile
from octavo_worker.manifest import read_manifest
from octavo_worker.source import open_source
from octavo_worker.tensors import TensorFile
from safetensors.numpy import load_file

from tests.doubles.tiny_model import make_tiny_model
from tests.security.files import (
    ARRAY,
    BOOL,
    FLOAT64,
    STRING,
    UINT8,
    UINT32,
    array,
    entry,
    gguf,
    place,
    safetensors,
    tensor,
    text,
)

HUGE = [2**31 - 1, 2**32, 2**40, 2**62, 2**63, 2**64 - 1]
MOST_BYTES = 2 << 20
"""What reading a small file may take, whatever it claims."""


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


def number(value: int) -> bytes:
    return struct.pack("<I", value)


BAD_GGUF: dict[str, bytes] = {
    "nothing": b"",
    "another magic": b"GGML" + gguf()[4:],
    "version 1": gguf(version=1),
    "the other byte order": gguf(version=3 << 24),
    "an unknown type": gguf([entry("a", 99, b"")]),
    "an array of an unknown type": gguf([entry("a", ARRAY, array(13, b"", 0))]),
    "an array of arrays": gguf([entry("a", ARRAY, array(ARRAY, array(UINT8, b"", 0) * 2, 2))]),
    "arrays in arrays, a thousand deep": gguf([entry("a", ARRAY, array(ARRAY, b"", 1) * 1000)]),
    "a key twice": gguf([entry("a", UINT8, b"\0")] * 2),
    "a key that is no text": gguf([entry(b"\xff\xfe", UINT8, b"\0")]),
    "a text that is none": gguf([entry("a", STRING, text(b"\xff\xfe"))]),
    "a tensor twice": gguf([], [tensor("a", [4]), tensor("a", [4], 32)]),
    "a tensor without dimensions": gguf([], [tensor("a", [])]),
    "a tensor of five dimensions": gguf([], [tensor("a", [1] * 5)]),
    "a tensor of nothing": gguf([], [tensor("a", [4, 0])]),
    "a tensor of an unknown type": gguf([], [tensor("a", [4], kind=9999)]),
    "a tensor of a type that is gone": gguf([], [tensor("a", [4], kind=4)]),
    "a part of a block": gguf([], [tensor("a", [31], kind=2)]),
    "tensors that overlap": gguf([], [tensor("a", [16]), tensor("b", [16], 32)]),
    "one tensor inside another": gguf([], [tensor("a", [64]), tensor("b", [4], 32)]),
    "a tensor that is not aligned": gguf([], [tensor("a", [4], 4)]),
    "a tensor that ends behind the file": gguf([], [tensor("a", [65])]),
    "sizes that overflow in 64 bits": gguf([], [tensor("a", [2**32, 2**32])]),
    "sizes that overflow to something small": gguf([], [tensor("a", [2**62, 4, 1, 4])]),
    "an alignment of 0": gguf([entry("general.alignment", UINT32, number(0))]),
    "an alignment of 3": gguf([entry("general.alignment", UINT32, number(3))]),
    "an alignment of 2 GiB": gguf([entry("general.alignment", UINT32, number(2**31))]),
    "an alignment in words": gguf([entry("general.alignment", STRING, text("32"))]),
    "an alignment that is infinite": gguf([entry("general.alignment", FLOAT64, struct.pack("<d", float("inf")))]),
    "an alignment that is true": gguf([entry("general.alignment", BOOL, b"\1")]),
    **{f"{n} values": gguf(num_values=n) for n in HUGE},
    **{f"{n} tensors": gguf(num_tensors=n) for n in HUGE},
    **{f"a key of {n} bytes": gguf([text(b"a", n)]) for n in HUGE},
    **{f"a text of {n} bytes": gguf([entry("a", STRING, text(b"a", n))]) for n in HUGE},
    **{f"a name of {n} bytes": gguf([], [text(b"a", n)]) for n in HUGE},
    **{f"{n} texts": gguf([entry("a", ARRAY, array(STRING, b"", n))]) for n in HUGE},
    **{f"{n} bytes in an array": gguf([entry("a", ARRAY, array(UINT8, b"", n))]) for n in HUGE},
    **{f"{n} dimensions": gguf([], [tensor("a", [1], dimensions=n)]) for n in HUGE if n < 2**32},
    **{f"a tensor of {n}": gguf([], [tensor("a", [n])]) for n in HUGE},
    **{f"an offset of {n}": gguf([], [tensor("a", [1], n)]) for n in HUGE},
}


@pytest.mark.parametrize("name", BAD_GGUF)
def test_a_gguf_file_that_claims_what_is_not_there_is_one_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(BAD_GGUF[name])
    with little_memory(), pytest.raises(ModelError, match=r"^\S+bad\.gguf is not a whole GGUF file: [^\n]+$"):
        GgufFile(path)
    with little_memory(), pytest.raises(StartError, match=r"^\S+bad\.gguf [^\n]+$"):
        load_model(path)


@pytest.mark.parametrize("with_arrays", [True, False])
def test_what_is_true_is_read(with_arrays: bool) -> None:
    values = [
        entry("s", STRING, text("é")),
        entry("n", UINT32, number(7)),
        entry("t", ARRAY, array(STRING, text("a") + text("b"), 2)),
        entry("b", ARRAY, array(UINT8, b"\1\2\3", 3)),
    ]
    header = read_header(gguf(values, [tensor("x", [2, 3], 32)]), with_arrays=with_arrays)
    arrays = {"t": ["a", "b"], "b": [1, 2, 3]} if with_arrays else {"t": None, "b": None}
    assert header.metadata == {"s": "é", "n": 7, **arrays}
    assert [(name, each.shape, each.offset) for name, each in header.tensors.items()] == [("x", (3, 2), 32)]


def test_an_array_of_the_longest_length_is_read_and_a_longer_one_is_not() -> None:
    whole = gguf([entry("a", ARRAY, array(UINT8, bytes(MAX_ELEMENTS), MAX_ELEMENTS))])
    assert read_header(whole, with_arrays=False)
    with pytest.raises(BadHeader, match=f"claims to have {MAX_ELEMENTS + 1} elements"):
        read_header(
            gguf([entry("a", ARRAY, array(UINT8, bytes(MAX_ELEMENTS + 1), MAX_ELEMENTS + 1))]), with_arrays=False
        )


NUMBERS = {"general.architecture": "llama", "llama.attention.layer_norm_rms_epsilon": 1e-5} | {
    f"llama.{name}": 64
    for name in ("attention.head_count", "embedding_length", "block_count", "feed_forward_length", "context_length")
}


@pytest.mark.parametrize("value", [None, "many", float("inf"), float("nan"), -1, 0, 2**63, [1]])
@pytest.mark.parametrize("key", [key for key in NUMBERS if key != "general.architecture"])
def test_metadata_of_the_wrong_type_or_size_is_a_model_error(key: str, value: object) -> None:
    if key.endswith("epsilon") and value == 0:
        return
    with pytest.raises(ModelError, match=r"^[^\n]+$"):
        from_gguf(NUMBERS | {key: value, "llama.attention.key_length": 2}, 10)


CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "intermediate_size": 8,
    "vocab_size": 8,
    "max_position_embeddings": 8,
    "head_dim": 16,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
}


@pytest.mark.parametrize("value", ["many", float("inf"), float("nan"), -1, 2**63, [1], {"a": 1}])
@pytest.mark.parametrize("key", CONFIG)
def test_a_configuration_of_the_wrong_type_or_size_is_a_model_error(key: str, value: object) -> None:
    if key == "rope_theta" and value == 2**63:
        return
    with pytest.raises(ModelError, match=r"^[^\n]+$"):
        from_huggingface(CONFIG | {key: value})


BAD_SAFETENSORS: dict[str, bytes] = {
    "nothing": b"",
    "half a size": b"\1\0\0",
    "no header": safetensors(b""),
    "no JSON": safetensors(b"{"),
    "a list": safetensors(b"[]"),
    "lists in lists": safetensors(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "no UTF-8": safetensors(b'{"\xff": 1}'),
    "no place": safetensors({"a": {}}),
    "a place that is none": safetensors({"a": 7}),
    "an unknown dtype": safetensors({"a": place("F31")}),
    "a dtype that is a number": safetensors({"a": place(32)}),
    "a negative size": safetensors({"a": place(shape=[-4, -4])}),
    "a size of half": safetensors({"a": place(shape=[4.5])}),
    "a size in words": safetensors({"a": place(shape=["16"])}),
    "fewer bytes than its shape": safetensors({"a": place(shape=[4, 5])}),
    "more bytes than its shape": safetensors({"a": place(shape=[4, 3])}),
    "sizes that overflow to something small": safetensors({"a": place(shape=[2**62, 4, 1, 4], end=64)}),
    "a negative offset": safetensors({"a": place(start=-64, end=0)}),
    "an end before the start": safetensors({"a": place(start=64, end=0)}),
    "an end behind the file": safetensors({"a": place(shape=[8, 4], end=128)}),
    "two tensors in one place": safetensors({"a": place(), "b": place()}),
    "tensors that overlap": safetensors({"a": place(), "b": place(start=32, end=96)}, data=96),
    "a hole": safetensors({"a": place(shape=[2], end=8), "b": place(shape=[2], start=16, end=24)}, data=24),
    "bytes that belong to nobody": safetensors({"a": place()}, data=65),
    "metadata that is no text": safetensors({"__metadata__": {"a": 1}, "a": place()}),
    **{f"a header of {n} bytes": safetensors({"a": place()}, size=n) for n in HUGE},
    **{f"a tensor of {n}": safetensors({"a": place(shape=[n], end=4 * n)}) for n in HUGE},
    **{f"an offset of {n}": safetensors({"a": place(start=n, end=n + 64)}) for n in HUGE},
}


@pytest.mark.parametrize("name", BAD_SAFETENSORS)
def test_a_safetensors_file_that_claims_what_is_not_there_is_one_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(BAD_SAFETENSORS[name])
    with little_memory(), pytest.raises(ModelError, match=r"bad\.safetensors is not a whole safetensors file: [^\n]+$"):
        TensorFile(path)


def test_a_header_larger_than_any_model_has_is_not_even_parsed(tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    header = b'{"a":{"dtype":"F32","shape":[16],"data_offsets":[0,64]}}'.ljust((32 << 20) + 1)
    path.write_bytes(safetensors(header))
    with little_memory(), pytest.raises(ModelError, match="its header has 33554433 bytes; 33554432 is the most"):
        TensorFile(path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "model")


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../other/model.safetensors",
        "..",
        ".",
        "",
        "sub",
        "sub/model.safetensors",
        "nowhere",
        "a\0b",
        "\ud800",
    ],
)
def test_MF01_an_index_that_names_what_is_no_file_of_the_folder_is_refused(
    model: Path, name: str, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (model / "sub").mkdir()
    for folder in (other, model / "sub"):
        shutil.copy(model / "model.safetensors", folder)
    tensors = load_file(model / "model.safetensors")
    (model / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(tensors, name)}))
    with pytest.raises(ModelError, match="names files that are not in the folder"):
        Folder(model)


def test_MF01_a_link_leads_to_nothing_but_a_whole_safetensors_file(model: Path, tmp_path: Path) -> None:
    """Links are followed: the cache of Hugging Face consists of them. What they lead to is checked like any other file."""
    (tmp_path / "secret").write_text("password")
    (model / "link.safetensors").symlink_to(tmp_path / "secret")
    (model / INDEX).write_text(json.dumps({"weight_map": {"a": "link.safetensors"}}))
    with pytest.raises(ModelError, match=r"link\.safetensors is not a whole safetensors file") as caught:
        Folder(model)
    assert "password" not in str(caught.value)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, "9" * 5_000, "\x00", '{"a": 1e999'])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"])
def test_a_json_file_that_goes_too_deep_or_nowhere_is_one_sentence(model: Path, name: str, content: str) -> None:
    (model / name).write_text(content)
    with pytest.raises(StartError, match=r"^[^\n]+ (cannot be read|does not hold)[^\n]*$"):
        load_model(model)
    if name == "config.json":
        with pytest.raises(ModelError, match=r"^[^\n]+ (cannot be read|does not hold)[^\n]*$"):
            open_source(model)


@pytest.mark.parametrize(
    "change",
    [{"files": None}, {"files": []}, {"files": {"x": {}}}, {"original": "no digest"}, {"kernels": 5}, {"more": 1}],
)
def test_a_manifest_that_lacks_an_entry_or_has_a_bad_one_is_a_model_error(
    change: dict[str, object], tmp_path: Path
) -> None:
    texts = {"kernels": "a", "weight_layout": "b", "weights": "c", "dtype": "d", "original": "0" * 64}
    whole = {"format": "octavo engine", "version": 1, **texts, "files": {}}
    content = {key: value for key, value in (whole | change).items() if value is not None}
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match="lacks an entry or has a bad one"):
        read_manifest(tmp_path)


def _replaced(read: Callable[[], object]) -> str:
    with pytest.raises((ModelError, StartError)) as caught:
        read()
    return str(caught.value)


def test_a_directory_or_a_pipe_in_place_of_a_model_file_is_one_sentence(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.safetensors"):
        (tmp_path / name).mkdir()
    assert "is not a whole safetensors file" in _replaced(lambda: TensorFile(tmp_path / "b.safetensors"))
    assert "config.json" in _replaced(lambda: open_source(tmp_path / "a.gguf"))
    assert "config.json" in _replaced(lambda: load_model(tmp_path / "a.gguf"))

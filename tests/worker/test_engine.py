"""Engine folders: what was prepared is what is served, and what is damaged is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from octavo_worker.config import WorkerConfig
from octavo_worker.engine import Engine, matrices_of, vectors_of
from octavo_worker.errors import ConfigError, ModelError
from octavo_worker.manifest import is_engine, read_manifest, verify
from octavo_worker.precision import pick_kernels
from octavo_worker.prepare import main
from octavo_worker.runner import Runner, build_runner
from octavo_worker.source import open_source
from octavo_worker.tensors import ALIGNMENT, TensorFile, write_tensors
from octavo_worker.weights import Weights, load

from tests.doubles.tiny_model import make_tiny_model
from tests.kernels.implementations import CPU
from tests.worker.gguf_files import write_gguf
from tests.worker.plans import Driver

Make = Callable[..., Runner]
PROMPT = list(range(3, 40))
FORMATS = [("reference", "float32"), ("reference", "bfloat16")]
FORMATS += [("cpu", name) for name in ("float32", "bfloat16", "int8", "int8_groups", "int4")] if CPU else []
FORMATS += [("triton", name) for name in ("bfloat16", "fp8", "int8", "int8_groups", "int4")]


def prepared(model: Path, folder: Path, *, kernels: str = "reference", weights: str = "float32") -> Path:
    folder.mkdir()
    assert main([str(model), str(folder), "--kernels", kernels, "--weights", weights]) == 0
    return folder


@pytest.fixture
def engine(tiny: Path, tmp_path: Path) -> Path:
    return prepared(tiny, tmp_path / "engine")


def assert_same(ours: Weights, truth: Weights) -> None:
    """Bit for bit."""
    assert ours.architecture == truth.architecture
    for (name, mine), (other, theirs) in zip(matrices_of(ours), matrices_of(truth), strict=True):
        assert (name, mine.format, mine.outputs, mine.inputs) == (other, theirs.format, theirs.outputs, theirs.inputs)
        assert mine.parts.keys() == theirs.parts.keys()
        assert all(np.array_equal(mine.parts[part], theirs.parts[part]) for part in theirs.parts)
    for (name, vector), (other, expected) in zip(vectors_of(ours), vectors_of(truth), strict=True):
        assert name == other
        assert np.array_equal(np.asarray(vector), np.asarray(expected))


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize(("kernels", "weights"), FORMATS)
def test_an_engine_folder_holds_the_weights_of_its_model_bit_for_bit(
    kernels: str, weights: str, tie: bool, tmp_path: Path
) -> None:
    """Also with odd widths, and a head of its own, or none that would be stored twice."""
    model = make_tiny_model(tmp_path / "model", tie=tie, hidden=96, heads=6, kv_heads=3, head_dim=10, intermediate=100)
    folder = prepared(model, tmp_path / "engine", kernels=kernels, weights=weights)
    ops = pick_kernels(WorkerConfig(model=model, kernels=kernels))
    truth = load(open_source(model), ops, weights, lambda done, total: None)
    assert_same(Engine(folder).load(ops), truth)
    names = TensorFile(folder / "weights.safetensors").places
    has_head = not tie or weights == "int8"  # once rotated, the head differs from the embedding
    assert any(name.startswith("head.") for name in names) is has_head


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
@pytest.mark.parametrize(("kernels", "weights"), FORMATS)
def test_a_gguf_file_may_be_prepared_as_well(kernels: str, weights: str, kind: str, tiny: Path, tmp_path: Path) -> None:
    model = write_gguf(tiny, tmp_path / "tiny.gguf", matrices=gguf.GGMLQuantizationType[kind])
    folder = prepared(model, tmp_path / "engine", kernels=kernels, weights=weights)
    ops = pick_kernels(WorkerConfig(model=model, kernels=kernels))
    truth = load(open_source(model), ops, weights, lambda done, total: None)
    assert_same(Engine(folder).load(ops), truth)
    if weights == "int4":
        assert truth.layers[0].qkv.format == {"Q8_0": "int8_groups"}.get(kind, "int4")


def test_a_worker_answers_from_an_engine_folder_as_from_the_model(
    make_runner: Make, kernels: str, tiny: Path, tmp_path: Path
) -> None:
    folder = prepared(tiny, tmp_path / "engine", kernels=kernels)
    ours, truth = make_runner(model=folder), make_runner()
    assert Driver(ours).generate(PROMPT, 20) == Driver(truth).generate(PROMPT, 20)
    assert ours.hello().weights_digest == truth.hello().weights_digest


def test_scaled_rope_outlives_the_preparation(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling["original_max_position_embeddings"] = 64
    (model / "config.json").write_text(json.dumps(config | {"rope_scaling": scaling}))
    ops = pick_kernels(WorkerConfig(model=model, kernels="reference"))
    found = Engine(prepared(model, tmp_path / "engine")).load(ops).rope_frequencies
    assert np.array_equal(found, open_source(model).rope_frequencies())


def test_tensors_lie_where_kernels_read_them(tmp_path: Path) -> None:
    """Whole cache lines first; one that is none puts at most those behind it off."""
    sizes = {"odd": 3, "line": 16, "lines": 64, "other": 5}
    write_tensors(tmp_path / "t", {name: np.full(n, n, np.float32) for name, n in sizes.items()}, {"odd": "yes"})
    file = TensorFile(tmp_path / "t")
    assert file.metadata == {"odd": "yes"}
    assert {name: file.read(name).tolist() for name in sizes} == {name: [n] * n for name, n in sizes.items()}
    assert [file.places[name].offset % ALIGNMENT for name in ("line", "lines", "odd")] == [0, 0, 0]


def test_an_engine_folder_decides_what_the_flags_leave_open(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    folder.mkdir()
    words = ["--kernels", "reference", "--weights", "bf16", "--dtype", "bf16"]
    assert main([str(tiny), str(folder), *words]) == 0
    runner = build_runner(WorkerConfig(model=folder, pages=4))
    assert (runner.precision.dtype, runner.precision.weights) == ("bfloat16", "bfloat16")
    runner = build_runner(WorkerConfig(model=folder, pages=4, dtype="float32"))
    assert (runner.precision.dtype, runner.precision.weights) == ("float32", "bfloat16")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"weights": "int4"}, "was prepared for --weights float32, not int4; leave it out or prepare the model again"),
        ({"kernels": "cpu"}, "was prepared for --kernels reference, not cpu; leave it out or prepare the model again"),
    ],
)
def test_other_kernels_or_weights_than_prepared_are_refused(
    settings: dict[str, str], sentence: str, engine: Path
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        build_runner(WorkerConfig(model=engine, **settings))  # type: ignore[arg-type]


def change_manifest(engine: Path, **changes: object) -> None:
    path = engine / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"format": "another"}, "is no manifest of an engine folder"),
        ({"version": 2}, "is an engine folder of version 2, not 1; prepare the model again"),
        ({"weight_layout": "ref.columns"}, "in the layout ref.columns, and the kernels read ref.rows; prepare"),
        ({"files": None}, "lacks an entry or has a bad one"),
        ({"files": {"weights.safetensors": {"bytes": 5}}}, "lacks an entry or has a bad one"),
        ({"files": {"../w": {"bytes": 5, "sha256": ""}}}, r"lacks \.\./w, which its manifest names"),
        ({"original": "0123"}, "lacks an entry or has a bad one: a name or digest is none"),
        ({"original": "tea"}, "lacks an entry or has a bad one"),
        ({"kernels": 7}, "lacks an entry or has a bad one"),
        ({"colour": "blue"}, "lacks an entry or has a bad one"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(changes: dict[str, object], sentence: str, engine: Path) -> None:
    change_manifest(engine, **changes)
    with pytest.raises(ModelError, match=sentence):
        build_runner(WorkerConfig(model=engine))


def test_a_file_that_is_missing_or_has_another_size_is_refused_at_once(engine: Path) -> None:
    weights = engine / "weights.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-1])
    with pytest.raises(ModelError, match=rf"weights\.safetensors has {len(data) - 1} bytes, not {len(data)}"):
        build_runner(WorkerConfig(model=engine))
    weights.unlink()
    with pytest.raises(ModelError, match=r"lacks weights\.safetensors, which its manifest names"):
        build_runner(WorkerConfig(model=engine))


def test_weights_that_contradict_the_architecture_are_refused(engine: Path) -> None:
    config = json.loads((engine / "config.json").read_text())
    for changes in ({"num_hidden_layers": 3}, {"intermediate_size": 96}, {"hidden_size": 32}, {"head_dim": 32}):
        (engine / "config.json").write_text(json.dumps(config | changes))
        files = json.loads((engine / "manifest.json").read_text())["files"]
        files["config.json"]["bytes"] = (engine / "config.json").stat().st_size
        change_manifest(engine, files=files)
        with pytest.raises(ModelError, match=r"weights\.safetensors does not hold what config\.json says"):
            build_runner(WorkerConfig(model=engine))


def test_any_damage_to_the_header_is_read_or_refused_but_never_crashes(engine: Path) -> None:
    path = engine / "weights.safetensors"
    data = path.read_bytes()
    refused = 0
    for place in range(0, 3_000, 11):
        path.write_bytes(data[:place] + b"7" + data[place + 1 :])
        try:
            build_runner(WorkerConfig(model=engine, pages=4))
        except ModelError:
            refused += 1
    assert refused > 100


def test_verifying_finds_a_changed_byte(engine: Path) -> None:
    assert main([str(engine), "--verify"]) == 0
    path = engine / "weights.safetensors"
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    read_manifest(engine)
    with pytest.raises(ModelError, match=r"weights\.safetensors is not what was prepared: its SHA-256 differs"):
        verify(engine)
    assert main([str(engine), "--verify"]) == 2


def test_the_manifest_covers_what_lay_there_before(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    folder.mkdir()
    shutil.copy(tiny / "tokenizer.json", folder)
    main([str(tiny), str(folder), "--kernels", "reference"])
    assert is_engine(folder)
    assert set(read_manifest(folder).files) == {"config.json", "tokenizer.json", "weights.safetensors"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["NOWHERE", "OUT"], "nowhere does not exist"),
        (["ENGINE", "OUT"], "is an engine folder already; prepare the model it was made from"),
        (["TINY", "OUT", "--weights", "fp8", "--kernels", "reference"], "--weights fp8 is nothing that the reference"),
        (["TINY", "OUT", "--weights", "int3"], "--weights is one of auto, "),
        (["TINY"], "the folder to write into is missing"),
        (["TINY", "--verify"], "manifest.json cannot be read"),
    ],
)
def test_what_cannot_be_prepared_is_one_sentence(
    words: list[str], sentence: str, tiny: Path, engine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"TINY": tiny, "ENGINE": engine, "NOWHERE": tmp_path / "nowhere", "OUT": tmp_path / "out"}
    assert main([str(places.get(word, word)) for word in words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("octavo prepare: ")
    assert sentence in error
    assert error.count("\n") == 1

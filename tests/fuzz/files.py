"""Model files with mutated headers, read by scheduler and worker: served, or refused with one sentence."""

import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import gguf
from octavo_kernels.choice import pick
from octavo_scheduler.errors import InvalidRequest, StartError
from octavo_scheduler.model import load_model
from octavo_worker.config import WorkerConfig
from octavo_worker.engine import CONFIG, WEIGHTS, Engine
from octavo_worker.errors import ModelError
from octavo_worker.folder import INDEX
from octavo_worker.gguf_file import GgufFile
from octavo_worker.manifest import NAME as MANIFEST
from octavo_worker.prepare import prepare
from octavo_worker.source import open_source
from octavo_worker.tensors import TensorFile
from octavo_worker.weights import load

from tests.doubles.tiny_model import make_tiny_model
from tests.fuzz.findings import Findings
from tests.fuzz.mutate import mutated
from tests.worker.gguf_files import write_gguf

OPS = pick("cpu", "reference")
MOST_SECONDS = 1.0
"""Of this process's own time, for one file of fifty kilobytes."""
MOST_GROWTH_KB = 256 << 10
SHAPE = {"hidden": 32, "layers": 1, "heads": 2, "kv_heads": 1, "head_dim": 16, "intermediate": 32, "vocab": 270}


class FileFuzzer:
    """A whole model of each kind; one file of it is another in each case."""

    def __init__(self, folder: Path) -> None:
        self.findings = Findings()
        self.folder = make_tiny_model(folder / "tiny", **SHAPE, max_context=64)  # type: ignore[arg-type]
        (self.folder / INDEX).write_text('{"weight_map": {"model.norm.weight": "model.safetensors"}}')
        self.gguf = write_gguf(
            self.folder, folder / "tiny.gguf", matrices=gguf.GGMLQuantizationType.F32, has_vocabulary=True
        )
        self.engine = make_engine(self.folder, folder / "engine")
        paths = (
            self.gguf,
            *sorted(self.folder.iterdir()),
            *(self.engine / name for name in (MANIFEST, CONFIG, WEIGHTS)),
        )
        self.files = {path: path.read_bytes() for path in paths}
        self.heads = {path: self.head_bytes(path) for path in self.files}
        self.began_with_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def head_bytes(self, path: Path) -> int:
        """How much of a file is not tensors."""
        if path == self.gguf:
            return min(place.offset for place in GgufFile(path).places.values())
        if path.suffix == ".safetensors":
            return min(place.offset for place in TensorFile(path).places.values())
        return len(self.files[path])

    def run(self, case: int) -> None:
        draw = random.Random(case)
        weights = [path for path in self.files if path.suffix == ".safetensors"]
        path = draw.choice([*[self.gguf] * 4, *weights * 2, *self.files])
        data, most = self.files[path], self.heads[path]
        if path == self.gguf and draw.randrange(2):
            most = draw.choice((32, 600, most))  # most of a header is its vocabulary
        content = mutated(draw, data, [data[: self.heads[path]]], most)
        if path == self.engine / WEIGHTS:  # the manifest knows how long it is
            content = content.ljust(len(data), b"\0")[: len(data)]
        path.write_bytes(content)
        self.findings.cases += 1
        try:
            for read in self.readers(path):
                self.judge(case, path.name, read)
        finally:
            path.write_bytes(data)

    def readers(self, path: Path) -> list[Callable[[], object]]:
        if path.parent == self.engine:
            return [lambda: Engine(self.engine).load(OPS)]
        model = self.gguf if path == self.gguf else self.folder
        return [lambda: read_as_worker(model), lambda: read_as_scheduler(model)]

    def judge(self, case: int, name: str, read: Callable[[], object]) -> None:
        began = time.process_time()
        try:
            read()
            self.findings.accepted += 1
        except (ModelError, StartError) as refusal:
            self.findings.refused += 1
            if "\n" in str(refusal) or len(str(refusal)) > 2000:
                self.findings.crash(case, refusal)
        except InvalidRequest:  # of a template that another file made useless
            self.findings.accepted += 1
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # libraries written in Rust panic with an exception of their own kind
            self.findings.crash(case, error)
        if (seconds := time.process_time() - began) > MOST_SECONDS:
            self.findings.state_change(case, f"{name} took {seconds:.1f} s")

    def close(self) -> None:
        grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self.began_with_kb
        if grown_kb > MOST_GROWTH_KB:
            self.findings.state_change(self.findings.cases, f"memory grew by {grown_kb >> 10} MiB")


def make_engine(model: Path, folder: Path) -> Path:
    """What `octavo prepare` makes of a model: for the reference, since what is mutated here are headers."""
    folder.mkdir()
    prepare(WorkerConfig(model=model, kernels="reference", weights="float32"), folder)
    return folder


def read_as_worker(model: Path) -> None:
    load(open_source(model), OPS, "float32", lambda done, total: None)


def read_as_scheduler(model: Path) -> None:
    """Reads, and uses what it has read."""
    served = load_model(model)
    ids = served.vocabulary.encode("the page <|im_end|> 你好")
    served.vocabulary.decode(ids)
    if served.template is not None:
        served.vocabulary.encode_chat(served.template, [("user", "hi <|im_start|>")])


def run(first: int, count: int) -> Findings:
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = FileFuzzer(Path(folder))
        for case in range(first, first + count):
            fuzzer.run(case)
        fuzzer.close()
    return fuzzer.findings

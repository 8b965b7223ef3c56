"""Ten pickles that would run a program, in every channel: none runs. And every program refuses to unpickle at all."""

import ast
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import gguf
import grpc
import numpy as np
import pytest
import zmq
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from octavo.v1 import admin_pb2, inference_pb2, step_pb2
from octavo_kernels.choice import pick
from octavo_scheduler.config import read_config
from octavo_scheduler.errors import StartError
from octavo_scheduler.keys import main as make_keys
from octavo_scheduler.model import load_model
from octavo_scheduler.roles import read_tokens
from octavo_scheduler.server import Scheduler
from octavo_worker.config import WorkerConfig
from octavo_worker.curve import load_keys
from octavo_worker.errors import ConfigError, ModelError
from octavo_worker.runner import build_runner
from octavo_worker.source import open_source
from octavo_worker.weights import load as load_weights
from safetensors.numpy import load_file, save_file

from tests.doubles.paper_process import PaperProcess
from tests.doubles.paper_worker import VOCAB_SIZE, PaperWorker
from tests.doubles.tiny_model import make_tiny_model
from tests.layout.tree import package_sources
from tests.patience import PATIENCE
from tests.security.gadgets import as_text, gadgets, load, messages_with
from tests.worker.gguf_files import write_gguf
from tests.worker.router import Router
from tests.worker.test_link import Worker

NAMES = list(gadgets(Path("/tmp/marker")))


@pytest.fixture
def marker() -> Iterator[Path]:
    """What the gadgets touch; it must not be there in the end."""
    with tempfile.TemporaryDirectory(prefix="m", dir="/tmp") as folder:
        yield Path(folder, "ran")
        assert not Path(folder, "ran").exists(), "a gadget ran"


@pytest.fixture(params=NAMES)
def gadget(request: pytest.FixtureRequest, marker: Path) -> bytes:
    return gadgets(marker)[request.param]


@pytest.mark.parametrize("how", ["loads", "_loads"])  # the latter is the unpickler in plain Python
@pytest.mark.parametrize("name", NAMES)
def test_each_gadget_runs_where_it_is_unpickled_and_not_under_the_hook(name: str, how: str) -> None:
    with tempfile.TemporaryDirectory(prefix="m", dir="/tmp") as folder:
        marker = Path(folder, "ran")
        assert load(gadgets(marker)[name], refused=True, how=how) == "unpickling is refused in this process\n"
        assert not marker.exists()
        load(gadgets(marker)[name], refused=False, how=how)
        assert marker.exists()


def programs() -> list[str]:
    """Modules that can be run: those that ask for their own name, and packages with a __main__."""
    return [source.module for source in package_sources() if '__name__ == "__main__"' in source.text] + [
        "octavo_client"
    ]


AS_A_PROGRAM = """
import pickle, runpy, sys
sys.argv[1:] = ["--help"]
try:
    runpy.run_module(MODULE, run_name="__main__")
except SystemExit:
    pass
print("it has ended")
pickle.loads(GADGET)
"""
# Compiles the kernels while Octavo is built, and is no part of a server.
BUILD_TOOLS = {"octavo_kernels.cpu.compile"}


@pytest.mark.parametrize("module", sorted(set(programs()) - BUILD_TOOLS))
def test_every_program_refuses_to_unpickle(module: str, marker: Path) -> None:
    code = AS_A_PROGRAM.replace("MODULE", repr(module)).replace("GADGET", repr(gadgets(marker)[NAMES[0]]))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert "it has ended" in done.stdout, done.stderr
    assert done.stderr.endswith("RuntimeError: unpickling is refused in this process\n")


def test_a_program_is_found_by_how_it_starts() -> None:
    assert {"octavo_scheduler.__main__", "octavo_worker.__main__", "octavo_scheduler.keys"} <= set(programs())
    assert ast.parse(AS_A_PROGRAM)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny", vocab=VOCAB_SIZE, layers=1)


METHODS = {
    f"/{service.full_name}/{method.name}": method
    for module in (inference_pb2, admin_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


async def test_in_every_field_of_every_gRPC_request_and_in_its_place(
    folder: Path, marker: Path, tmp_path: Path
) -> None:
    config = read_config(["--model", "tiny", "--listen", f"unix:{tmp_path}/g", "--workers", f"ipc://{tmp_path}/w"])
    scheduler = Scheduler(config, load_model(folder))
    await scheduler.start()
    worker = PaperProcess(scheduler.link.address, PaperWorker(page_size=16, pages=64))
    num_sent = 0
    async with grpc.aio.insecure_channel(scheduler.address) as channel:
        for name, method in METHODS.items():
            make: Any = channel.unary_stream if method.server_streaming else channel.unary_unary
            for gadget in gadgets(marker).values():
                frames = [gadget, *(m.SerializeToString() for m in requests(method.input_type, gadget))]
                metadata = (("x-gadget-bin", gadget), ("authorization", "Bearer " + gadget.hex()))
                for frame in frames:
                    await outcome(make(name)(frame, metadata=metadata, timeout=PATIENCE), method.server_streaming)
                num_sent += len(frames)
    assert num_sent > 10 * len(METHODS)
    await scheduler.stop(grace=0)
    worker.stop()


def requests(kind: Any, gadget: bytes) -> Iterator[Message]:
    """With the gadget in one field, and what else a request needs to be served: short answers, a prompt."""
    for message in messages_with(kind, gadget):
        options = getattr(message, "options", None)
        if options is not None:
            options.stopping.max_tokens = 1
            if hasattr(message, "prompt") and not message.HasField("prompt"):
                message.prompt.text = "text"
            if hasattr(message, "messages") and not message.messages:
                message.messages.add(role="user", content=as_text(gadget))
        yield message


async def outcome(call: Any, streams: bool) -> None:
    try:
        if streams:
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError:
        pass


def step_frames(kind: type[Message], gadget: bytes, epoch: step_pb2.Epoch, *left_out: str) -> Iterator[bytes]:
    """The gadget itself, and all messages that have it in a field, but for some bodies."""
    yield gadget
    for message in messages_with(cast(Descriptor, kind.DESCRIPTOR), gadget):
        message.epoch.CopyFrom(epoch)  # type: ignore[attr-defined]
        if message.WhichOneof("body") not in left_out:
            yield message.SerializeToString()


def test_in_every_field_that_a_worker_sends(folder: Path, gadget: bytes, tmp_path: Path) -> None:
    async def served() -> None:
        flags = ["--model", "tiny", "--listen", f"unix:{tmp_path}/g", "--workers", f"ipc://{tmp_path}/w"]
        scheduler = Scheduler(read_config(flags), load_model(folder))
        await scheduler.start()
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.setsockopt(zmq.LINGER, 0)
            dealer.connect(scheduler.link.address)
            hello = PaperWorker().hello("odd")
            hello.weights_digest, hello.kernels = gadget, as_text(gadget)
            hello.geometry.layout = hello.geometry.dtype = as_text(gadget)
            dealer.send(step_pb2.WorkerMessage(hello=hello).SerializeToString())
            answer = step_pb2.SchedulerMessage.FromString(await asyncio.to_thread(dealer.recv))
            assert answer.WhichOneof("body") == "welcome"
            for frame in step_frames(step_pb2.WorkerMessage, gadget, answer.epoch):
                dealer.send(frame)
            while not scheduler.loop.num_bad:
                await asyncio.sleep(0.01)
        assert not scheduler.failed.is_set()
        await scheduler.stop(grace=0)

    asyncio.run(served())


def test_in_every_field_that_a_scheduler_sends(folder: Path, gadget: bytes, tmp_path: Path) -> None:
    router = Router(tmp_path / "s")
    worker = Worker(
        build_runner(WorkerConfig(model=folder, kernels="reference", pages=16, max_context=64)), router.address
    )
    router.welcome()
    for frame in step_frames(step_pb2.SchedulerMessage, gadget, router.epoch, "goodbye", "refusal"):
        router.socket.send_multipart([router.peer, frame])
    router.send(plan=step_pb2.StepPlan(step=1, full=True))
    result = router.receive("result").result
    assert result.step == 1, "it refused what made no sense and goes on"
    worker.end()
    router.close()


SUFFIXES = ("pytorch_model.bin", "model.pt", "model.pth", "model.pkl", "training_args.bin", "model.ckpt", "data.npy")


def read_all(path: Path) -> None:
    """As scheduler and worker read a model."""
    load_model(path)
    load_weights(open_source(path), pick("cpu", "reference"), "float32", lambda done, total: None)


def test_in_a_model_folder_beside_the_weights(folder: Path, gadget: bytes, tmp_path: Path) -> None:
    model = Path(shutil.copytree(folder, tmp_path / "m"))
    for name in SUFFIXES:
        (model / name).write_bytes(gadget)
    with zipfile.ZipFile(model / "archive.pt", "w") as archive:
        archive.writestr("archive/data.pkl", gadget)
    (model / "modeling.py").write_bytes(b"raise SystemExit('code of a model ran')")
    read_all(model)


def test_in_a_model_folder_in_place_of_each_file(folder: Path, gadget: bytes, tmp_path: Path) -> None:
    for file in sorted(folder.iterdir()):
        model = Path(shutil.copytree(folder, tmp_path / file.name))
        (model / file.name).write_bytes(gadget)
        with pytest.raises((StartError, ModelError)):
            read_all(model)


def test_in_every_text_of_a_model_folder(folder: Path, gadget: bytes, tmp_path: Path) -> None:
    model = Path(shutil.copytree(folder, tmp_path / "m"))
    save_file(load_file(model / "model.safetensors"), model / "model.safetensors", metadata={"format": as_text(gadget)})
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        content = json.loads((model / name).read_text())
        hostile = {"auto_map": {"AutoModel": as_text(gadget)}, "torch_dtype": as_text(gadget), "extra": as_text(gadget)}
        (model / name).write_text(json.dumps(content | hostile))
    read_all(model)


def test_in_every_text_of_a_gguf_file(folder: Path, gadget: bytes, tmp_path: Path) -> None:
    """The file's vocabulary makes no tokenizer, so the scheduler refuses it, after it has read all of it."""
    texts: Any = {
        name: as_text(gadget) for name in ("general__name", "tokenizer__chat_template", "tokenizer__ggml__model")
    }
    path = write_gguf(folder, tmp_path / "m.gguf", matrices=gguf.GGMLQuantizationType.F32, **texts)
    load_weights(open_source(path), pick("cpu", "reference"), "float32", lambda done, total: None)
    with pytest.raises(StartError, match="has a vocabulary of kind"):
        load_model(path)


def test_in_place_of_a_model_file_of_any_name(gadget: bytes, tmp_path: Path) -> None:
    array = (
        np.lib.format.magic(1, 0) + b"v\0{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(120) + gadget
    )
    for name in (*SUFFIXES, "model.gguf", "model.safetensors"):
        for content in (gadget, array):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(ModelError):
                open_source(tmp_path / name)
            with pytest.raises(StartError):
                load_model(tmp_path / name)


def test_in_a_chat_template(folder: Path, gadget: bytes, tmp_path: Path) -> None:
    model = Path(shutil.copytree(folder, tmp_path / "m"))
    (model / "chat_template.jinja").write_text(as_text(gadget), encoding="utf-8")
    served = load_model(model)
    assert served.template is not None
    assert as_text(gadget)[:8] in served.template.render([("user", as_text(gadget))])


def test_in_files_of_keys_and_tokens(gadget: bytes, tmp_path: Path) -> None:
    make_keys([str(tmp_path / "keys")])
    for file in (tmp_path / "keys").rglob("*"):
        if file.is_file():
            file.write_bytes(gadget)
    with pytest.raises(StartError):
        read_tokens(tmp_path / "keys" / "scheduler" / "token")
    with pytest.raises(ConfigError):
        load_keys(tmp_path / "keys" / "worker" / "worker.key_secret", is_secret=True)

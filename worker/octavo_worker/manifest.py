"""manifest.json of an engine folder: what is in it, what it was made from, and for which kernels."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from octavo_worker.errors import ModelError
from octavo_worker.folder import read_json

NAME = "manifest.json"
FORMAT, VERSION = "octavo engine", 1


@dataclass(frozen=True, slots=True)
class Content:
    """One file."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """All of it. Names are those of Ops and of the worker's flags."""

    kernels: str
    weight_layout: str
    weights: str  # format that was asked for
    dtype: str  # what to compute in, unless the worker is told otherwise; may be "auto"
    original: str  # SHA-256 over the files it was made from
    files: dict[str, Content]


def is_engine(path: Path) -> bool:
    """Whether it is a folder that `octavo prepare` wrote."""
    return (path / NAME).is_file()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Into the folder that it describes."""
    content = {"format": FORMAT, "version": VERSION, **asdict(manifest)}
    (folder / NAME).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest:
    """Raises ModelError unless every file is there and as large as the manifest says."""
    content = read_json(folder / NAME)
    if content.pop("format", None) != FORMAT:
        raise ModelError(f"{folder / NAME} is no manifest of an engine folder")
    version = content.pop("version", None)
    if version != VERSION:
        raise ModelError(f"{folder} is an engine folder of version {version}, not {VERSION}; prepare the model again")
    try:
        manifest = parsed(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"{folder / NAME} lacks an entry or has a bad one: {error}") from error
    for name, expected in manifest.files.items():
        if "/" in name or not (folder / name).is_file():
            raise ModelError(f"{folder} lacks {name}, which its manifest names; prepare the model again")
        size = (folder / name).stat().st_size
        if size != expected.bytes:
            raise ModelError(f"{folder / name} has {size} bytes, not {expected.bytes}; prepare the model again")
    return manifest


def parsed(content: dict[str, Any]) -> Manifest:
    files = {str(name): Content(**entry) for name, entry in content.pop("files").items()}
    manifest = Manifest(**content, files=files)
    texts = (manifest.kernels, manifest.weight_layout, manifest.weights, manifest.dtype)
    if not all(isinstance(text, str) for text in texts) or len(bytes.fromhex(manifest.original)) != 32:
        raise ValueError("a name or digest is none")
    return manifest


def content_of(path: Path) -> Content:
    """Size and digest of a file."""
    return Content(path.stat().st_size, digest_of([path]).hex())


def digest_of(files: list[Path]) -> bytes:
    """SHA-256 over the bytes of the files, one after the other."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.digest()


def verify(folder: Path) -> Manifest:
    """Compare every byte with the manifest. Raises ModelError for the first file that differs."""
    manifest = read_manifest(folder)
    for name, expected in manifest.files.items():
        if content_of(folder / name) != expected:
            raise ModelError(f"{folder / name} is not what was prepared: its SHA-256 differs; prepare the model again")
    return manifest

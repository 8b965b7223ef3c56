"""The source tree as the layout tests see it: which files there are, and what a Python file imports."""

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "octavo": "protos",
    "octavo_client": "client",
    "octavo_scheduler": "scheduler",
    "octavo_worker": "worker",
    "octavo_kernels": "kernels",
}
NOT_OURS = {".git", ".venv", ".cache", ".hypothesis", "node_modules", "__pycache__", "build", "dist"}
GENERATED = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")


@dataclass(frozen=True)
class Source:
    """A Python file: its dotted module name, whether it is a package's `__init__`, and its text."""

    module: str
    text: str
    is_package: bool = False

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.module)


@dataclass(frozen=True)
class Import:
    """`import name`, or one name of `from module import name` joined by a dot."""

    name: str
    alias: str
    line: int


def files() -> Iterator[Path]:
    """All files that belong to the project, generated ones too."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if name not in NOT_OURS and not name.endswith("_cache"))
        yield from (Path(folder, name) for name in sorted(names) if name not in NOT_OURS)


def sources() -> Iterator[Source]:
    """All hand-written Python files. Those of the five packages go by their import name."""
    for path in files():
        if path.suffix == ".py" and not path.name.endswith(GENERATED):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if len(parts) > 1 and PACKAGES.get(parts[1]) == parts[0]:
                parts = parts[1:]
            is_package = parts[-1] == "__init__"
            yield Source(".".join(parts[:-1] if is_package else parts), path.read_text(), is_package)


def package_sources() -> list[Source]:
    """Those of the five packages alone."""
    return [source for source in sources() if source.module.partition(".")[0] in PACKAGES]


def imports(source: Source) -> Iterator[Import]:
    """Every import anywhere in the file, relative ones made absolute."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Import(name.name, name.asname or name.name.partition(".")[0], node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(source, node)
            for name in node.names:
                yield Import(f"{base}.{name.name}", name.asname or name.name, node.lineno)


def _absolute(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = source.module.split(".")
    kept = parts[: len(parts) - node.level + source.is_package]
    return ".".join([*kept, node.module] if node.module else kept)

"""The schema: linted, commented, and the same as the generated code that is committed."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from octavo.v1 import admin_pb2, inference_pb2, step_pb2

ROOT = Path(__file__).resolve().parents[2]
PROTOS = ROOT / "protos"
PROTO_FILES = sorted(path.relative_to(PROTOS).as_posix() for path in PROTOS.glob("octavo/*/*.proto"))
OLDEST_RUNTIME = (6, 33, 5)  # of the protobuf package, as pyproject.toml asks for

# Old and foreign code generators trip over these as field names.
RESERVED = {"descriptor", "inline", "class", "namespace", "register", "default", "none"}


def messages_of(holder: Descriptor) -> Iterator[Descriptor]:
    yield holder
    for nested in holder.nested_types:
        yield from messages_of(nested)


def fields_of(*modules: object) -> list[FieldDescriptor]:
    tops = [top for module in modules for top in module.DESCRIPTOR.message_types_by_name.values()]  # type: ignore[attr-defined]
    return [field for top in tops for message in messages_of(top) for field in message.fields]


def generate(target: Path) -> None:
    outputs = [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", *outputs, *PROTO_FILES]
    subprocess.run(command, check=True, cwd=PROTOS)


def test_the_committed_code_is_what_the_schema_generates(tmp_path: Path) -> None:
    generate(tmp_path)
    fresh = {path.name: path.read_text() for path in tmp_path.glob("octavo/*/*")}
    committed = {path.name: path.read_text() for path in PROTOS.glob("octavo/*/*_pb2*.py*")}
    assert len(fresh) == 3 * len(PROTO_FILES)
    assert committed == fresh, "run `make protos`"


@pytest.mark.parametrize("path", sorted(PROTOS.glob("octavo/*/*_pb2.py")), ids=lambda path: path.name)
def test_the_generated_code_runs_on_protobuf_6(path: Path) -> None:
    mark = "# Protobuf Python Version: "
    version = next(line.removeprefix(mark) for line in path.read_text().splitlines() if line.startswith(mark))
    assert tuple(map(int, version.split("."))) <= OLDEST_RUNTIME


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    buf = Path(sys.executable).with_name("buf")
    return subprocess.run([buf, "lint"], cwd=folder, capture_output=True, text=True)


def test_the_schema_passes_buf_lint() -> None:
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_linter_finds_a_field_without_a_comment(tmp_path: Path) -> None:
    (tmp_path / "buf.yaml").write_text((ROOT / "buf.yaml").read_text())
    folder = tmp_path / "protos/octavo/v1"
    folder.mkdir(parents=True)
    text = 'syntax = "proto3";\npackage octavo.v1;\n// A page.\nmessage Page {\n  uint32 id = 1;\n}\n'
    (folder / "page.proto").write_text(text)
    result = lint(tmp_path)
    assert 'Field "id" should have a non-empty comment' in result.stdout


def test_no_field_has_a_name_that_breaks_a_code_generator() -> None:
    names = {field.full_name for field in fields_of(admin_pb2, inference_pb2, step_pb2) if field.name in RESERVED}
    assert names == set()


def test_the_public_api_has_no_bytes_so_that_json_clients_see_everything() -> None:
    fields = fields_of(inference_pb2, admin_pb2)
    assert len(fields) > 50
    assert [field.full_name for field in fields if field.type == FieldDescriptor.TYPE_BYTES] == []


def test_the_step_protocol_has_no_maps() -> None:
    """Map entries cost one message each and have no order."""
    entries = [field.message_type for field in fields_of(step_pb2) if field.message_type]
    assert [entry.full_name for entry in entries if entry.GetOptions().map_entry] == []


def test_the_schema_stays_within_proto3_so_that_old_compilers_read_it() -> None:
    assert [path for path in PROTO_FILES if 'syntax = "proto3";' not in (PROTOS / path).read_text()] == []

"""The reference of the schemas: services, messages and enums of the .proto files, with the comments that stand there."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from grpc_tools import protoc

PROTOS = Path(__file__).resolve().parents[2] / "protos"
TYPES = {number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()}
SERVICE, MESSAGE, ENUM = 6, 4, 5
"""Numbers of these fields in FileDescriptorProto: what the paths of comments are made of."""
FIELD, NESTED, NESTED_ENUM, METHOD, VALUE = 2, 3, 4, 2, 2


def api() -> str:
    """The page of the services that clients call, in Markdown."""
    return "\n\n".join(["# API", *(page_of(f"octavo/v1/{name}.proto") for name in ("inference", "admin"))])


def other_apis() -> str:
    """The page of the services that other people's clients call, in Markdown."""
    files = (f"octavo/foreign/{name}.proto" for name in ("vllm_engine", "kserve"))
    return "\n\n".join(["# APIs of others", *map(page_of, files)])


def step_protocol() -> str:
    """The page of what scheduler and workers say to each other, in Markdown."""
    return f"# Step protocol\n\n{page_of('octavo/v1/step.proto')}"


def page_of(file: str) -> str:
    """All of one file."""
    return "\n".join(Comments(described(file)).page())


def described(file: str) -> FileDescriptorProto:
    """The file with its comments."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "set")
        code = protoc.main(["protoc", f"-I{PROTOS}", "--include_source_info", f"--descriptor_set_out={out}", file])
        if code:
            raise ValueError(f"protoc does not take {file}")
        (only,) = FileDescriptorSet.FromString(out.read_bytes()).file
        return only


class Comments:
    """A file and what its comments say of each thing, by the path of its numbers."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self.file = file
        self.words = {
            tuple(each.path): " ".join(each.leading_comments.split()) for each in file.source_code_info.location
        }

    def page(self) -> Iterator[str]:
        for number, service in enumerate(self.file.service):
            yield f"## {service.name}\n\n{self.said(SERVICE, number)}\n\n| method | takes | gives | |\n|---|---|---|---|"
            for index, method in enumerate(service.method):
                gives = f"{'stream of ' if method.server_streaming else ''}{short(method.output_type)}"
                said = self.said(SERVICE, number, METHOD, index)
                yield f"| **{method.name}** | {short(method.input_type)} | {gives} | {said} |"
            yield ""
        for number, message in enumerate(self.file.message_type):
            yield from self.message(message, message.name, (MESSAGE, number))
        for number, enum in enumerate(self.file.enum_type):
            yield from self.enum(enum, enum.name, (ENUM, number))

    def said(self, *path: int) -> str:
        return self.words.get(path, "").replace("|", "\\|")

    def message(self, message: DescriptorProto, name: str, path: tuple[int, ...]) -> Iterator[str]:
        yield f"### {name}\n\n{self.said(*path)}\n"
        if message.field:
            yield "| field | type | |\n|---|---|---|"
        for index, field in enumerate(message.field):
            said = self.said(*path, FIELD, index)
            yield f"| **{field.name}** = {field.number} | {kind(field, message)} | {said} |"
        yield ""
        for index, nested in enumerate(message.nested_type):
            yield from self.message(nested, f"{name}.{nested.name}", (*path, NESTED, index))
        for index, enum in enumerate(message.enum_type):
            yield from self.enum(enum, f"{name}.{enum.name}", (*path, NESTED_ENUM, index))

    def enum(self, enum: EnumDescriptorProto, name: str, path: tuple[int, ...]) -> Iterator[str]:
        yield f"### {name}\n\n{self.said(*path)}\n\n| value | |\n|---|---|"
        for index, value in enumerate(enum.value):
            yield f"| **{value.name}** = {value.number} | {self.said(*path, VALUE, index)} |"
        yield ""


def short(name: str) -> str:
    return name.rpartition(".")[2]


def kind(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    """Its type, and how often it may be there."""
    name = short(field.type_name) or TYPES[field.type]
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {name}"
    if field.proto3_optional:
        return f"optional {name}"
    return f"{name}, one of *{message.oneof_decl[field.oneof_index].name}*" if field.HasField("oneof_index") else name

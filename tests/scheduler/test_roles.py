"""Every method of every service, called as strangers and as each role: who is let in, and who is not."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from octavo.foreign import kserve_pb2, vllm_engine_pb2
from octavo.v1 import admin_pb2, inference_pb2
from octavo_client import Client, errors
from octavo_scheduler.config import read_config
from octavo_scheduler.errors import StartError
from octavo_scheduler.keys import main as make_keys
from octavo_scheduler.model import ServedModel
from octavo_scheduler.roles import METHODS, Role, RoleInterceptor, Tokens, read_tokens
from octavo_scheduler.server import Scheduler

from tests.patience import PATIENCE

Metadata = tuple[tuple[str, str], ...]
Status = grpc.StatusCode
FROM_THE_CLIENT = "Internal error from Core"
"""What grpc.aio's client makes of a call that was refused before its message was sent."""

SERVED = (inference_pb2, kserve_pb2, vllm_engine_pb2, admin_pb2, health_pb2, reflection_pb2)
ALL: dict[str, MethodDescriptor] = {
    f"/{service.full_name}/{method.name}": method
    for module in SERVED
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
OPEN = {"/grpc.health.v1.Health/Check"}
ADMIN = {name for name in ALL if name.startswith("/octavo.v1.AdminService/")}
ADMIN |= {f"/vllm.grpc.engine.VllmEngine/{name}" for name in ("FlushCache", "SubscribeKvEvents")}


def test_the_table_has_every_method_that_is_served_and_no_other() -> None:
    assert set(METHODS) == set(ALL)
    assert {name for name, role in METHODS.items() if role is Role.ANYONE} == OPEN
    assert {name for name, role in METHODS.items() if role is Role.ADMIN} == ADMIN


@dataclass
class Guarded:
    """A scheduler with keys; `channel` trusts it, `tokens` are what its clients and administrators have."""

    channel: grpc.aio.Channel
    tokens: dict[str, str]

    async def call(self, name: str, metadata: Metadata = ()) -> grpc.StatusCode:
        """How one call with an empty message ends; a stream at its first answer."""
        while (status := await self._call(name, metadata)) is None:
            pass
        return status

    async def _call(self, name: str, metadata: Metadata) -> grpc.StatusCode | None:
        """None where the client does not say: a message that comes after the refusal is an error of its own."""
        kind = ALL[name]
        sides = ("stream" if streams else "unary" for streams in (kind.client_streaming, kind.server_streaming))
        make = getattr(self.channel, "_".join(sides))(name)
        call = make(iter([b""]) if kind.client_streaming else b"", metadata=metadata, timeout=PATIENCE)
        try:
            await (call.read() if kind.server_streaming else call)
        except grpc.aio.AioRpcError as error:
            return None if error.details() == FROM_THE_CLIENT else error.code()
        finally:
            call.cancel()
        return Status.OK

    def bearer(self, role: str) -> Metadata:
        return (("authorization", f"Bearer {self.tokens[role]}"),)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("keys")
    make_keys([str(out)])
    return out


def flags(keys: Path, folder: Path) -> list[str]:
    own = keys / "scheduler"
    files = {
        "--tls-cert": "tls.crt",
        "--tls-key": "tls.key",
        "--token-file": "token",
        "--admin-token-file": "admin-token",
    }
    return [
        *("--model", "tiny", "--listen", "127.0.0.1:0", "--workers", f"ipc://{folder}/w"),
        *(word for flag, name in files.items() for word in (flag, str(own / name))),
    ]


@pytest.fixture
async def guarded(keys: Path, model: ServedModel, tmp_path: Path) -> AsyncIterator[Guarded]:
    scheduler = Scheduler(read_config(flags(keys, tmp_path)), model)
    await scheduler.start()
    trust = grpc.ssl_channel_credentials((keys / "client" / "ca.crt").read_bytes())
    async with grpc.aio.secure_channel(scheduler.address, trust) as channel:
        yield Guarded(channel, {role: (keys / role / "token").read_text() for role in ("client", "admin")})
    await scheduler.stop(grace=0)


WRONG: dict[str, Metadata] = {
    "no token": (),
    "an empty header": (("authorization", ""),),
    "an empty token": (("authorization", "Bearer "),),
    "a wrong token": (("authorization", "Bearer " + "x" * 43),),
    "another scheme": (("authorization", "Basic dXNlcjpwYXNzd29yZA=="),),
}


@pytest.mark.parametrize("name", sorted(ALL))
async def test_a_method_is_refused_to_whoever_has_no_valid_token(guarded: Guarded, name: str) -> None:
    expected = Status.OK if name in OPEN else Status.UNAUTHENTICATED
    assert {why: await guarded.call(name, metadata) for why, metadata in WRONG.items()} == dict.fromkeys(
        WRONG, expected
    )


@pytest.mark.parametrize("name", sorted(ALL))
async def test_a_token_cut_short_lengthened_doubled_or_in_the_wrong_case_is_wrong(guarded: Guarded, name: str) -> None:
    ((key, right),) = guarded.bearer("admin")
    for metadata in (
        ((key, right[:-1]),),
        ((key, right + "x"),),
        ((key, right), (key, right)),
        ((key, right.swapcase()),),
        ((key, right.removeprefix("Bearer ")),),
    ):
        assert await guarded.call(name, metadata) is (Status.OK if name in OPEN else Status.UNAUTHENTICATED)


@pytest.mark.parametrize("name", sorted(ADMIN))
async def test_the_token_of_a_client_does_not_administrate(guarded: Guarded, name: str) -> None:
    assert await guarded.call(name, guarded.bearer("client")) is Status.PERMISSION_DENIED


REFUSALS = (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED, Status.UNIMPLEMENTED)


@pytest.mark.parametrize("name", sorted(ALL))
async def test_each_role_gets_through_to_its_methods_and_an_administrator_to_all(guarded: Guarded, name: str) -> None:
    assert await guarded.call(name, guarded.bearer("admin")) not in REFUSALS
    if name not in ADMIN:
        assert await guarded.call(name, guarded.bearer("client")) not in REFUSALS


async def test_a_method_that_does_not_exist_is_told_apart_only_with_a_token(guarded: Guarded) -> None:
    method: Any = guarded.channel.unary_unary("/octavo.v1.AdminService/Format")
    for metadata, status in (((), Status.UNAUTHENTICATED), (guarded.bearer("client"), Status.UNIMPLEMENTED)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(b"", metadata=metadata)
        assert caught.value.code() is status


@pytest.mark.parametrize("has_tokens", [True, False])
@pytest.mark.parametrize("streaming", [(False, False), (False, True), (True, False), (True, True)])
async def test_a_new_method_is_refused_even_to_an_administrator_until_it_is_in_the_table(
    keys: Path, has_tokens: bool, streaming: tuple[bool, bool]
) -> None:
    own = keys / "scheduler"
    tokens = Tokens(own / "token", own / "admin-token") if has_tokens else Tokens()
    kind = "_".join("stream" if each else "unary" for each in streaming)

    def never(*_: object) -> None:
        raise AssertionError("it was called")

    handler = getattr(grpc, f"{kind}_rpc_method_handler")(never)
    server = grpc.aio.server(interceptors=[RoleInterceptor(tokens)])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("octavo.v1.New", {"Method": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        bearer = (("authorization", f"Bearer {(keys / 'admin' / 'token').read_text()}"),)
        call = getattr(channel, kind)("/octavo.v1.New/Method")(iter([b""]) if streaming[0] else b"", metadata=bearer)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await (call.read() if streaming[1] else call)
        assert caught.value.code() is Status.PERMISSION_DENIED
    await server.stop(None)


async def test_administrators_can_be_served_at_an_address_of_their_own(
    keys: Path, model: ServedModel, tmp_path: Path
) -> None:
    config = read_config([*flags(keys, tmp_path)[:-2], "--admin-listen", "127.0.0.1:0"])
    scheduler = Scheduler(config, model)
    await scheduler.start()
    trust = grpc.ssl_channel_credentials((keys / "client" / "ca.crt").read_bytes())
    tokens = {role: (keys / role / "token").read_text() for role in ("client", "admin")}
    async with grpc.aio.secure_channel(scheduler.address, trust) as channel:
        front = Guarded(channel, tokens)
        assert await front.call("/octavo.v1.AdminService/GetStatus", front.bearer("client")) is Status.UNIMPLEMENTED
        assert await front.call("/octavo.v1.InferenceService/ListModels", front.bearer("client")) is Status.OK
    async with grpc.aio.secure_channel(scheduler.admin_address, trust) as channel:
        back = Guarded(channel, tokens)
        assert await back.call("/octavo.v1.AdminService/GetStatus") is Status.OK, "it is local and has no tokens"
        assert await back.call("/octavo.v1.InferenceService/ListModels") is Status.UNIMPLEMENTED
    await scheduler.stop(grace=0)


async def test_with_a_client_ca_only_a_client_with_a_certificate_gets_to_show_its_token(
    keys: Path, model: ServedModel, tmp_path: Path
) -> None:
    config = read_config([*flags(keys, tmp_path), "--client-ca", str(keys / "scheduler" / "client-ca.crt")])
    scheduler = Scheduler(config, model)
    await scheduler.start()

    def models(**files: Any) -> list[str]:
        with Client(
            scheduler.address, ca_file=keys / "client/ca.crt", token_file=keys / "client/token", **files
        ) as client:
            return [model.name for model in client.list_models(timeout=PATIENCE)]

    own = {"cert_file": keys / "client/tls.crt", "key_file": keys / "client/tls.key"}
    assert await asyncio.to_thread(models, **own) == ["tiny"]
    make_keys([str(tmp_path / "other")])
    strange = {"cert_file": tmp_path / "other/client/tls.crt", "key_file": tmp_path / "other/client/tls.key"}
    for files in ({}, strange):
        with pytest.raises(errors.Unavailable):
            await asyncio.to_thread(models, **files)
    await scheduler.stop(grace=0)


def test_half_a_pair_of_a_clients_certificate_and_key_is_refused(keys: Path) -> None:
    with pytest.raises(errors.ConfigError, match="belong together"):
        Client("127.0.0.1:1", cert_file=keys / "client/tls.crt")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "holds no token"),
        (" \n\n", "holds no token"),
        ("short", "token 1 of .* has 5 characters, not 16 or more"),
        ("a" * 16 + "\nshort\n", "token 2 of .* has 5 characters"),
        ("two words that are long enough", "token 1 of .* is not one word of ASCII"),
        ("schlüssel-schlüssel-schlüssel", "token 1 of .* is not one word of ASCII"),
    ],
)
def test_a_token_file_without_good_tokens_is_a_start_error_and_never_no_token(
    tmp_path: Path, content: str, sentence: str
) -> None:
    (tmp_path / "token").write_text(content)
    with pytest.raises(StartError, match=sentence):
        read_tokens(tmp_path / "token")


def test_a_token_that_would_have_two_roles_is_a_start_error(tmp_path: Path) -> None:
    for name, tokens in (("infer", ["a" * 20, "b" * 20]), ("admin", ["c" * 20, "b" * 20])):
        (tmp_path / name).write_text("\n".join(tokens))
    with pytest.raises(StartError, match=r"infer and .*admin hold the same token"):
        Tokens(tmp_path / "infer", tmp_path / "admin")


def roles(tokens: Tokens, *given: str) -> Iterator[Role]:
    return (tokens.role_of((("authorization", f"Bearer {each}"),)) for each in given)


def test_a_file_may_hold_several_tokens_one_a_line(tmp_path: Path) -> None:
    (tmp_path / "infer").write_text("a" * 20 + "\r\n\n" + "b" * 20 + "\n")
    (tmp_path / "admin").write_text("c" * 20)
    tokens = Tokens(tmp_path / "infer", tmp_path / "admin")
    assert list(roles(tokens, "a" * 20, "b" * 20, "c" * 20, "d" * 20, "")) == [
        *(Role.INFER, Role.INFER, Role.ADMIN),
        *(Role.ANYONE, Role.ANYONE),
    ]


def test_no_token_is_kept_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret-secret-secret")
    assert not re.search("secret", repr(vars(Tokens(tmp_path / "token"))))


def test_tokens_are_read_again_when_asked_for_and_a_bad_file_leaves_them_as_they_were(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("a" * 20)
    tokens = Tokens(file)
    file.write_text("b" * 20)
    assert list(roles(tokens, "a" * 20, "b" * 20)) == [Role.INFER, Role.ANYONE]
    tokens.reload()
    assert list(roles(tokens, "a" * 20, "b" * 20)) == [Role.ANYONE, Role.INFER]
    file.write_text("")
    with pytest.raises(StartError, match="holds no token"):
        tokens.reload()
    assert list(roles(tokens, "a" * 20, "b" * 20)) == [Role.ANYONE, Role.INFER]

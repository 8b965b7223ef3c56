"""Who may ask for what by HTTP: roles where there are tokens, and no tricked browsers where there are none."""

import asyncio
import http.client
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from octavo_scheduler.config import read_config
from octavo_scheduler.errors import StartError
from octavo_scheduler.keys import main as make_keys
from octavo_scheduler.model import ServedModel
from octavo_scheduler.roles import METHODS, Role
from octavo_scheduler.server import Scheduler

from tests.scheduler.web.http import Browser

OURS = {name: role for name, role in METHODS.items() if name.startswith("/octavo.v1.")}
JSON = {"content-type": "application/json"}


async def started(model: ServedModel, folder: Path, *flags: str) -> Scheduler:
    listen = ["--listen", f"unix:{folder}/g", "--workers", f"ipc://{folder}/w"]
    scheduler = Scheduler(read_config(["--model", "tiny", *listen, *flags]), model)
    await scheduler.start()
    return scheduler


def address_of(scheduler: Scheduler) -> str:
    assert scheduler.http_address is not None
    return scheduler.http_address


@pytest.fixture
async def local(model: ServedModel, tmp_path: Path) -> AsyncIterator[Browser]:
    """Of a server without tokens."""
    scheduler = await started(model, tmp_path, "--http", "127.0.0.1:0")
    yield Browser(address_of(scheduler))
    await scheduler.stop(0)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    assert make_keys([str(folder)]) == 0
    return folder


def guarding(keys: Path) -> list[str]:
    names = {"tls-cert": "tls.crt", "tls-key": "tls.key", "token-file": "token", "admin-token-file": "admin-token"}
    return [f"--{flag}={keys / 'scheduler' / name}" for flag, name in names.items()]


@pytest.fixture
async def guarded(model: ServedModel, keys: Path, tmp_path: Path) -> AsyncIterator[Browser]:
    """Of a server with tokens and TLS."""
    scheduler = await started(model, tmp_path, "--http", "127.0.0.1:0", *guarding(keys))
    context = ssl.create_default_context(cafile=keys / "client" / "ca.crt")
    yield Browser(address_of(scheduler), context=context)
    await scheduler.stop(0)


def bearer(keys: Path, role: Role) -> dict[str, str]:
    names = {Role.INFER: "client", Role.ADMIN: "admin"}
    return {"authorization": f"Bearer {(keys / names[role] / 'token').read_text()}"} if role in names else {}


async def statuses(browser: Browser, headers: dict[str, str]) -> dict[str, int]:
    """Of every method of ours, called with something that is no message, and of /metrics and the page."""
    asked = [("POST", name) for name in OURS] + [("GET", "/metrics"), ("GET", "/")]
    replies = [await asyncio.to_thread(browser.ask, *each, "7", {**JSON, **headers}) for each in asked]
    return {path: reply.status for (_, path), reply in zip(asked, replies, strict=True)}


async def test_each_role_may_call_what_it_may_call_over_grpc(guarded: Browser, keys: Path) -> None:
    needed = {**OURS, "/metrics": Role.INFER, "/": Role.ANYONE}
    for role in Role:
        found = await statuses(guarded, bearer(keys, role))
        for path, least in needed.items():
            granted = 200 if path in ("/metrics", "/") else 400
            refused = 401 if role is Role.ANYONE else 403
            assert found[path] == (granted if role >= least else refused), (path, role)


async def test_whoever_has_no_certificate_gets_no_further_than_tls(
    model: ServedModel, keys: Path, tmp_path: Path
) -> None:
    trusted = keys / "scheduler" / "client-ca.crt"
    scheduler = await started(model, tmp_path, "--http=127.0.0.1:0", *guarding(keys), f"--client-ca={trusted}")
    context = ssl.create_default_context(cafile=keys / "client" / "ca.crt")
    browser = Browser(address_of(scheduler), bearer(keys, Role.INFER), context)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await browser.get("/metrics")
    context.load_cert_chain(keys / "client" / "tls.crt", keys / "client" / "tls.key")
    assert (await browser.get("/metrics")).status == 200
    await scheduler.stop(0)


@pytest.mark.parametrize("given", ["", "Bearer ", "Bearer wrong", "Basic {token}", "{token}", "Bearer {token}x"])
async def test_a_wrong_token_is_none(guarded: Browser, keys: Path, given: str) -> None:
    token = (keys / "admin" / "token").read_text()
    found = await statuses(guarded, {"authorization": given.format(token=token)})
    assert set(found.values()) - {found["/"]} == {401}


async def test_tokens_are_checked_before_anything_is_read(guarded: Browser) -> None:
    assert (await guarded.call("InferenceService/Generate", "{")).status == 401
    assert (await guarded.call("NoService/NoMethod")).status == 401, "a stranger learns nothing"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:{port}", "localhost:1", "[::1]:80"])
async def test_this_machine_has_several_names(local: Browser, host: str) -> None:
    reply = await local.call("AdminService/GetStatus", host=host.format(port=local.address.rpartition(":")[2]))
    assert reply.status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", ""]
)
@pytest.mark.parametrize("path", ["/octavo.v1.AdminService/GetStatus", "/metrics", "/"])
async def test_a_strangers_name_that_leads_here_is_not_served(local: Browser, host: str, path: str) -> None:
    """Else a page could have its own name lead to 127.0.0.1, and read what is answered as its own."""
    method = "POST" if path.startswith("/octavo") else "GET"
    reply = await asyncio.to_thread(local.ask, method, path, "{}", {**JSON, "host": host})
    assert reply.status == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://localhost"])
async def test_a_page_of_another_server_cannot_ask(local: Browser, origin: str) -> None:
    assert (await local.call("AdminService/Flush", origin=origin)).status == 403


async def test_the_page_itself_can_ask(local: Browser) -> None:
    assert (await local.call("AdminService/Flush", origin=f"http://{local.address}")).status == 200


async def test_other_origins_get_no_permission(local: Browser) -> None:
    headers = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    reply = await asyncio.to_thread(local.ask, "OPTIONS", "/octavo.v1.AdminService/Flush", None, headers)
    assert reply.status in (403, 405)
    assert not [name for name in reply.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("has_tokens", [False, True])
async def test_administrators_with_a_door_of_their_own_use_no_other(
    model: ServedModel, keys: Path, tmp_path: Path, has_tokens: bool
) -> None:
    """Unless tokens say who is one."""
    flags = guarding(keys) if has_tokens else []
    scheduler = await started(model, tmp_path, "--http=127.0.0.1:0", f"--admin-listen=unix:{tmp_path}/a", *flags)
    context = ssl.create_default_context(cafile=keys / "client" / "ca.crt") if has_tokens else None
    browser = Browser(address_of(scheduler), bearer(keys, Role.ADMIN) if has_tokens else {}, context)
    assert (await browser.call("AdminService/GetStatus")).status == (200 if has_tokens else 404)
    assert (await browser.call("InferenceService/ListModels")).status == 200
    await scheduler.stop(0)


async def test_a_socket_file_is_for_its_owner_alone(model: ServedModel, tmp_path: Path) -> None:
    path = tmp_path / "h"
    scheduler = await started(model, tmp_path, f"--http=unix:{path}")

    def status() -> int:
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(path))
        connection.request("GET", "/metrics")
        answered = connection.getresponse().status
        connection.close()
        return answered

    assert await asyncio.to_thread(status) == 200
    assert path.stat().st_mode & 0o077 == 0
    (tmp_path / "other").mkdir()
    with pytest.raises(StartError, match="is used by another scheduler"):
        await started(model, tmp_path / "other", f"--http=unix:{path}")
    await scheduler.stop(0)


def test_an_address_that_others_can_reach_needs_keys(keys: Path) -> None:
    with pytest.raises(StartError, match=r"0\.0\.0\.0:80 can be reached from other machines; give --tls-cert"):
        read_config(["--model", "m", "--http", "0.0.0.0:80"])
    config = read_config(["--model", "m", "--http", "0.0.0.0:80", *guarding(keys)])
    with pytest.raises(StartError, match="can be reached"):
        replace(config, token_file=None, admin_token_file=None)


async def test_an_address_in_use_is_a_start_error(model: ServedModel, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(StartError, match="cannot listen on"):
            await started(model, tmp_path, f"--http=127.0.0.1:{taken.getsockname()[1]}")

"""Every method of every service through a front process, as strangers and as each role; and through its private socket."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from octavo_scheduler.config import read_config
from octavo_scheduler.model import ServedModel, load_model
from octavo_scheduler.server import Scheduler

from tests.scheduler.test_roles import ADMIN, ALL, OPEN, REFUSALS, WRONG, Guarded, Status, flags, keys

__all__ = ["keys"]


@pytest.fixture
async def fronted(
    keys: Path, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Guarded, Guarded, Guarded]]:
    """The public door of a front process, its private one, and the scheduler's inner one."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    served: ServedModel = load_model(model_folder)
    config = read_config([*flags(keys, tmp_path), f"--model={model_folder}", "--frontends=1"])
    scheduler = Scheduler(config, served)
    await scheduler.start()
    (folder,) = tmp_path.glob("octavo-*")
    assert folder.stat().st_mode & 0o077 == 0, "nobody else can enter it"
    trust = grpc.ssl_channel_credentials((keys / "client" / "ca.crt").read_bytes())
    tokens = {role: (keys / role / "token").read_text() for role in ("client", "admin")}
    async with (
        grpc.aio.secure_channel(scheduler.address, trust) as public,
        grpc.aio.insecure_channel(f"unix:{folder}/front-0") as private,
        grpc.aio.insecure_channel(f"unix:{folder}/inner") as inner,
    ):
        yield Guarded(public, tokens), Guarded(private, tokens), Guarded(inner, tokens)
    await scheduler.stop(grace=0)
    assert list(tmp_path.glob("octavo-*")) == [], "nothing is left behind"


async def test_tokens_and_roles_hold_at_each_door_and_no_method_is_missing(
    fronted: tuple[Guarded, Guarded, Guarded],
) -> None:
    public, *private = fronted
    for name in sorted(ALL):
        for metadata in WRONG.values():
            expected = Status.OK if name in OPEN else Status.UNAUTHENTICATED
            assert await public.call(name, metadata) is expected, name
            if name not in OPEN:
                assert {await door.call(name, metadata) for door in private} == {Status.UNAUTHENTICATED}, name
        met = await public.call(name, public.bearer("admin"))
        assert met not in (*REFUSALS, Status.INTERNAL, Status.UNKNOWN), name
        as_client = await public.call(name, public.bearer("client"))
        assert as_client is (Status.PERMISSION_DENIED if name in ADMIN else met), name

"""A front process's end of the line, with a scheduler of paper at the other."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from octavo_scheduler.commands import Abort, FrontCommand, Submit
from octavo_scheduler.core.events import Committed, Output
from octavo_scheduler.core.request import RequestSpec
from octavo_scheduler.frontend import uplink as module
from octavo_scheduler.frontend.uplink import Uplink
from octavo_scheduler.frontend.wire import News, Said, decode_said, encode_news

from tests.patience import PATIENCE


class Paper:
    """The scheduler: hears one message after the other, and says what it is told to."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(address)
        self._peer = b""

    async def hears(self) -> Said:
        return await asyncio.to_thread(self._hear)

    def _hear(self) -> Said:
        assert self._socket.poll(round(PATIENCE * 1000)), "nothing comes"
        self._peer, frame = self._socket.recv_multipart()
        return decode_said(frame, 900)

    def says(self, frame: bytes) -> None:
        self._socket.send_multipart([self._peer, frame])

    def close(self) -> None:
        self._socket.close()
        self._context.term()


@pytest.fixture
def paper(tmp_path: Path) -> Iterator[Paper]:
    made = Paper(f"ipc://{tmp_path}/s")
    yield made
    made.close()


def uplink(tmp_path: Path, delivered: list[Output]) -> Uplink:
    return Uplink(f"ipc://{tmp_path}/s", "f1.0", 1, delivered.extend)


async def test_all_that_is_posted_in_one_round_goes_in_one_message_in_its_order(paper: Paper, tmp_path: Path) -> None:
    line = uplink(tmp_path, [])
    commands: list[FrontCommand] = [
        Submit(RequestSpec(id="f1.0-a", prompt=(1,)), "a"),
        Abort("f1.0-a"),
        Abort("f1.0-b"),
    ]
    for command in commands:
        line.post(command)
    assert (await paper.hears()).commands == commands
    thread = threading.Thread(target=line.post, args=[commands[1]])
    thread.start()
    assert (await paper.hears()).commands == [commands[1]], "from another thread too"
    thread.join()
    line.close()


async def test_long_prompts_are_not_all_in_one_message(
    paper: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_TOKENS", 10)
    line = uplink(tmp_path, [])
    submits = [Submit(RequestSpec(id=f"f1.0-{n}", prompt=(1,) * 6), "") for n in range(5)]
    for submit in submits:
        line.post(submit)
    heard = [list((await paper.hears()).commands) for _ in range(3)]
    assert heard == [submits[:2], submits[2:4], submits[4:]]
    line.close()


async def test_outputs_are_delivered_however_many_messages_have_come(paper: Paper, tmp_path: Path) -> None:
    delivered: list[Output] = []
    line = uplink(tmp_path, delivered)
    line.tell(Said(stay="f1.0", is_listening=True))
    assert (await paper.hears()).is_listening
    tokens: list[Output] = [Committed("f1.0-a", 0, place, 7) for place in range(500)]
    for token in tokens:
        paper.says(encode_news(News([token])))
    while len(delivered) < len(tokens):
        await asyncio.sleep(0.01)
    assert delivered == tokens
    line.close()


async def test_a_name_is_asked_for_once_and_freed_when_whoever_asked_has_left(paper: Paper, tmp_path: Path) -> None:
    line = uplink(tmp_path, [])
    first, second = (asyncio.create_task(line.owner(("tenant", "name"))) for _ in range(2))
    (name,) = (await paper.hears()).claimed
    paper.says(encode_news(News(owners=[(name, 0)])))
    assert (await first, await second) == (0, 0)
    left = asyncio.create_task(line.owner(("tenant", "another")))
    (another,) = (await paper.hears()).claimed
    assert another != name
    left.cancel()
    await asyncio.sleep(0)
    paper.says(encode_news(News(owners=[(another, 1)])))
    assert list((await paper.hears()).freed) == [another]
    line.close()


async def test_what_cannot_be_read_is_a_failure(paper: Paper, tmp_path: Path) -> None:
    line = uplink(tmp_path, [])
    line.free(("", "x"))
    await paper.hears()
    paper.says(b"\xff\xff")
    async with asyncio.timeout(PATIENCE):
        await line.failed.wait()
    line.close()

"""The hub between a loop and front processes of paper: whose an answer is, and what becomes of those that end."""

from collections.abc import Sequence
from typing import Any

import pytest
from octavo_scheduler import report
from octavo_scheduler.commands import Abort, FrontCommand, Submit
from octavo_scheduler.core import Core, Settings
from octavo_scheduler.core.events import Committed, Finished, Joined, Output
from octavo_scheduler.core.request import FinishReason, RequestSpec
from octavo_scheduler.frontend.hub import Hub
from octavo_scheduler.frontend.wire import News, Said, decode_news, encode_said
from octavo_scheduler.loop import Command
from octavo_scheduler.tally import RequestTally

ONE, TWO = b"a" * 16, b"b" * 16
JOINED = Joined(
    worker="w",
    page_size=4,
    page_bytes=64,
    device_pages=100,
    host_pages=0,
    max_slots=8,
    max_step_tokens=64,
    max_context=256,
    vocab_size=900,
)


class Table:
    """A hub, a core, and a link of paper. Peers are called after their stays."""

    def __init__(self) -> None:
        self.core = Core(Settings())
        self.core.apply(JOINED, 0.0)
        self.sent: list[tuple[bytes, bytes]] = []
        self.taken = True
        self.come: list[tuple[bytes, bytes]] = []
        self.lost: list[str] = []
        self.listening: list[str] = []
        self.now = 0.0
        self.hub = Hub(
            self, self.post, 900, self.listening.append, lambda stay, why: self.lost.append(stay), lambda: self.now
        )
        self.outputs: list[Output] = []
        for number in range(2):
            self.hub.open(f"f{number}.0", number)

    def post(self, command: Command) -> None:
        self.outputs += command(self.core, 0.0)

    def send(self, peer: bytes, frame: bytes) -> bool:
        self.sent.append((peer, frame))
        return self.taken

    def receive(self, timeout: float) -> list[tuple[bytes, bytes]]:
        """Everything that has come; then the hub has one more turn."""
        come, self.come = self.come, []
        if not come:
            self.hub.stop()
        return come

    def wake(self) -> None: ...

    def has_lost_a_peer(self) -> bool:
        return False

    def turn(self) -> None:
        self.hub._is_stopped = False
        self.hub.run()

    def hears(self, stay: str, *commands: FrontCommand, peer: str = "", **said: Any) -> None:
        self.come.append(((peer or stay).encode(), encode_said(Said(stay=stay, commands=commands, **said))))
        self.turn()

    def told(self, stay: str) -> list[News]:
        mine = [decode_news(frame) for peer, frame in self.sent if peer == stay.encode()]
        self.sent = [each for each in self.sent if each[0] != stay.encode()]
        return mine


@pytest.fixture
def table() -> Table:
    return Table()


def spec(id: str) -> RequestSpec:
    return RequestSpec(id=id, prompt=(1, 2, 3), max_tokens=5)


def owners(news: Sequence[News]) -> list[tuple[bytes, int]]:
    return [owner for each in news for owner in each.owners]


def test_each_process_gets_what_concerns_it_in_one_message(table: Table) -> None:
    for stay in ("f0.0", "f1.0"):
        table.hears(stay, is_listening=True)
    own, other = Committed("f0.0-a", 0, 0, 7), Committed("f1.0-b", 0, 0, 8)
    table.hub.deliver([own, Committed("of the scheduler", 0, 0, 9), other])
    table.hub.deliver([Finished("f0.0-a", 0, FinishReason.STOP, 1, 0)])
    table.turn()
    assert table.listening == ["f0.0", "f1.0"]
    assert table.told("f0.0") == [News([own, Finished("f0.0-a", 0, FinishReason.STOP, 1, 0)], [])]
    assert table.told("f1.0") == [News([other], [])]
    assert table.sent == []


def test_commands_reach_the_core_and_labels_the_operator(table: Table) -> None:
    table.hears("f0.0", Submit(spec("f0.0-a"), "mine"), Submit(spec("f0.0-b"), "yours"), Abort("f0.0-a"))
    assert list(table.core.requests) == ["f0.0-b"]
    assert table.hub.labels()["f0.0-b"] == "yours"
    assert [type(output) for output in table.outputs] == [Finished]


def test_a_request_that_is_submitted_twice_is_one(table: Table) -> None:
    table.hears("f0.0", Submit(spec("f0.0-a"), ""), Submit(spec("f0.0-a"), ""))
    assert list(table.core.requests) == ["f0.0-a"]


def test_labels_of_requests_that_are_over_are_forgotten(table: Table) -> None:
    for number in range(200):
        table.hears("f0.0", Submit(spec(f"f0.0-{number}"), "it"), Abort(f"f0.0-{number}"))
    assert len(table.hub.labels()) <= 65


def test_a_name_belongs_to_whoever_was_asked_for_it_first_until_it_frees_it(table: Table) -> None:
    table.hears("f0.0", claimed=[ONE])
    table.hears("f1.0", claimed=[ONE, TWO])
    assert owners(table.told("f0.0")) == [(ONE, 0)]
    assert owners(table.told("f1.0")) == [(ONE, 0), (TWO, 1)]
    table.hears("f1.0", freed=[ONE])
    table.hears("f1.0", claimed=[ONE])
    assert owners(table.told("f1.0")) == [(ONE, 0)], "it was not its own to free"
    table.hears("f0.0", freed=[ONE])
    table.hears("f1.0", claimed=[ONE])
    assert owners(table.told("f1.0")) == [(ONE, 1)]


def test_what_a_process_had_goes_with_it(table: Table) -> None:
    table.hears("f0.0", Submit(spec("f0.0-a"), ""), claimed=[ONE])
    table.hears("f1.0", Submit(spec("f1.0-a"), ""))
    table.hub.end("f0.0")
    table.turn()
    assert list(table.core.requests) == ["f1.0-a"]
    table.hears("f1.0", claimed=[ONE])
    assert owners(table.told("f1.0")) == [(ONE, 1)]
    table.hears("f0.0", Submit(spec("f0.0-b"), ""))
    assert list(table.core.requests) == ["f1.0-a"], "its last words come too late"


def test_a_process_that_takes_no_messages_is_lost(table: Table) -> None:
    table.hears("f0.0", Submit(spec("f0.0-a"), ""))
    table.taken = False
    table.hub.deliver([Committed("f0.0-a", 0, 0, 7)])
    table.hub.deliver([Committed("f0.0-a", 0, 1, 7)])
    table.turn()
    table.hub.deliver([Committed("f0.0-a", 0, 2, 7)])
    table.turn()
    assert (table.lost, len(table.sent)) == (["f0.0"], 1)


def test_a_process_that_listens_and_falls_silent_is_lost(table: Table) -> None:
    table.hears("f0.0", is_listening=True)
    table.hears("f1.0")  # which may take as long as it wants to, until it listens
    for _ in range(13):
        table.now += 1
        table.turn()
        if table.now < 10:
            assert not table.lost
    assert table.lost == ["f0.0"]


def test_no_process_is_lost_that_says_something_every_second_or_while_the_scheduler_itself_stood_still(
    table: Table,
) -> None:
    for _ in range(30):
        table.hears("f0.0", is_listening=not table.now, service=report.service(RequestTally()))
        table.now += 1
    table.now += 60
    table.turn()
    table.hears("f0.0", service=report.service(RequestTally()))
    table.now += 5
    table.turn()
    assert not table.lost


def test_a_process_that_dials_again_has_missed_something_and_is_lost(table: Table) -> None:
    table.hears("f0.0", Submit(spec("f0.0-a"), ""))
    table.hears("f0.0", Submit(spec("f0.0-b"), ""), peer="another")
    assert table.lost == ["f0.0"]
    assert list(table.core.requests) == ["f0.0-a"]


def test_bad_bytes_change_nothing_and_end_the_stay_that_they_come_from(table: Table) -> None:
    table.hears("f0.0", Submit(spec("f0.0-a"), ""))
    table.come.append((b"a stranger", b"\xff\xff"))
    table.turn()
    assert (table.lost, table.hub.num_bad) == ([], 1)
    table.come.append((b"f0.0", encode_said(Said(stay="f0.0", commands=[Submit(spec("f1.0-a"), "")]))))
    table.turn()
    assert (table.lost, table.hub.num_bad) == (["f0.0"], 2)
    assert list(table.core.requests) == ["f0.0-a"]


def test_strangers_and_other_stays_are_not_listened_to(table: Table) -> None:
    table.hears("f7.0", Submit(spec("f7.0-a"), ""), is_listening=True, claimed=[ONE])
    assert (list(table.core.requests), table.listening, table.sent) == ([], [], [])


def test_counts_are_added_up_and_never_fall(table: Table) -> None:
    tally = RequestTally()
    tally.outcomes["stop"] += 3
    tally.first_token.note(0.5)
    tally.cut_off = 2
    for stay in ("f0.0", "f1.0"):
        table.hears(stay, service=report.service(tally))
    table.hub.end("f0.0")
    table.turn()
    whole = report.total(table.hub.services())
    assert {each.outcome: each.count for each in whole.outcomes}["stop"] == 6
    assert (sum(whole.first_token_seconds.counts), whole.first_token_seconds.sum, whole.streams_cut_off) == (2, 1.0, 4)


def test_counts_of_another_shape_are_not_taken(table: Table) -> None:
    wrong = report.service(RequestTally())
    wrong.first_token_seconds.counts.append(1)
    table.hears("f0.0", service=wrong)
    assert len(table.hub.services()) == 1

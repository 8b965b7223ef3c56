"""The network between stations and the loop: the production loop's Link, in virtual time.

Frames of a connection arrive in order and once, unless a fault says otherwise. `send` answers False as the ROUTER does:
the peer is gone, or does not read. A fault strikes a connection; one that no fault has struck is blameless, and its worker
must not be lost.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Protocol

from tests.simulation.coverage import Coverage
from tests.simulation.timeline import Timeline

LOST, DELAYED, DUPLICATED, REORDERED, GARBLED = "lost", "delayed", "duplicated", "reordered", "garbled"
FRAME_FAULTS = (LOST, DELAYED, DUPLICATED, REORDERED, GARBLED)
MOST_MESSAGES = 256


class Hearer(Protocol):
    def hear(self, connection: "Connection", frame: bytes) -> None: ...


@dataclass(eq=False)
class Connection:
    peer: bytes
    hearer: Hearer
    is_open: bool = True
    is_blameless: bool = True
    dark_until: float = 0.0
    clogged_until: float = 0.0
    last_arrival: dict[str, float] = field(default_factory=lambda: {"up": 0.0, "down": 0.0})


@dataclass(frozen=True)
class Weather:
    """How likely a frame is struck, and by what. Latency in seconds."""

    rate: float
    kinds: tuple[str, ...]
    latency: float


class Network:
    def __init__(self, timeline: Timeline, draw: Random, weather: Weather, coverage: Coverage) -> None:
        self.connections: dict[bytes, Connection] = {}
        self.is_calm = False
        self.num_received = 0
        self.pause = 0.0
        """Seconds for which the scheduler's process stands still before it reads on."""
        self.turn_seconds = 0.0
        """What a turn of the loop takes."""
        self.tell: Callable[[str, bytes, bytes, str | None], None] | None = None
        """Hears of every frame: way, peer, bytes, fault."""
        self.before_turn: Callable[[float], None] = lambda timeout: None
        """Hears how long the loop will wait for messages."""
        self.closed_at = self.told_of_closing_at = -inf
        """When a connection was closed last, and when the loop heard of one."""
        self._timeline = timeline
        self._draw = draw
        self._weather = weather
        self._coverage = coverage
        self._inbox: list[tuple[bytes, bytes]] = []
        self._is_woken = False
        self._has_lost_a_peer = False

    # the loop's side --------------------------------------------------------------------------------------------------

    def receive(self, timeout: float) -> list[tuple[bytes, bytes]]:
        """Time passes here, and nowhere else."""
        timeline = self._timeline
        timeline.now += self.turn_seconds
        self.before_turn(timeout)
        until = timeline.now + timeout
        while not self._inbox and not self._is_woken and timeline.advance(until):
            pass
        if self.pause:
            until, self.pause = timeline.now + self.pause, 0.0
            while timeline.advance(until):
                pass
        while timeline.advance(timeline.now):
            pass
        self._is_woken = False
        messages = self._inbox[:MOST_MESSAGES]
        self.num_received += len(messages)
        del self._inbox[:MOST_MESSAGES]
        return messages

    def send(self, peer: bytes, frame: bytes) -> bool:
        connection = self.connections.get(peer)
        if connection is None or not connection.is_open or self._timeline.now < connection.clogged_until:
            return False
        self._carry(connection, frame, "down", lambda frame: connection.hearer.hear(connection, frame))
        return True

    def wake(self) -> None:
        self._is_woken = True

    def has_lost_a_peer(self) -> bool:
        found, self._has_lost_a_peer = self._has_lost_a_peer, False
        if found:
            self.told_of_closing_at = self._timeline.now
        return found

    # the stations' side -----------------------------------------------------------------------------------------------

    def connect(self, hearer: Hearer) -> Connection:
        """A fresh routing id, as the ROUTER gives one to each connection."""
        connection = Connection(b"peer %d" % len(self.connections), hearer)
        self.connections[connection.peer] = connection
        return connection

    def up(self, connection: Connection, frame: bytes) -> None:
        self._carry(connection, frame, "up", lambda frame: self._inbox.append((connection.peer, frame)))

    def close(self, connection: Connection) -> None:
        """What is on its way up still arrives."""
        connection.is_open = False
        self._has_lost_a_peer = self._is_woken = True
        self.closed_at = self._timeline.now

    def stand_still(self, seconds: float) -> None:
        """The whole machine stops for a while, frames under way too."""
        self._timeline.stand_still(seconds)
        for connection in self.connections.values():
            for way in connection.last_arrival:
                connection.last_arrival[way] += seconds

    # what happens to frames -------------------------------------------------------------------------------------------

    def _carry(self, connection: Connection, frame: bytes, way: str, deliver: Callable[[bytes], None]) -> None:
        now = self._timeline.now
        if now < connection.dark_until:
            return
        kind = self._fate()
        if self.tell:
            self.tell(way, connection.peer, frame, kind)
        last = connection.last_arrival
        arrival = max(last[way], now + self._weather.latency * self._draw.random())
        if kind is None:
            last[way] = arrival
            self._timeline.at(arrival, lambda: deliver(frame))
            return
        connection.is_blameless = False
        self._coverage.fault(f"frame {kind} {way}")
        late = arrival + self._draw.choice((0.001, 0.05, 1.0, 12.0))
        match kind:
            case "delayed":
                last[way] = late
                self._timeline.at(late, lambda: deliver(frame))
            case "duplicated":
                last[way] = arrival
                self._timeline.at(arrival, lambda: deliver(frame))
                self._timeline.at(late, lambda: deliver(frame))
            case "reordered":
                self._timeline.at(late, lambda: deliver(frame))
            case "garbled":
                last[way] = arrival
                garbled = self.garbage(frame)
                self._timeline.at(arrival, lambda: deliver(garbled))

    def _fate(self) -> str | None:
        weather = self._weather
        if self.is_calm or not weather.kinds or self._draw.random() >= weather.rate:
            return None
        return self._draw.choice(weather.kinds)

    def garbage(self, frame: bytes) -> bytes:
        """Bytes that are no message: cut off, or random."""
        if self._draw.random() < 0.5 and len(frame) > 1:
            return frame[: self._draw.randrange(1, len(frame))]
        return b"\xff" + self._draw.randbytes(self._draw.randrange(12))

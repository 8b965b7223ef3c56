"""What the loop owes besides right plans: it wakes in time, speaks when it must and keeps no mask back."""

from octavo_scheduler.loop import HEARTBEAT_SECONDS, PROBE_SECONDS, Loop

from tests.simulation.network import Network
from tests.simulation.timeline import Timeline
from tests.simulation.violation import Violation

ROUNDING = 1e-9


class Vigil:
    """Looks at a loop between two turns of it."""

    def __init__(self, loop: Loop, network: Network, timeline: Timeline) -> None:
        self._loop, self._network, self._timeline = loop, network, timeline
        self._last_heartbeat = loop._last_heartbeat
        self._num_bad = 0

    def look(self, timeout: float) -> None:
        """`timeout`: for so long it is about to wait."""
        loop, network = self._loop, self._network
        asked_at = self._timeline.now - network.turn_seconds
        dues = [member.lease_end for member in loop.members.values() if member.sent] + [loop.core.next_deadline]
        if timeout > max(min(dues) - asked_at, 0.0) + ROUNDING:
            raise Violation(f"the loop sleeps for {timeout} s, past the end of a lease or a request's time")
        for member in loop.members.values():
            if not network.connections[member.peer].is_open and network.closed_at < loop._last_turn:
                raise Violation(f"nobody notices that the connection of {member.worker} is closed")
        is_soon = 0 < loop._last_heartbeat - self._last_heartbeat < HEARTBEAT_SECONDS - ROUNDING
        if is_soon and loop._last_heartbeat - network.told_of_closing_at > PROBE_SECONDS:
            raise Violation("workers are told again and again that the scheduler is alive")
        self._last_heartbeat = loop._last_heartbeat
        if loop.num_bad < self._num_bad:
            raise Violation("messages that nobody could read are counted backwards")
        self._num_bad = loop.num_bad
        self._check_masks()

    def _check_masks(self) -> None:
        for worker in self._loop.core.workers.values():
            first = next((plan for plan in worker.in_flight if plan.lacks_masks), None)
            for row in first.constrained if first is not None else ():
                known = row.sequence.request.masks.get(row.sequence.branch)
                if row.sequence.request.spec.id in self._loop.core.requests and (
                    known is None or known[0] != row.position
                ):
                    break
            else:
                if first is not None:
                    raise Violation(f"the masks of step {first.step} of {worker.id} are known and not sent")

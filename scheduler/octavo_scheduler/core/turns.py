"""Why others are offered to admission before a sequence, in words with numbers. Asks only."""

from collections import Counter

from octavo_scheduler.core.admission import Admission
from octavo_scheduler.core.policy import warmth
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.waiting import ADMISSION_WINDOW, is_new
from octavo_scheduler.core.words import many


class Turns:
    """The order of one admission."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.settings = admission.worker.settings
        self.candidates = admission.candidates()

    def before(self, sequence: Sequence) -> list[Sequence]:
        """The candidates that are looked at before this one."""
        return self.candidates[: self.candidates.index(sequence)]

    def has_preferred(self) -> bool:
        """Whether anybody may owe its place to a cached prefix, so that the order changes when that is evicted."""
        new = (s for s in self.candidates if is_new(s) and len(s.request.account.line) > 1)
        return any(warmth(self.admission.worker, sequence) for sequence in new)

    def words(self, sequence: Sequence) -> str:
        """How many are offered before one of the candidates, and why; empty for the first."""
        if sequence is self.admission.raised:
            return f"; it is offered first: it waits longest of all, for more than {self.settings.max_wait_seconds:g} s"
        others = self.before(sequence)
        if not others:
            return ""
        reasons = Counter(self._reason(other, sequence) for other in others)
        why = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        return f"; {many(len(others), 'sequence')} {'is' if len(others) == 1 else 'are'} offered before it ({why})"

    def _reason(self, other: Sequence, sequence: Sequence) -> str:
        """What puts the other one before the sequence."""
        if other is self.admission.raised:
            return f"waits longest of all, for more than {self.settings.max_wait_seconds:g} s"
        if other.order[0] < sequence.order[0]:
            return "of a higher class"
        if not is_new(other):
            return "started already" if is_new(sequence) else "came earlier"
        if other.request.account is sequence.request.account:
            return "of its tenant, older" if other.order < sequence.order else "of its tenant, with a cached prefix"
        if self.settings.policy == "fcfs":
            return "of tenants that came earlier"
        given = sequence.request.account.counter
        return f"of tenants whose turn is earlier, since its own was given {given:g} (tokens by price and weight)"

    def not_offered(self, sequence: Sequence) -> str:
        """Why a sequence that the worker can hold is not among the candidates."""
        if is_new(sequence):
            for other in sequence.request.account.line:
                if other.longest <= self.admission.worker.capacity and not self.admission.has_share(other):
                    return self.beyond_share(other, sequence)
                if other is sequence:
                    break
        return f"more than {ADMISSION_WINDOW - 1} are before it, and {ADMISSION_WINDOW} are looked at in a step"

    def beyond_share(self, other: Sequence, sequence: Sequence) -> str:
        """That the tenant of both is at its share of the pages: no more of it start, least of all those after `other`."""
        worker = self.admission.worker
        promised = self.admission.promised(sequence.request.spec.tenant)
        who = "it" if other is sequence else f"request {other.request.spec.id} of the same tenant, which is before it,"
        return (
            f"its tenant may have {worker.tenant_pages} of {worker.device.num_usable} pages of {worker.id}: what it runs "
            f"may come to need {promised}, and {who} {self.admission.most_pages(other)}"
        )

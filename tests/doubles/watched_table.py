"""A table top that also notes who was admitted when, and what each tenant was given."""

from collections import Counter

from octavo_scheduler.core import Settings

from tests.doubles.paper_worker import PaperWorker
from tests.doubles.table_top import TableTop

VOCABULARY = 900


class WatchedTable(TableTop):
    """Has one worker, w. Requests are named by tenant and number; no two prompts of `flood` begin alike."""

    def __init__(self, settings: Settings, *, slots: int = 4, pages: int = 256, host_pages: int = 0) -> None:
        self.admitted: list[str] = []
        """Requests in the order of their admissions; those that came back are there again."""
        self.num_computed = 0
        """Tokens of all rows planned."""
        self.num_needed = 0
        """Tokens that have to be computed once."""
        self.prompts = Counter[str]()
        self._lengths: dict[str, tuple[str, int]] = {}
        worker = PaperWorker(
            pages=pages, host_pages=host_pages, max_slots=slots, max_step_tokens=settings.max_step_tokens
        )
        super().__init__(settings, w=worker)

    def flood(self, tenant: str, num_requests: int, prompt: int, answer: int, **fields: object) -> None:
        for _ in range(num_requests):
            number = len(self._lengths)
            tokens = [number % VOCABULARY, number // VOCABULARY, *[ord(tenant[0])] * prompt][:prompt]
            name = f"{tenant}{number}"
            self._lengths[name] = tenant, prompt
            self.num_needed += prompt + answer - 1
            self.submit(name, tokens, answer, tenant=tenant, **fields)

    def plan(self, name: str) -> bool:
        if not super().plan(name):
            return False
        plan = self.core.workers[name].in_flight[-1]
        self.num_computed += sum(plan.row_tokens)
        for new in plan.new_slots:
            request = new.sequence.request.spec.id
            if request in self._lengths and request not in self.admitted:
                tenant, length = self._lengths[request]
                self.prompts[tenant] += length
            self.admitted.append(request)
        return True

    def served(self, tenant: str) -> float:
        """Tokens of prompts that were admitted and of answers, times their prices."""
        settings = self.core.settings
        answers = sum(len(self.tokens[name]) for name, (owner, _) in self._lengths.items() if owner == tenant)
        return settings.prompt_token_price * self.prompts[tenant] + settings.answer_token_price * answers

    def num_queued(self, tenant: str) -> int:
        """Its requests that wait for their first row."""
        load = self.core.waiting.queued_of.get(tenant)
        return load.requests if load else 0

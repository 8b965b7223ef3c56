"""A worker of paper: it speaks the true step protocol, but its pages hold token ids instead of K and V.

Attention over a sequence is checked instead of computed: every position below a row's end must be found in the slot's pages,
with the right token. A page that was freed too early, swapped wrongly or written twice shows up as PaperFault. The next
token is a hash of the history, so that any schedule must give the same answer: `answer` says which. So are
log-probabilities, see `told`. Of biases it knows those that forbid: instead of a forbidden token comes the next one.
"""

from collections.abc import Sequence
from hashlib import shake_128
from math import inf
from struct import pack
from zlib import crc32

import numpy as np
from octavo.v1 import step_pb2

VOCAB_SIZE = 900
EMPTY = -1
MOST_PROMPT_SCORES = 5


class PaperFault(AssertionError):
    """The plan is wrong: the double found another page content than a correct plan leaves."""


def next_token(history: Sequence[int], seed: int = 0, branch: int = 0, mask: bytes = b"") -> int:
    chance = crc32(np.array([seed & 0xFFFF, branch, *history], dtype="<i4").tobytes())
    if not mask:
        return chance % VOCAB_SIZE
    allowed = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little").nonzero()[0]
    return int(allowed[chance % len(allowed)])


def mask_after(history: Sequence[int]) -> bytes:
    """What a constraint of paper allows to come next: half of the tokens, and after another history others."""
    whole = VOCAB_SIZE // 8
    some = shake_128(np.array(history, dtype="<i4").tobytes()).digest(whole)
    return (b"\1" + some[1:]).ljust(-(-VOCAB_SIZE // 32) * 4, b"\0")


def answer(
    prompt: Sequence[int], num_tokens: int, seed: int = 0, branch: int = 0, *, is_constrained: bool = False
) -> list[int]:
    """The only right answer to a prompt."""
    history = list(prompt)
    for _ in range(num_tokens):
        history.append(next_token(history, seed, branch, mask_after(history) if is_constrained else b""))
    return history[len(prompt) :]


def told(history: Sequence[int], position: int, num_best: int) -> bytes:
    """Log-probabilities of the token at a place of a history, as a result has them."""
    seen = crc32(np.array(history[: position + 1], dtype="<i4").tobytes())
    ids = [history[position], *((seen + nth) % VOCAB_SIZE for nth in range(num_best))]
    values = [-1 - seen / 2**32, *(-nth - seen / 2**32 for nth in range(num_best))]
    return b"".join(pack("<if", *pair) for pair in zip(ids, values, strict=True))


def column(data: bytes, dtype: str) -> list[int]:
    return [int(x) for x in np.frombuffer(data, dtype=dtype)]


class Slot:
    def __init__(self, tokens: list[int], num_computed: int, seed: int, branch: int) -> None:
        self.tokens = tokens
        self.computed = num_computed
        self.seed = seed
        self.branch = branch
        self.table: list[int] = []
        self.num_prompt = 0
        self.biases: list[tuple[int, float, int, int]] = []
        self.mask = b""
        """For the next token."""

    def sample(self) -> int:
        token, forbidden = next_token(self.tokens, self.seed, self.branch, self.mask), self.forbidden()
        self.mask = b""
        while token in forbidden:
            token = (token + 1) % VOCAB_SIZE
        self.tokens.append(token)
        return token

    def forbidden(self) -> set[int]:
        answer, found = self.tokens[self.num_prompt :], set()
        for place, (token, value, until, context) in enumerate(self.biases):
            before = [other for other, *_ in self.biases[place - max(context, 0) : place]]
            is_on = len(self.tokens) < until and context >= 0 and answer[len(answer) - len(before) :] == before
            if value == -inf and is_on and len(answer) >= len(before):
                found.add(token)
        return found


class PaperWorker:
    """Executes plans on paper. Counts what it did."""

    def __init__(
        self,
        *,
        page_size: int = 4,
        pages: int = 16,
        host_pages: int = 8,
        max_slots: int = 8,
        max_step_tokens: int = 64,
        minor: int = 2,
    ) -> None:
        """`minor`: its version of the protocol; with 0 it knows no forks, with 1 no log-probabilities and no masks.
        With 3 it takes masks that follow their plan.
        """
        self.page_size = page_size
        self.num_pages, self.num_host_pages = pages, host_pages
        self.max_slots, self.max_step_tokens, self.minor = max_slots, max_step_tokens, minor
        self.reset()

    def reset(self) -> None:
        self.device = np.full((self.num_pages + 1, self.page_size), EMPTY)
        self.host = np.full((self.num_host_pages + 1, self.page_size), EMPTY)
        self.slots: dict[int, Slot] = {}
        self.step = 0

    def hello(self, worker_id: str = "paper", digest: bytes = b"paper") -> step_pb2.Hello:
        return step_pb2.Hello(
            protocol_major=1,
            protocol_minor=self.minor,
            worker_id=worker_id,
            weights_digest=digest,
            geometry=step_pb2.PageGeometry(page_size=self.page_size, page_bytes=1024, dtype="int32", layout="paper"),
            device_pages=self.num_pages,
            host_pages=self.num_host_pages,
            max_slots=self.max_slots,
            max_step_tokens=self.max_step_tokens,
            max_context=4096,
            vocab_size=VOCAB_SIZE,
            kernels="paper",
            batch_invariant=True,
            max_prompt_scores=MOST_PROMPT_SCORES if self.minor >= 2 else 0,
            takes_late_masks=self.minor >= 3,
        )

    def execute(self, plan: step_pb2.StepPlan) -> step_pb2.StepResult:
        if plan.full:
            self.slots.clear()
        elif plan.step != self.step + 1:
            raise PaperFault(f"step {plan.step} after {self.step}")
        self.step = plan.step
        for slot in column(plan.freed_slot, "<u2"):
            del self.slots[slot]
        self._move(plan.swap_out, self.device, self.host)
        self._move(plan.swap_in, self.host, self.device)
        self._move(plan.copy, self.device, self.device)
        self.device[column(plan.zero, "<i4")] = 0
        self._start(plan.new_slots)
        self._grow(plan.growth)
        self._fork(plan.forks)
        computed = {name: slot.computed for name, slot in self.slots.items()}
        tokens = np.array(self._rows(plan.rows), dtype="<i4").tobytes()
        return step_pb2.StepResult(step=plan.step, token=tokens, logprobs=self._scores(plan.rows, computed))

    def _scores(self, rows: step_pb2.Rows, before: dict[int, int]) -> bytes:
        found, num_known = [], 0
        for name, position in zip(column(rows.score_slot, "<u2"), column(rows.score_position, "<i4"), strict=True):
            slot = self.slots[name]
            if not before[name] < position <= slot.computed or position >= len(slot.tokens):
                raise PaperFault(f"log-probabilities of a token at {position} are asked for where no row leads to")
            num_known += position < slot.num_prompt
            found.append(told(slot.tokens, position, rows.num_best))
        if num_known > MOST_PROMPT_SCORES + len(column(rows.slot, "<u2")):
            raise PaperFault("a plan asks for more log-probabilities of prompts than there is room for")
        return b"".join(found)

    def _move(self, moves: step_pb2.PageMoves, source: np.ndarray, target: np.ndarray) -> None:
        """All reads before all writes would hide a wrong order, so pages move one by one."""
        for a, b in zip(column(moves.source, "<i4"), column(moves.target, "<i4"), strict=True):
            if a == 0 or b == 0:
                raise PaperFault("the null page is moved")
            target[b] = source[a]

    def _start(self, new: step_pb2.NewSlots) -> None:
        tokens = column(new.tokens, "<i4")
        columns = (new.slot, "<u2"), (new.num_tokens, "<i4"), (new.num_computed, "<i4"), (new.seed, "<u8")
        branches = column(new.branch, "<u2")
        names = ("bias_token", "<i4"), ("bias", "<f4"), ("bias_until", "<i4"), ("bias_context", "<i4")
        biases = list(zip(*(np.frombuffer(getattr(new, name), kind).tolist() for name, kind in names), strict=True))
        counts = column(new.num_biases, "<i4")
        for slot, num_tokens, num_computed, seed, branch in zip(*(column(*c) for c in columns), branches, strict=True):
            if slot in self.slots or slot >= self.max_slots:
                raise PaperFault(f"slot {slot} is taken or does not exist")
            self.slots[slot] = Slot(tokens[:num_tokens], num_computed, seed, branch)
            tokens = tokens[num_tokens:]
        for name, num_prompt, count in zip(
            column(new.slot, "<u2"), column(new.num_prompt, "<i4"), counts or [0] * len(branches), strict=True
        ):
            self.slots[name].num_prompt = num_prompt
            self.slots[name].biases, biases = biases[:count], biases[count:]

    def _grow(self, growth: step_pb2.TableGrowth) -> None:
        pages, slots = column(growth.pages, "<i4"), column(growth.slot, "<u2")
        dropped = column(growth.num_dropped, "<i4") or [0] * len(slots)
        for slot, count, drop in zip(slots, column(growth.num_pages, "<i4"), dropped, strict=True):
            table = self.slots[slot].table
            del table[len(table) - drop :]
            table += pages[:count]
            pages = pages[count:]
        for table in (slot.table for slot in self.slots.values()):
            if len(table) != len(set(table)) or not all(1 <= page <= self.num_pages for page in table):
                raise PaperFault("a page is twice in a table or out of range")

    def _fork(self, forks: step_pb2.Forks) -> None:
        columns = (forks.source, "<u2"), (forks.target, "<u2"), (forks.branch, "<u2"), (forks.seed, "<u8")
        for source, target, branch, seed in zip(*(column(*c) for c in columns), strict=True):
            if target in self.slots or target >= self.max_slots:
                raise PaperFault(f"slot {target} is taken or does not exist")
            slot = self.slots[source]
            self.slots[target] = Slot(list(slot.tokens), slot.computed, seed, branch)
            self.slots[target].table = list(slot.table)
            self.slots[target].num_prompt, self.slots[target].biases = slot.num_prompt, slot.biases

    def _rows(self, rows: step_pb2.Rows) -> list[int]:
        names = column(rows.slot, "<u2")
        counts = column(rows.num_tokens, "<i4") or [1] * len(names)
        samples = column(rows.num_samples, "<u2") or [1] * len(names)
        if sum(counts) > self.max_step_tokens:
            raise PaperFault("a plan breaks the token budget")
        sampled = column(rows.sample_slot, "<u2")
        masks = self._masks(rows)
        tokens: list[int] = []
        for place, (name, count, sample) in enumerate(zip(names, counts, samples, strict=True)):
            forks, sampled = (sampled[1:sample], sampled[sample:]) if sampled else ([], [])
            if len(forks) != max(sample - 1, 0):
                raise PaperFault("a row does not say which slots it samples")
            for sampled_slot in (name, *forks):
                self.slots[sampled_slot].mask = masks.get(place, b"")
            tokens += self._row(self.slots[name], count, sample, [self.slots[fork] for fork in forks])
        if any(place >= len(samples) or not samples[place] for place in masks):
            raise PaperFault("a mask belongs to no row that samples")
        return tokens

    def _masks(self, rows: step_pb2.Rows) -> dict[int, bytes]:
        masked = column(rows.masked_row, "<u2")
        if masked and self.minor < 2:
            raise PaperFault("a worker of an older version is sent a mask")
        size = len(rows.mask) // (len(masked) or 1)
        return {place: rows.mask[i * size : (i + 1) * size] for i, place in enumerate(masked)}

    def _row(self, slot: Slot, count: int, sample: int, forks: list[Slot]) -> list[int]:
        end = slot.computed + count
        if count < 1 or end > len(slot.tokens) or len(slot.table) * self.page_size < end:
            raise PaperFault(f"a row ends at {end} of {len(slot.tokens)} tokens in {len(slot.table)} pages")
        written = slot.table[slot.computed // self.page_size : -(-end // self.page_size)]
        others = {
            page for other in self.slots.values() if other is not slot and other not in forks for page in other.table
        }
        if others.intersection(written):
            raise PaperFault("a page of another sequence is written")
        flat = self.device[slot.table].reshape(-1)
        flat[slot.computed : end] = slot.tokens[slot.computed : end]
        self.device[slot.table] = flat.reshape(-1, self.page_size)
        if list(flat[:end]) != slot.tokens[:end]:
            raise PaperFault("a page holds other tokens than its sequence computed")
        slot.computed = end
        if bool(sample) != (end == len(slot.tokens)):
            raise PaperFault("a row samples too early or not at all")
        for fork in forks:
            if fork.tokens != slot.tokens or fork.table != slot.table:
                raise PaperFault("a fork differs from the slot that it is sampled with")
            fork.computed = end
        return [sampled.sample() for sampled in (slot, *forks)] if sample else []

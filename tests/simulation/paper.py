"""The runner of a simulated worker: true plans, executed on paper.

A page holds four bytes for each position: a checksum of the history up to there, as K and V at a position depend on all
tokens before. Every row checks all positions below its end, so a page that was freed too early, moved wrongly, shared
wrongly or written twice is found by the next row that reads it. The next token is a hash of history, seed and branch:
there is one right answer to a request under any schedule.
"""

import struct
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from zlib import crc32

from octavo.v1 import step_pb2

from tests.simulation.violation import Violation

VOCAB_SIZE = 97
MOST_PROMPT_SCORES = 3
"""Rows of logits that a worker has for them, beyond one for each row of a step."""
WIDTH = 4  # bytes of a position
POISON = b"\xa5" * WIDTH
ZERO = bytes(WIDTH)
ANY = b"\xff" * WIDTH
"""A mask that follows for a row whose sample nobody waits for any more."""


class OutOfSequence(Exception):
    """A plan is missing or came twice: the worker refuses and changes nothing."""


def column(code: str, data: bytes) -> list[int]:
    return array(code, data).tolist() if data else []


@lru_cache(maxsize=4096)
def written(tokens: bytes) -> bytes:
    """What the pages of a sequence hold for these tokens (int32 each)."""
    state, found = 0, []
    for place in range(0, len(tokens), WIDTH):
        state = crc32(tokens[place : place + WIDTH], state)
        found.append(state)
    return array("I", found).tobytes()


def identity(seed: int, branch: int) -> bytes:
    return struct.pack("<QH", seed, branch)


def sample(state: int, who: bytes) -> int:
    """The token that follows a history whose checksum is `state`."""
    return crc32(who, state) % VOCAB_SIZE


def extend(state: int, token: int) -> int:
    return crc32(token.to_bytes(WIDTH, "little"), state)


def mask_of(state: int) -> bytes:
    """Stands for the mask of what may follow a history. It says which one it is, and forbids nothing."""
    return state.to_bytes(WIDTH, "little")


def scores_of(state: bytes | bytearray, num_best: int) -> bytes:
    """Stands for the log-probabilities of the token that makes this history, and of so many likely ones."""
    return b"".join([struct.pack("<i", rank) + state for rank in range(1 + num_best)])


def checksum(tokens: Sequence[int]) -> int:
    return crc32(array("i", tokens).tobytes())


class Slot:
    __slots__ = ("computed", "state", "table", "values", "who")

    def __init__(self, values: bytes | bytearray, computed: int, who: bytes) -> None:
        self.values = bytearray(values)
        self.computed = computed
        self.who = who
        self.state = int.from_bytes(values[-WIDTH:], "little")
        self.table: list[int] = []

    @property
    def length(self) -> int:
        """Known tokens."""
        return len(self.values) // WIDTH

    def fork(self, who: bytes) -> "Slot":
        made = Slot(self.values, self.computed, who)
        made.table = list(self.table)
        return made

    def draw(self) -> int:
        token = sample(self.state, self.who)
        self.state = extend(self.state, token)
        self.values += self.state.to_bytes(WIDTH, "little")
        return token


class Paper:
    """Slots and pages of one worker. Raises Violation for a plan that no worker could execute rightly."""

    def __init__(
        self,
        *,
        page_size: int,
        device_pages: int,
        host_pages: int,
        max_slots: int,
        max_step_tokens: int,
        max_context: int,
        needs_zeroed_pages: bool,
        can_fork: bool = True,
        can_mask: bool = False,
        takes_late_masks: bool = False,
    ) -> None:
        self.page_size = page_size
        self.num_device, self.num_host = device_pages, host_pages
        self.max_slots, self.max_step_tokens, self.max_context = max_slots, max_step_tokens, max_context
        self.needs_zeroed_pages, self.can_fork, self.can_mask = needs_zeroed_pages, can_fork, can_fork and can_mask
        self.takes_late_masks = self.can_mask and takes_late_masks
        self.slots: dict[int, Slot] = {}
        self.reset()

    def reset(self) -> None:
        """A new stay: an empty pool, whose bytes nothing may read."""
        self.device = [POISON * self.page_size] * (self.num_device + 1)
        self.host = [POISON * self.page_size] * (self.num_host + 1)
        self.slots.clear()
        self.last_step = 0
        self.scores = b""
        """Log-probabilities that the last step told."""

    def hello(self, name: str, digest: bytes, protocol_major: int = 1) -> step_pb2.Hello:
        return step_pb2.Hello(
            protocol_major=protocol_major,
            protocol_minor=self.can_fork + self.can_mask,
            worker_id=name,
            weights_digest=digest,
            geometry=step_pb2.PageGeometry(page_size=self.page_size, page_bytes=64 * self.page_size, layout="paper"),
            device_pages=self.num_device,
            host_pages=self.num_host,
            max_slots=self.max_slots,
            max_step_tokens=self.max_step_tokens,
            max_context=self.max_context,
            vocab_size=VOCAB_SIZE,
            needs_zeroed_pages=self.needs_zeroed_pages,
            max_prompt_scores=MOST_PROMPT_SCORES * self.can_mask,
            takes_late_masks=self.takes_late_masks,
            batch_invariant=True,
        )

    def execute(self, plan: step_pb2.StepPlan, late: bytes | None = None) -> list[int]:
        """One token for each sampled slot. The order here is the order in which a plan's effects are observed.

        `late`: masks that followed the plan.
        """
        self._late = late
        if plan.step != self.last_step + 1 and not (plan.full and plan.step > self.last_step):
            raise OutOfSequence
        if plan.full:
            self.slots.clear()
        for name in column("H", plan.freed_slot):
            if self.slots.pop(name, None) is None:
                raise Violation(f"slot {name} is given up and was not in use")
        if not self.can_fork and (plan.HasField("forks") or plan.growth.num_dropped):
            raise Violation("a worker of an older version is sent what it would misread")
        self._move(plan.swap_out, self.device, self.host)
        self._move(plan.swap_in, self.host, self.device)
        self._move(plan.copy, self.device, self.device)
        for page in self._within(column("i", plan.zero), self.num_device):
            self.device[page] = ZERO * self.page_size
        if plan.HasField("new_slots"):
            self._start(plan.new_slots)
        if plan.HasField("growth"):
            self._grow(plan.growth)
        made = self._fork(plan.forks) if plan.HasField("forks") else {}
        self.scores = b""
        tokens = self._rows(plan.rows, made) if plan.HasField("rows") else []
        self.last_step = plan.step
        return tokens

    @staticmethod
    def _within(pages: list[int], last: int) -> list[int]:
        if pages and (min(pages) < 1 or max(pages) > last):
            raise Violation(f"pages lie in 1..{last}, and the plan names {min(pages)}..{max(pages)}")
        return pages

    def _move(self, moves: step_pb2.PageMoves, source: list[bytes], target: list[bytes]) -> None:
        """All sources are read before any target is written, as one copy of many pages may do it in any order."""
        if not moves.source and not moves.target:
            return
        sources = self._within(column("i", moves.source), len(source) - 1)
        targets = self._within(column("i", moves.target), len(target) - 1)
        if len(sources) != len(targets) or len(set(targets)) != len(targets):
            raise Violation("page moves are not pairs, or two of them write the same page")
        if source is target and not set(sources).isdisjoint(targets):
            raise Violation("a page is read and written by the copies of one plan")
        for page, content in zip(targets, [source[page] for page in sources], strict=True):
            target[page] = content

    def _start(self, new: step_pb2.NewSlots) -> None:
        tokens, first = new.tokens, 0
        branches = column("H", new.branch)
        columns = column("H", new.slot), column("i", new.num_tokens), column("i", new.num_computed)
        prompts = column("i", new.num_prompt)
        for name, count, computed, prompt, seed, branch in zip(
            *columns, prompts, column("Q", new.seed), branches, strict=True
        ):
            if name in self.slots or name >= self.max_slots:
                raise Violation(f"slot {name} is taken or does not exist")
            if not 0 <= computed < count <= self.max_context or not 1 <= prompt <= count:
                raise Violation(f"a slot starts with {count} tokens, {prompt} of the prompt, {computed} computed")
            last = first + count * WIDTH
            self.slots[name] = Slot(written(tokens[first:last]), computed, identity(seed, branch))
            first = last
        if first != len(tokens):
            raise Violation("the tokens of new slots do not add up")

    def _grow(self, growth: step_pb2.TableGrowth) -> None:
        pages, first = self._within(column("i", growth.pages), self.num_device), 0
        names, counts = column("H", growth.slot), column("i", growth.num_pages)
        dropped: Iterable[int] = column("i", growth.num_dropped) or [0] * len(names)
        if len(set(names)) != len(names):
            raise Violation("a table grows twice in one plan")
        for name, count, drop in zip(names, counts, dropped, strict=True):
            table = self.slots[name].table
            del table[len(table) - drop :]
            table += pages[first : first + count]
            if len(set(table)) != len(table):
                raise Violation("a page is twice in a table")
            first += count
        if first != len(pages):
            raise Violation("the pages of growing tables do not add up")

    def _fork(self, forks: step_pb2.Forks) -> dict[int, int]:
        """Target by source."""
        sources, targets = column("H", forks.source), column("H", forks.target)
        for source, target, branch, seed in zip(
            sources, targets, column("H", forks.branch), column("Q", forks.seed), strict=True
        ):
            if target in self.slots or target >= self.max_slots:
                raise Violation(f"slot {target} is taken or does not exist")
            self.slots[target] = self.slots[source].fork(identity(seed, branch))
        return dict(zip(targets, sources, strict=True))

    def _rows(self, rows: step_pb2.Rows, made: dict[int, int]) -> list[int]:
        names = column("H", rows.slot)
        counts = column("i", rows.num_tokens) or [1] * len(names)
        samples = column("H", rows.num_samples) or [1] * len(names)
        sampled = iter(column("H", rows.sample_slot) or self._own(names, samples, made))
        if not names or len(set(names)) != len(names) or min(counts) < 1 or sum(counts) > self.max_step_tokens:
            raise Violation(f"rows of slots {names} compute {counts} tokens")
        self._check_writers(names, counts, made)
        masks = self._masks(rows)
        before = {name: self.slots[name].computed for name in names}
        tokens: list[int] = []
        for place, (name, count, num_samples) in enumerate(zip(names, counts, samples, strict=True)):
            slot = self.slots[name]
            self._compute(slot, count)
            needed = num_samples and mask_of(slot.state)
            if masks.pop(place, needed) not in ((needed, ANY) if self._late is not None else (needed,)):
                raise Violation("a row has the mask of another position, or needs none")
            if (num_samples > 0) != (slot.computed == slot.length):
                raise Violation("a row samples too early, or not at all")
            drawn = [next(sampled) for _ in range(num_samples)]
            if any(other != name and made.get(other) != name for other in drawn):
                raise Violation(f"slots {drawn} are sampled from the row of slot {name}")
            for other in drawn:
                self.slots[other].computed = slot.computed
                before[other] = before[name]
                tokens.append(self.slots[other].draw())
        if next(sampled, None) is not None:
            raise Violation("more slots are sampled than rows say")
        if masks:
            raise Violation("a mask has no row")
        self.scores = self._scores(rows, before)
        return tokens

    def _scores(self, rows: step_pb2.Rows, before: dict[int, int]) -> bytes:
        """Only of a token whose predecessor this very step computes are the logits there."""
        found, heads = [], {(name, self.slots[name].computed) for name in before}
        for name, position in zip(column("H", rows.score_slot), column("i", rows.score_position), strict=True):
            slot = self.slots[name]
            if not before[name] < position <= slot.computed or position >= slot.length:
                raise Violation(
                    f"the token at {position} of slot {name} is scored, and its row begins at {before[name]}"
                )
            heads.add((name, position))
            found.append(scores_of(slot.values[position * WIDTH : (position + 1) * WIDTH], rows.num_best))
        if found and (not self.can_mask or len(heads) > len(before) + MOST_PROMPT_SCORES):
            raise Violation(f"a step has {len(heads)} rows of logits for {len(before)} rows")
        return b"".join(found)

    def _masks(self, rows: step_pb2.Rows) -> dict[int, bytes]:
        masked, mask = column("H", rows.masked_row), rows.mask if self._late is None else self._late
        if self._late == b"":
            mask = ANY * len(masked)
        if (masked and not self.can_mask) or len(mask) != WIDTH * len(masked):
            raise Violation("a worker is sent masks that it would misread")
        return {place: mask[i * WIDTH : (i + 1) * WIDTH] for i, place in enumerate(masked)}

    @staticmethod
    def _own(names: list[int], samples: list[int], made: dict[int, int]) -> list[int]:
        """The slots sampled when a plan does not spell them out: each row's own, then its forks."""
        if not made:
            return [name for name, count in zip(names, samples, strict=True) if count]
        forks = {name: [target for target, source in made.items() if source == name] for name in names}
        return [slot for name, count in zip(names, samples, strict=True) if count for slot in (name, *forks[name])]

    def _check_writers(self, names: list[int], counts: list[int], made: dict[int, int]) -> None:
        """No page is written that another slot's table names, but for forks made in this very plan."""
        users: dict[int, int] = {}
        for name, slot in self.slots.items():
            if name not in made:
                for page in slot.table:
                    users[page] = users.get(page, 0) + 1
        for name, count in zip(names, counts, strict=True):
            slot = self.slots[name]
            end = slot.computed + count
            if end > slot.length or len(slot.table) * self.page_size < end:
                raise Violation(f"a row ends at {end} of {slot.length} tokens in {len(slot.table)} pages")
            for page in slot.table[slot.computed // self.page_size : -(-end // self.page_size)]:
                if users[page] != 1:
                    raise Violation(f"page {page} is written by one of the {users[page]} sequences that share it")

    def _compute(self, slot: Slot, count: int) -> None:
        device, table, values = self.device, slot.table, slot.values
        width = self.page_size * WIDTH
        start, end = slot.computed * WIDTH, (slot.computed + count) * WIDTH
        for number in range(start // width, -(-end // width)):
            page, first = table[number], number * width
            low, high = max(start - first, 0), min(end - first, width)
            before = device[page]
            if self.needs_zeroed_pages and before[low:].strip(b"\0"):
                raise Violation(f"page {page} was not zeroed before it was used again")
            device[page] = before[:low] + values[first + low : first + high] + before[high:]
        if b"".join([device[page] for page in table])[:end] != values[:end]:
            raise Violation("a page holds something else than its sequence computed")
        slot.computed += count

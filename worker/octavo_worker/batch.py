"""Between the step protocol and the worker: protobuf messages end here.

`read_plan` turns a StepPlan's byte columns into numpy arrays and fills in the defaults that the protocol allows.
It refuses columns whose lengths do not fit each other; whether the numbers make sense is for `check`.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from octavo.v1 import step_pb2
from octavo_kernels.ops import Geometry, Ops

from octavo_worker.errors import PlanRefused, Reason
from octavo_worker.limits import MOST_PROMPT_SCORES, Limits
from octavo_worker.slots import SAMPLING_COLUMNS, Array

PROTOCOL_MAJOR, PROTOCOL_MINOR = 1, 3
StepPlan: TypeAlias = step_pb2.StepPlan
StepResult: TypeAlias = step_pb2.StepResult
Hello: TypeAlias = step_pb2.Hello
UINT16, INT32, FLOAT32, UINT64 = (np.dtype(code) for code in ("<u2", "<i4", "<f4", "<u8"))
SAMPLING_FORMATS = {"seed": UINT64, "branch": UINT16, "top_k": INT32, "num_prompt": INT32}  # the others: float32


@dataclass(frozen=True, slots=True)
class Moves:
    """Pages copied from `source` to `target`, pairwise."""

    source: Array
    target: Array


@dataclass(frozen=True, slots=True)
class NewSlots:
    """Slots that start. `tokens` and `biases` hold those of all slots one after the other."""

    slot: Array
    num_tokens: Array
    num_computed: Array
    tokens: Array
    sampling: dict[str, Array]  # by the names of SAMPLING_COLUMNS
    num_biases: Array
    biases: Array  # int32 [biases, BIAS_WORDS]


@dataclass(frozen=True, slots=True)
class Growth:
    """First `num_dropped` pages are taken off the end of a table, then `num_pages` are added.

    `pages` holds the added ones of all slots one after the other.
    """

    slot: Array
    num_dropped: Array
    num_pages: Array
    pages: Array


@dataclass(frozen=True, slots=True)
class Forks:
    """Slots copied."""

    source: Array
    target: Array
    branch: Array
    seed: Array


@dataclass(frozen=True, slots=True)
class Rows:
    """What is computed. `sample_slot` holds the slots of all rows one after the other.

    `num_best` log-probabilities are asked for beside those of the tokens at `score_position` of `score_slot`.
    `masked`: places among the rows of those that have a mask; `mask` int32 [masked rows, words].
    """

    slot: Array
    num_tokens: Array
    num_samples: Array
    sample_slot: Array
    score_slot: Array
    score_position: Array
    num_best: int
    masked: Array
    mask: Array

    @property
    def are_masks_late(self) -> bool:
        """Whether they follow the plan."""
        return len(self.masked) > 0 and not self.mask.size

    @property
    def masks_of_samples(self) -> Array:
        """[samples] which mask each is drawn by; -1: none."""
        which = np.full(len(self.slot), -1)
        which[self.masked] = np.arange(len(self.masked))
        return np.repeat(which, self.num_samples)


@dataclass(frozen=True, slots=True)
class Plan:
    """A StepPlan in numpy. Slots and counts are int64."""

    step: int
    full: bool
    freed: Array
    swap_out: Moves
    swap_in: Moves
    copy: Moves
    zero: Array
    new: NewSlots
    growth: Growth
    forks: Forks
    rows: Rows


def refuse(message: str) -> PlanRefused:
    """An INVALID plan."""
    return PlanRefused(Reason.INVALID, message)


def column(data: bytes, dtype: np.dtype[Any], name: str) -> Array:
    """The values of a packed column; integers as int64, keys as the bits of int64."""
    if len(data) % dtype.itemsize:
        raise refuse(f"column {name} has {len(data)} bytes, which is no multiple of {dtype.itemsize}")
    values: Array = np.frombuffer(data, dtype)
    if dtype is UINT64:
        return values.view(np.int64)
    return values if dtype is FLOAT32 else values.astype(np.int64)


def same_length(group: str, *columns: Array) -> None:
    if len({len(values) for values in columns}) > 1:
        raise refuse(f"columns of {group} have {', '.join(str(len(values)) for values in columns)} elements")


def parts(group: str, counts: Array, values: Array) -> None:
    """Raise unless `values` is cut into parts of `counts` elements each."""
    if (counts < 0).any() or counts.sum() != len(values):
        raise refuse(f"{group} announces {counts.sum()} elements and brings {len(values)}")


def read_plan(message: step_pb2.StepPlan) -> Plan:
    """Raises PlanRefused (INVALID) when columns do not fit each other."""
    return Plan(
        step=message.step,
        full=message.full,
        freed=column(message.freed_slot, UINT16, "freed_slot"),
        swap_out=read_moves(message.swap_out, "swap_out"),
        swap_in=read_moves(message.swap_in, "swap_in"),
        copy=read_moves(message.copy, "copy"),
        zero=column(message.zero, INT32, "zero"),
        new=read_new(message.new_slots),
        growth=read_growth(message.growth),
        forks=read_forks(message.forks),
        rows=read_rows(message.rows),
    )


def read_moves(message: step_pb2.PageMoves, name: str) -> Moves:
    moves = Moves(column(message.source, INT32, name), column(message.target, INT32, name))
    same_length(name, moves.source, moves.target)
    return moves


def read_new(message: step_pb2.NewSlots) -> NewSlots:
    sampling = {
        name: column(getattr(message, name), SAMPLING_FORMATS.get(name, FLOAT32), f"new_slots.{name}")
        for name in SAMPLING_COLUMNS
    }
    new = NewSlots(
        slot=column(message.slot, UINT16, "new_slots.slot"),
        num_tokens=column(message.num_tokens, INT32, "new_slots.num_tokens"),
        num_computed=column(message.num_computed, INT32, "new_slots.num_computed"),
        tokens=column(message.tokens, INT32, "new_slots.tokens"),
        sampling=sampling,
        num_biases=column(message.num_biases, INT32, "new_slots.num_biases")
        if message.num_biases
        else np.zeros(len(message.slot) // UINT16.itemsize, np.int64),
        biases=read_biases(message),
    )
    same_length("new_slots", new.slot, new.num_tokens, new.num_computed, new.num_biases, *sampling.values())
    parts("new_slots.num_tokens", new.num_tokens, new.tokens)
    parts("new_slots.num_biases", new.num_biases, new.biases)
    return new


def read_biases(message: step_pb2.NewSlots) -> Array:
    columns = [
        column(getattr(message, name), dtype, f"new_slots.{name}").astype(dtype).view(np.int32)
        for name, dtype in (("bias_token", INT32), ("bias", FLOAT32), ("bias_until", INT32), ("bias_context", INT32))
    ]
    same_length("the biases of new_slots", *columns)
    return np.stack(columns, axis=1)


def read_growth(message: step_pb2.TableGrowth) -> Growth:
    slot = column(message.slot, UINT16, "growth.slot")
    dropped = column(message.num_dropped, INT32, "growth.num_dropped") if message.num_dropped else np.zeros_like(slot)
    growth = Growth(
        slot=slot,
        num_dropped=dropped,
        num_pages=column(message.num_pages, INT32, "growth.num_pages"),
        pages=column(message.pages, INT32, "growth.pages"),
    )
    same_length("growth", growth.slot, growth.num_dropped, growth.num_pages)
    parts("growth.num_pages", growth.num_pages, growth.pages)
    return growth


def read_forks(message: step_pb2.Forks) -> Forks:
    forks = Forks(
        source=column(message.source, UINT16, "forks.source"),
        target=column(message.target, UINT16, "forks.target"),
        branch=column(message.branch, UINT16, "forks.branch"),
        seed=column(message.seed, UINT64, "forks.seed"),
    )
    same_length("forks", forks.source, forks.target, forks.branch, forks.seed)
    return forks


def read_rows(message: step_pb2.Rows) -> Rows:
    slot = column(message.slot, UINT16, "rows.slot")
    num_tokens = column(message.num_tokens, INT32, "rows.num_tokens") if message.num_tokens else np.ones_like(slot)
    num_samples = column(message.num_samples, UINT16, "rows.num_samples") if message.num_samples else np.ones_like(slot)
    same_length("rows", slot, num_tokens, num_samples)
    if message.sample_slot:
        sample_slot = column(message.sample_slot, UINT16, "rows.sample_slot")
    elif (num_samples > 1).any():
        raise refuse("a row samples several slots and rows.sample_slot does not say which")
    else:
        sample_slot = slot[num_samples == 1]
    parts("rows.num_samples", num_samples, sample_slot)
    score_slot = column(message.score_slot, UINT16, "rows.score_slot")
    score_position = column(message.score_position, INT32, "rows.score_position")
    same_length("rows.score_slot and rows.score_position", score_slot, score_position)
    scored = score_slot, score_position, message.num_best
    return Rows(slot, num_tokens, num_samples, sample_slot, *scored, *read_masks(message))


def read_masks(message: step_pb2.Rows) -> tuple[Array, Array]:
    """Which rows have a mask, and the masks."""
    masked = column(message.masked_row, UINT16, "rows.masked_row")
    words = len(message.mask) // (len(masked) or 1) // INT32.itemsize
    if len(message.mask) != len(masked) * words * INT32.itemsize:
        raise refuse(f"rows.mask has {len(message.mask)} bytes, which are no {len(masked)} masks of one length")
    return masked, np.frombuffer(message.mask, INT32).reshape(len(masked), words)


def write_result(
    *, step: int, tokens: Array, logprobs: bytes, execute_seconds: float, swapped_bytes: int, swap_seconds: float
) -> step_pb2.StepResult:
    """A StepResult; `tokens` in the order of the plan's samples."""
    return step_pb2.StepResult(
        step=step,
        token=tokens.astype(INT32).tobytes(),
        logprobs=logprobs,
        execute_seconds=execute_seconds,
        swapped_bytes=swapped_bytes,
        swap_seconds=swap_seconds,
    )


def pairs(ids: Array, values: Array) -> bytes:
    """Tokens, int32, and their log-probabilities, float32, in turn."""
    return np.stack([ids.astype(INT32), values.astype(FLOAT32).view(INT32)], axis=-1).tobytes()


def takes_late_masks(ops: Ops) -> bool:
    """Whether masks may follow their plan: ranks of a group are told plans alone."""
    return ops.may_wait and ops.ranks == 1


def write_hello(
    *,
    worker_id: str,
    digest: bytes,
    geometry: Geometry,
    limits: Limits,
    max_slots: int,
    max_context: int,
    ops: Ops,
    copy_bytes_per_second: float,
    prefill_tokens_per_second: float,
) -> step_pb2.Hello:
    """A Hello."""
    return step_pb2.Hello(
        protocol_major=PROTOCOL_MAJOR,
        protocol_minor=PROTOCOL_MINOR,
        worker_id=worker_id,
        weights_digest=digest,
        geometry=step_pb2.PageGeometry(
            page_size=geometry.page_size,
            num_layers=geometry.num_layers,
            num_kv_heads=geometry.num_kv_heads,
            head_dim=geometry.head_dim,
            dtype=geometry.dtype,
            layout=ops.layout,
            page_bytes=geometry.page_bytes,
        ),
        device_pages=limits.device_pages,
        host_pages=limits.host_pages,
        max_slots=max_slots,
        max_step_tokens=limits.max_step_tokens,
        max_context=max_context,
        vocab_size=limits.vocab_size,
        kernels=ops.name,
        batch_invariant=ops.batch_invariant,
        needs_zeroed_pages=ops.needs_zeroed_pages,
        copy_bytes_per_second=copy_bytes_per_second,
        prefill_tokens_per_second=prefill_tokens_per_second,
        max_prompt_scores=MOST_PROMPT_SCORES,
        takes_late_masks=takes_late_masks(ops),
    )

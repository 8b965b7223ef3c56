"""Between the core's records and the step protocol's messages. Step protobuf types go no further than this module.

A minor version of the protocol only adds. What a worker must not pass over in silence goes only to those whose minor version
has it, so each such thing has a number below, and a field of `Joined` by which the core knows who can do it.
"""

import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import inf

from google.protobuf.message import DecodeError
from octavo.v1 import step_pb2

from octavo_scheduler import limits
from octavo_scheduler.core.events import Joined, Nack, Rates, StepDone
from octavo_scheduler.core.plan import Fork, Growth, NewSlot, StepPlan
from octavo_scheduler.core.request import ALWAYS

PROTOCOL_MAJOR = 1
PROTOCOL_MINOR = 3
FORKS_SINCE = 1
"""Minor version of workers that can fork slots whose last page is shared."""

RefusalReason = step_pb2.Refusal.Reason
REFUSED_PROTOCOL = step_pb2.Refusal.REASON_PROTOCOL
REFUSED_WEIGHTS = step_pb2.Refusal.REASON_WEIGHTS
REFUSED_WORKER_ID = step_pb2.Refusal.REASON_WORKER_ID
REFUSED_GEOMETRY = step_pb2.Refusal.REASON_GEOMETRY

_SWAP = sys.byteorder == "big"


class BadMessage(Exception):
    """A peer sent bytes that are not a message of the step protocol."""


@dataclass(frozen=True)
class Epoch:
    """One stay of one worker."""

    boot_id: int
    counter: int


@dataclass(frozen=True)
class Greeting:
    """A Hello: what the core needs to know, and what the loop checks before it lets the worker in."""

    joined: Joined
    protocol_major: int
    protocol_minor: int
    weights_digest: bytes


@dataclass(frozen=True)
class StepReport:
    """A result: the core's event, and the measured speed of its page moves (bytes, seconds)."""

    done: StepDone
    execute_seconds: float
    swapped_bytes: int
    swap_seconds: float


@dataclass(frozen=True)
class Alive:
    """A heartbeat."""

    phase: str
    last_step: int
    memory: tuple[int, int] | None = None
    """Of the worker's device, where it says so: bytes in use, bytes in all."""


@dataclass(frozen=True)
class Leaving:
    """A goodbye."""

    message: str


@dataclass(frozen=True)
class Refused:
    """A nack, with the worker's reason for the operator's log."""

    nack: Nack
    reason: str


Body = Greeting | StepReport | Refused | Alive | Leaving | Rates


def column(code: str, values: Iterable[int] | Iterable[float]) -> bytes:
    """Values as packed little-endian elements; `code` is an array type code (H uint16, i int32, f float32, Q uint64)."""
    packed = array(code, values)
    if _SWAP:
        packed.byteswap()
    return packed.tobytes()


def uncolumn(code: str, data: bytes) -> "array[int]":
    """The elements of a column; raises BadMessage when the bytes do not divide into elements."""
    packed: array[int] = array(code)
    if len(data) % packed.itemsize:
        raise BadMessage(f"a column of {len(data)} bytes does not hold elements of {packed.itemsize}")
    packed.frombytes(data)
    if _SWAP:
        packed.byteswap()
    return packed


def _moves(pairs: Sequence[tuple[int, int]]) -> step_pb2.PageMoves:
    return step_pb2.PageMoves(
        source=column("i", [source for source, _ in pairs]), target=column("i", [target for _, target in pairs])
    )


def _new_slots(slots: Sequence[NewSlot]) -> step_pb2.NewSlots:
    sampling = [new.sequence.request.spec.sampling for new in slots]
    message = step_pb2.NewSlots(
        slot=column("H", [new.slot for new in slots]),
        num_tokens=column("i", [len(new.tokens) for new in slots]),
        num_prompt=column("i", [new.sequence.num_prompt for new in slots]),
        num_computed=column("i", [new.num_computed for new in slots]),
        tokens=column("i", [token for new in slots for token in new.tokens]),
        temperature=column("f", [s.temperature for s in sampling]),
        top_p=column("f", [s.top_p for s in sampling]),
        min_p=column("f", [s.min_p for s in sampling]),
        top_k=column("i", [s.top_k for s in sampling]),
        repetition_penalty=column("f", [s.repetition_penalty for s in sampling]),
        presence_penalty=column("f", [s.presence_penalty for s in sampling]),
        frequency_penalty=column("f", [s.frequency_penalty for s in sampling]),
        seed=column("Q", [s.seed for s in sampling]),
        branch=column("H", [new.sequence.branch for new in slots]),
    )
    if any(new.biases.tokens for new in slots):
        _put_biases(message, slots)
    return message


def _put_biases(message: step_pb2.NewSlots, slots: Sequence[NewSlot]) -> None:
    """The worker counts the prompt too."""
    message.num_biases = column("i", [len(new.biases.tokens) for new in slots])
    message.bias_token = column("i", [token for new in slots for token in new.biases.tokens])
    message.bias = column("f", [value for new in slots for value in new.biases.values])
    message.bias_until = column(
        "i", [min(new.sequence.num_prompt + until, ALWAYS) for new in slots for until in new.biases.until]
    )
    message.bias_context = column("i", [context for new in slots for context in new.biases.contexts])


def _rows(plan: StepPlan) -> step_pb2.Rows:
    """The defaults of the schema make a pure decode step one column of slots."""
    rows = step_pb2.Rows(slot=column("H", plan.row_slots))
    if any(count != 1 for count in plan.row_tokens):
        rows.num_tokens = column("i", plan.row_tokens)
    if any(count != 1 for count in plan.row_samples):
        rows.num_samples = column("H", plan.row_samples)
    if plan.forks:
        forks = iter(plan.forks)
        sampled = zip(plan.row_slots, plan.row_samples, strict=True)
        slots = [[slot, *(fork.target for fork in islice(forks, count - 1))] for slot, count in sampled if count]
        rows.sample_slot = column("H", chain.from_iterable(slots))
    if plan.scored:
        rows.score_slot = column("H", [sequence.slot for sequence, _ in plan.scored])
        rows.score_position = column("i", [position for _, position in plan.scored])
        rows.num_best = plan.num_best
    if plan.constrained:
        rows.masked_row = column("H", [row.place for row in plan.constrained])
        rows.mask = b"".join(plan.masks or ())
    return rows


def _forks(forks: Sequence[Fork]) -> step_pb2.Forks:
    return step_pb2.Forks(
        source=column("H", [fork.source for fork in forks]),
        target=column("H", [fork.target for fork in forks]),
        branch=column("H", [fork.sequence.branch for fork in forks]),
        seed=column("Q", [fork.sequence.request.spec.sampling.seed for fork in forks]),
    )


def _growth(growth: Sequence[Growth]) -> step_pb2.TableGrowth:
    message = step_pb2.TableGrowth(
        slot=column("H", [slot for slot, _, _ in growth]),
        num_pages=column("i", [len(pages) for _, _, pages in growth]),
        pages=column("i", [page for _, _, pages in growth for page in pages]),
    )
    if any(num_dropped for _, num_dropped, _ in growth):
        message.num_dropped = column("i", [num_dropped for _, num_dropped, _ in growth])
    return message


def encode_plan(epoch: Epoch, plan: StepPlan) -> bytes:
    """The plan as one envelope. Groups without content are left out."""
    message = step_pb2.StepPlan(step=plan.step, full=plan.full)
    if plan.freed_slots:
        message.freed_slot = column("H", plan.freed_slots)
    if plan.swap_out:
        message.swap_out.CopyFrom(_moves(plan.swap_out))
    if plan.swap_in:
        message.swap_in.CopyFrom(_moves(plan.swap_in))
    if plan.copy:
        message.copy.CopyFrom(_moves(plan.copy))
    if plan.zero:
        message.zero = column("i", plan.zero)
    if plan.new_slots:
        message.new_slots.CopyFrom(_new_slots(plan.new_slots))
    if plan.growth:
        message.growth.CopyFrom(_growth(plan.growth))
    if plan.forks:
        message.forks.CopyFrom(_forks(plan.forks))
    if plan.row_slots:
        message.rows.CopyFrom(_rows(plan))
    return _envelope(epoch, plan=message)


def encode_masks(epoch: Epoch, plan: StepPlan) -> bytes:
    """The masks of a plan that was sent without."""
    return _envelope(epoch, masks=step_pb2.StepMasks(step=plan.step, mask=b"".join(plan.masks or ())))


def encode_welcome(epoch: Epoch, heartbeat_seconds: float, protocol_minor: int) -> bytes:
    return _envelope(
        epoch, welcome=step_pb2.Welcome(heartbeat_seconds=heartbeat_seconds, protocol_minor=protocol_minor)
    )


def encode_refusal(reason: "RefusalReason", message: str) -> bytes:
    return step_pb2.SchedulerMessage(refusal=step_pb2.Refusal(reason=reason, message=message)).SerializeToString()


def encode_heartbeat(epoch: Epoch) -> bytes:
    return _envelope(epoch, heartbeat=step_pb2.Heartbeat())


def encode_goodbye(epoch: Epoch, message: str) -> bytes:
    return _envelope(epoch, goodbye=step_pb2.Goodbye(message=message))


def _envelope(epoch: Epoch, **body: object) -> bytes:
    message = step_pb2.SchedulerMessage(**body)  # type: ignore[arg-type]
    message.epoch.boot_id = epoch.boot_id
    message.epoch.counter = epoch.counter
    return message.SerializeToString()


def decode(frame: bytes, worker: str) -> tuple[Epoch, Body]:
    """A worker's message. `worker` is the id its connection greeted with ("" before); raises BadMessage."""
    message = step_pb2.WorkerMessage()
    try:
        message.ParseFromString(frame)
    except DecodeError as error:
        raise BadMessage("a frame is not a WorkerMessage") from error
    epoch = Epoch(message.epoch.boot_id, message.epoch.counter)
    match message.WhichOneof("body"):
        case "hello":
            return epoch, _greeting(message.hello)
        case "result":
            return epoch, _report(worker, message.result)
        case "nack":
            reason = f"{_name(step_pb2.Nack.Reason.Name, message.nack.reason)}: {_words(message.nack.message)}"
            is_memory = message.nack.reason == step_pb2.Nack.REASON_OUT_OF_MEMORY
            return epoch, Refused(Nack(worker, message.nack.step, is_memory), reason)
        case "heartbeat":
            return epoch, _alive(message.heartbeat)
        case "goodbye":
            return epoch, Leaving(_words(message.goodbye.message))
        case _:
            raise BadMessage("a WorkerMessage says nothing")


def _alive(beat: step_pb2.Heartbeat) -> Alive:
    memory = (beat.device_memory_used, beat.device_memory_total) if beat.device_memory_total else None
    return Alive(_name(step_pb2.Heartbeat.Phase.Name, beat.phase), beat.last_step, memory)


def _name(name_of: Callable[[int], str], number: int) -> str:
    """A newer peer may send numbers that this version has no name for."""
    try:
        return name_of(number)
    except ValueError:
        return str(number)


def _words(text: str) -> str:
    """What a peer says of itself, fit for a log: printable, and not without end."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[: limits.MAX_WORKER_WORDS])


def _greeting(hello: step_pb2.Hello) -> Greeting:
    geometry = hello.geometry
    counts = (geometry.page_size, geometry.page_bytes, hello.device_pages, hello.max_slots, hello.max_step_tokens)
    if not hello.worker_id or min(*counts, hello.max_context, hello.vocab_size) < 1:
        raise BadMessage("a Hello lacks an id, pages, slots or limits")
    if len(hello.worker_id.encode()) > limits.MAX_WORKER_ID_BYTES:
        raise BadMessage("a Hello has a worker id that is too long")
    if not hello.worker_id.isprintable():
        raise BadMessage("a Hello has a worker id that cannot be printed")
    joined = Joined(
        worker=hello.worker_id,
        page_size=geometry.page_size,
        page_bytes=geometry.page_bytes,
        device_pages=hello.device_pages,
        host_pages=hello.host_pages,
        max_slots=hello.max_slots,
        max_step_tokens=hello.max_step_tokens,
        max_context=hello.max_context,
        vocab_size=hello.vocab_size,
        needs_zeroed_pages=hello.needs_zeroed_pages,
        max_prompt_scores=hello.max_prompt_scores,
        takes_late_masks=hello.takes_late_masks,
        can_fork=hello.protocol_minor >= FORKS_SINCE,
        weights_digest=hello.weights_digest,
        kernels=_words(hello.kernels),
        kv_dtype=_words(geometry.dtype),
        copy_bytes_per_second=_rate(hello.copy_bytes_per_second),
        prefill_tokens_per_second=_rate(hello.prefill_tokens_per_second),
    )
    return Greeting(joined, hello.protocol_major, hello.protocol_minor, hello.weights_digest)


def _rate(value: float) -> float:
    """A measured speed or time, 0 where the peer has none that makes sense."""
    return value if 0 < value < inf else 0.0


def _report(worker: str, result: step_pb2.StepResult) -> StepReport:
    done = StepDone(worker, result.step, tuple(uncolumn("i", result.token)), result.logprobs)
    return StepReport(done, _rate(result.execute_seconds), result.swapped_bytes, _rate(result.swap_seconds))

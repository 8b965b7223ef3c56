"""Between the front's records and the messages of front.proto, both ways. These protobuf types go no further.

What comes from a front process is checked whole before any of it is done: it may name requests of its own alone, and
nothing that would make the core stumble.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from math import isfinite, isnan

from google.protobuf.message import DecodeError
from octavo.v1 import admin_pb2, front_pb2

from octavo_scheduler import limits
from octavo_scheduler.commands import Abort, FrontCommand, Masks, Submit
from octavo_scheduler.core.events import Committed, Finished, Masked, Output, Refused, Scored, Started
from octavo_scheduler.core.request import Biases, FinishReason, RequestSpec, Sampling
from octavo_scheduler.wire import BadMessage, column, uncolumn

PROTOCOL = 1
MARK = "-"
"""Between the stay and the rest of an id."""
NAME_BYTES = 16

_REASONS = {reason: f"FRONT_REASON_{reason.name}" for reason in FinishReason}
_REASONS_BACK = {front_pb2.FrontReason.Value(name): reason for reason, name in _REASONS.items()}
_DRAWING = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
_PLAIN = ("id", "n", "priority", "tenant", "salt", "num_scored", "is_constrained")
_OPTIONAL = ("max_tokens", "deadline", "queue_deadline", "logprobs", "prompt_logprobs")


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a front process says at once."""

    stay: str
    is_listening: bool = False
    freed: Sequence[bytes] = ()
    claimed: Sequence[bytes] = ()
    commands: Sequence[FrontCommand] = ()
    service: admin_pb2.Service | None = None


@dataclass(frozen=True)
class News:
    """What a front process is told at once: outputs, and the number of the one that answers under a name."""

    outputs: Sequence[Output] = ()
    owners: Sequence[tuple[bytes, int]] = field(default=())


def stay_of(request: str) -> str:
    """Empty for requests of the scheduler's own front."""
    stay, mark, _ = request.partition(MARK)
    return stay if mark else ""


# from a front process --------------------------------------------------------------------------------------------------


def encode_said(said: Said) -> bytes:
    message = front_pb2.FrontMessage(
        protocol=PROTOCOL,
        stay=said.stay,
        is_listening=said.is_listening,
        freed_names=said.freed,
        claimed_names=said.claimed,
        commands=[each for command in said.commands for each in _commands(command)],
        service=said.service,
    )
    return message.SerializeToString()


def decode_said(frame: bytes, vocab_size: int) -> Said:
    """Raises BadMessage for what no front process of this version would say."""
    message = front_pb2.FrontMessage()
    try:
        message.ParseFromString(frame)
    except DecodeError as error:
        raise BadMessage("the bytes are no FrontMessage") from error
    _check_protocol(message.protocol)
    names = (*message.freed_names, *message.claimed_names)
    if not message.stay or any(len(name) != NAME_BYTES for name in names):
        raise BadMessage("a front says not who it is, or names what is no name")
    return Said(
        stay=message.stay,
        is_listening=message.is_listening,
        freed=list(message.freed_names),
        claimed=list(message.claimed_names),
        commands=[_command(command, message.stay, vocab_size) for command in message.commands],
        service=message.service if message.HasField("service") else None,
    )


def _check_protocol(version: int) -> None:
    if version != PROTOCOL:
        raise BadMessage(f"it speaks version {version} of the front protocol; this is version {PROTOCOL}")


def _commands(command: FrontCommand) -> Iterator[front_pb2.FrontCommand]:
    match command:
        case Submit():
            yield front_pb2.FrontCommand(submit=_submit(command))
        case Abort():
            abort = front_pb2.FrontAbort(request=command.request, at=command.at, branch=command.branch)
            yield front_pb2.FrontCommand(abort=abort)
        case Masks():
            for mask in command.masks:
                yield front_pb2.FrontCommand(mask=_mask(mask))


def _submit(submit: Submit) -> front_pb2.FrontSubmit:
    spec, sampling = submit.spec, submit.spec.sampling
    biases = sampling.biases
    return front_pb2.FrontSubmit(
        label=submit.label,
        prompt=spec.prompt,
        stop_token_ids=sorted(spec.stop_token_ids),
        sampling=front_pb2.FrontSampling(
            **{name: getattr(sampling, name) for name in _DRAWING},
            top_k=sampling.top_k,
            seed=sampling.seed,
            bias_tokens=biases.tokens,
            bias_values=biases.values,
            bias_until=biases.until,
            bias_contexts=biases.contexts,
        ),
        held=[front_pb2.FrontTokens(ids=tokens) for tokens in spec.held],
        ended=sorted(spec.ended),
        masks=[_mask(mask) for mask in submit.masks],
        **{name: getattr(spec, name) for name in (*_PLAIN, *_OPTIONAL)},
    )


def _mask(masked: Masked) -> front_pb2.FrontMask:
    return front_pb2.FrontMask(request=masked.request, branch=masked.branch, position=masked.position, mask=masked.mask)


def _command(message: front_pb2.FrontCommand, stay: str, vocab_size: int) -> FrontCommand:
    match message.WhichOneof("command"):
        case "submit":
            return _submitted(message.submit, stay, vocab_size)
        case "abort":
            abort = message.abort
            _check_request(abort.request, abort.branch, stay)
            return Abort(abort.request, abort.at if abort.HasField("at") else None, abort.branch)
        case "mask":
            return Masks((_masked(message.mask, stay),))
    raise BadMessage("a command says nothing")


def _check_request(request: str, branch: int, stay: str) -> None:
    if stay_of(request) != stay or branch >= limits.MAX_ANSWERS:
        raise BadMessage("a front speaks of what is not its own")


def _masked(message: front_pb2.FrontMask, stay: str) -> Masked:
    _check_request(message.request, message.branch, stay)
    mask = message.mask if message.HasField("mask") else None
    return Masked(message.request, message.branch, message.position, mask)


def _submitted(message: front_pb2.FrontSubmit, stay: str, vocab_size: int) -> Submit:
    drawing, num_biases = message.sampling, len(message.sampling.bias_tokens)
    _check_request(message.id, 0, stay)
    columns = (drawing.bias_values, drawing.bias_until, drawing.bias_contexts)
    lists = (message.prompt, message.stop_token_ids, drawing.bias_tokens, *(each.ids for each in message.held))
    numbers = [getattr(drawing, name) for name in _DRAWING]
    is_sound = (
        0 < message.n <= limits.MAX_ANSWERS
        and message.prompt
        and len(message.held) in (0, message.n)
        and len(message.ended) < message.n
        and max(message.ended, default=0) < message.n
        and not (message.HasField("max_tokens") and message.max_tokens == 0)
        and all(len(each) == num_biases for each in columns)
        and all(not each or (min(each) >= 0 and max(each) < vocab_size) for each in lists)
        and all(map(isfinite, numbers))
        and not any(map(isnan, (message.deadline, message.queue_deadline, *drawing.bias_values)))
        and all(mask.request == message.id and mask.branch < message.n for mask in message.masks)
    )
    if not is_sound:
        raise BadMessage("a front submits what is no request")
    return Submit(_spec(message), message.label, tuple(_masked(mask, stay) for mask in message.masks))


def _spec(message: front_pb2.FrontSubmit) -> RequestSpec:
    drawing = message.sampling
    biases = Biases(
        tokens=tuple(drawing.bias_tokens),
        values=tuple(drawing.bias_values),
        until=tuple(drawing.bias_until),
        contexts=tuple(drawing.bias_contexts),
    )
    numbers = {name: getattr(drawing, name) for name in _DRAWING}
    return RequestSpec(
        prompt=tuple(message.prompt),
        stop_token_ids=frozenset(message.stop_token_ids),
        sampling=Sampling(top_k=drawing.top_k, seed=drawing.seed, biases=biases, **numbers),
        held=tuple(tuple(each.ids) for each in message.held),
        ended=frozenset(message.ended),
        **{name: getattr(message, name) for name in _PLAIN},
        **{name: getattr(message, name) for name in _OPTIONAL if message.HasField(name)},
    )


# to a front process ----------------------------------------------------------------------------------------------------


def encode_news(news: News) -> bytes:
    """One message for all; within a request tokens come before ends, as they did."""
    message = front_pb2.FrontNews(
        protocol=PROTOCOL, owners=[front_pb2.FrontOwner(name=name, number=number) for name, number in news.owners]
    )
    committed: list[Committed] = []
    for output in news.outputs:
        match output:
            case Committed():
                committed.append(output)
            case Started():
                message.started.add(request=output.request, queued=output.queued, cached=output.cached)
            case Scored():
                message.scored.add(request=output.request, first=output.first, logprobs=output.logprobs)
            case Finished():
                message.finished.append(_finished(output))
            case Refused():
                message.refused.add(
                    request=output.request,
                    reason=output.reason,
                    message=output.message,
                    retry_after=output.retry_after,
                )
    if committed:
        _put_tokens(message, committed)
    return message.SerializeToString()


def _put_tokens(message: front_pb2.FrontNews, committed: Sequence[Committed]) -> None:
    requests, branches, positions, tokens, logprobs = zip(*committed, strict=True)
    places: dict[str, int] = {}
    message.token_requests = column("I", [places.setdefault(request, len(places)) for request in requests])
    message.requests.extend(places)
    message.token_branches, message.token_positions = column("H", branches), column("i", positions)
    message.tokens = column("i", tokens)
    if any(logprobs):
        message.token_logprob_sizes = column("I", map(len, logprobs))
        message.token_logprobs = b"".join(logprobs)


def _finished(finished: Finished) -> front_pb2.FrontFinished:
    return front_pb2.FrontFinished(
        request=finished.request,
        branch=finished.branch,
        reason=_REASONS[finished.reason],
        num_tokens=finished.num_tokens,
        preemptions=finished.preemptions,
        stop_token=finished.stop_token,
    )


def decode_news(frame: bytes) -> News:
    """Raises BadMessage."""
    message = front_pb2.FrontNews()
    try:
        message.ParseFromString(frame)
    except DecodeError as error:
        raise BadMessage("the bytes are no FrontNews") from error
    _check_protocol(message.protocol)
    outputs: list[Output] = [Started(each.request, each.queued, each.cached) for each in message.started]
    outputs += [Scored(each.request, each.first, each.logprobs) for each in message.scored]
    outputs += _tokens(message)
    outputs += map(_finish, message.finished)
    for each in message.refused:
        retry_after = each.retry_after if each.HasField("retry_after") else None
        outputs.append(Refused(each.request, each.reason, each.message, retry_after))
    return News(outputs, [(owner.name, owner.number) for owner in message.owners])


def _tokens(message: front_pb2.FrontNews) -> Iterator[Committed]:
    places, branches = uncolumn("I", message.token_requests), uncolumn("H", message.token_branches)
    positions, tokens = uncolumn("i", message.token_positions), uncolumn("i", message.tokens)
    sizes = uncolumn("I", message.token_logprob_sizes)
    requests = list(message.requests)
    is_sound = (
        len(places) == len(branches) == len(positions) == len(tokens)
        and len(sizes) in (0, len(tokens))
        and sum(sizes) == len(message.token_logprobs)
        and max(places, default=-1) < len(requests)
    )
    if not is_sound:
        raise BadMessage("columns of tokens do not fit each other")
    logprobs: Iterable[bytes] = _cut(message.token_logprobs, sizes) if sizes else repeat(b"")
    rows = zip(
        map(requests.__getitem__, places), branches, positions, tokens, islice(logprobs, len(tokens)), strict=True
    )
    return map(Committed._make, rows)


def _cut(data: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    end = 0
    for size in sizes:
        end += size
        yield data[end - size : end]


def _finish(message: front_pb2.FrontFinished) -> Finished:
    reason = _REASONS_BACK.get(message.reason)
    if reason is None:
        raise BadMessage(f"there is no reason {message.reason} to end")
    stop_token = message.stop_token if message.HasField("stop_token") else None
    return Finished(message.request, message.branch, reason, message.num_tokens, message.preemptions, stop_token)

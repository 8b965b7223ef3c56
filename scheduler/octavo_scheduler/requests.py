"""From a client's message to a validated request: everything is checked here, once, and nothing else passes."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from math import isfinite

from octavo.v1 import inference_pb2

from octavo_scheduler import limits
from octavo_scheduler.biases import biases_of
from octavo_scheduler.core.request import ALWAYS, Biases, RequestSpec, Sampling
from octavo_scheduler.errors import ModelNotFound, require
from octavo_scheduler.matching.constraint import Constraint, one_of
from octavo_scheduler.model import ServedModel
from octavo_scheduler.prompts import check_tokens

Options = inference_pb2.GenerationOptions


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """A request for the core, and what the front does with the answer."""

    spec: RequestSpec
    label: str
    name: str = ""
    """The client's own, by which the answer can be found again; or none."""
    has_seed: bool = False
    """The client's own; otherwise it was drawn."""
    constraint: Constraint | None = None
    stops: tuple[str, ...]
    include_stop: bool
    skip_special_tokens: bool
    stream_interval: int
    min_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """What the front adds to a client's message."""

    id: str
    seed: int
    now: float
    """Monotonic seconds."""
    deadline: float | None


def check_model(model: ServedModel, name: str) -> None:
    if name not in ("", model.name):
        raise ModelNotFound(f"no model {name[: limits.MAX_ECHO]!r} is served here; there is {model.name!r}")


def parse(model: ServedModel, prompt: list[int], options: Options, label: str, arrival: Arrival) -> Parsed:
    """The request, checked. Raises InvalidRequest with a sentence that names the field and its range."""
    stopping, scheduling, output = options.stopping, options.scheduling, options.output
    _check_names(label, scheduling)
    ends = frozenset() if stopping.ignore_eos else model.end_token_ids
    stop_token_ids = ends | _stop_token_ids(model, stopping.stop_token_ids)
    max_tokens = _max_tokens(model, len(prompt), stopping)
    min_tokens = _min_tokens(stopping, max_tokens)
    biases = _biases(model, options.sampling, min_tokens, stop_token_ids)
    n, constraint = _num_answers(options.sampling), _constraint(model, options)
    held = _held(scheduling, n)
    _check_held(model, held, stop_token_ids, max_tokens or model.max_context - len(prompt))
    spec = RequestSpec(
        id=arrival.id,
        prompt=tuple(prompt),
        max_tokens=max_tokens,
        stop_token_ids=stop_token_ids,
        sampling=_sampling(model, options.sampling, arrival.seed, biases),
        logprobs=_num_best(options.output, "logprobs"),
        prompt_logprobs=_num_best(options.output, "prompt_logprobs"),
        n=n,
        held=held,
        priority=scheduling.priority,
        tenant=scheduling.tenant,
        salt=scheduling.cache_salt if scheduling.HasField("cache_salt") else scheduling.tenant,
        deadline=arrival.deadline,
        queue_deadline=_queue_deadline(scheduling, arrival.now),
        is_constrained=constraint is not None,
    )
    return Parsed(
        spec=spec,
        label=label or arrival.id,
        name=label,
        has_seed=options.sampling.HasField("seed"),
        constraint=constraint,
        stops=_stops(stopping.stop),
        include_stop=stopping.include_stop,
        skip_special_tokens=output.skip_special_tokens if output.HasField("skip_special_tokens") else True,
        stream_interval=min(max(output.stream_interval, 1), limits.MAX_STREAM_INTERVAL),
        min_tokens=min_tokens,
    )


def _check_names(label: str, scheduling: inference_pb2.SchedulingOptions) -> None:
    _check_name(label, limits.MAX_REQUEST_ID_BYTES, "request_id")
    _check_name(scheduling.tenant, limits.MAX_TENANT_BYTES, "options.scheduling.tenant")
    _check_name(scheduling.cache_salt, limits.MAX_TENANT_BYTES, "options.scheduling.cache_salt")


def _check_name(name: str, most: int, field: str) -> None:
    size = len(name.encode())
    require(size <= most, f"{field.rpartition('.')[2]} is too long", field, given=size, most=most)


def _constraint(model: ServedModel, options: Options) -> Constraint | None:
    """What it means is found out by compiling it, elsewhere."""
    kind = options.constraint.WhichOneof("kind")
    if kind is None:
        return None
    field, stopping = f"options.constraint.{kind}", options.stopping
    require(
        bool(model.end_token_ids),
        f"{model.name} has no end token, by which a constrained answer could end",
        "options.constraint",
    )
    for name in ("ignore_eos", "min_tokens"):
        sentence = f"a constrained answer ends by itself: {name} is not for it"
        require(not getattr(stopping, name), sentence, f"options.stopping.{name}")
    texts = list(options.constraint.choice.values) if kind == "choice" else [getattr(options.constraint, kind)]
    most = limits.MAX_CHOICES
    require(0 < len(texts) <= most, f"constraint.choice has 1 to {most} texts", field, given=len(texts), most=most)
    require(all(texts), f"constraint.{kind} has an empty text", field)
    size, most = sum(len(text.encode()) for text in texts), limits.MAX_CONSTRAINT_BYTES
    require(
        size <= most, f"constraint.{kind} has {size} bytes; at most {most} are compiled", field, given=size, most=most
    )
    return one_of(texts) if kind == "choice" else Constraint(kind, texts[0])


def _max_tokens(model: ServedModel, num_prompt: int, stopping: inference_pb2.StoppingOptions) -> int | None:
    if not stopping.HasField("max_tokens"):
        return None
    room, field = model.max_context - num_prompt, "options.stopping.max_tokens"
    require(stopping.max_tokens > 0, "max_tokens is 0; it must be at least 1", field, given=0, least=1)
    require(
        stopping.max_tokens <= room,
        f"max_tokens is {stopping.max_tokens}; after {num_prompt} prompt tokens the context of {model.max_context} "
        f"has room for {room}",
        field,
        given=stopping.max_tokens,
        most=room,
    )
    return stopping.max_tokens


def _min_tokens(stopping: inference_pb2.StoppingOptions, max_tokens: int | None) -> int:
    least = stopping.min_tokens
    most, field = max_tokens or ALWAYS, "options.stopping.min_tokens"
    sentence = f"min_tokens is {least}, more than max_tokens, which is {max_tokens}"
    require(least <= most, sentence, field, given=least, most=most)
    return least


def _num_best(output: inference_pb2.OutputOptions, name: str) -> int | None:
    """Log-probabilities to tell beside a token's own; None: not even that."""
    if not output.HasField(name):
        return None
    count: int = getattr(output, name)
    most = limits.MAX_LOGPROBS
    sentence = f"{name} is {count}; it must lie between 0 and {most}"
    require(count <= most, sentence, f"options.output.{name}", given=count, most=most)
    return count


def _num_answers(sampling: inference_pb2.SamplingOptions) -> int:
    given, most = sampling.n, limits.MAX_ANSWERS
    require(
        given <= most, f"n is {given}; it must lie between 1 and {most}", "options.sampling.n", given=given, most=most
    )
    return max(given, 1)


def _held(scheduling: inference_pb2.SchedulingOptions, n: int) -> tuple[tuple[int, ...], ...]:
    """The beginnings of all n answers; nothing when the client holds nothing of any."""
    others = scheduling.resume_from_others
    sentence, field = f"resume_from_others has {len(others)} answers; n is {n}", "options.scheduling.resume_from_others"
    require(len(others) < n, sentence, field, given=len(others), most=n - 1)
    held = [tuple(some.ids) for some in (scheduling.resume_from, *others)]
    return (*held, *[()] * (n - len(held))) if any(held) else ()


def _check_held(model: ServedModel, held: Sequence[Sequence[int]], stop_token_ids: Set[int], most: int) -> None:
    """What a client says it holds must be something that it can have been sent."""
    field = "options.scheduling.resume_from"
    for tokens in held:
        sentence = f"resume_from has {len(tokens)} tokens; the answer has at most {most}"
        require(len(tokens) <= most, sentence, field, given=len(tokens), most=most)
        check_tokens(model, tokens, field)
        require(stop_token_ids.isdisjoint(tokens[:-1]), "resume_from goes on after a token that ends the answer", field)


def _queue_deadline(scheduling: inference_pb2.SchedulingOptions, now: float) -> float | None:
    if not scheduling.HasField("queue_seconds"):
        return None
    seconds, most = scheduling.queue_seconds, limits.MAX_REQUEST_SECONDS
    sentence = f"queue_seconds is {seconds}; it must lie in (0, {most:g}]"
    require(0 < seconds <= most, sentence, "options.scheduling.queue_seconds", given=seconds, most=most)
    return now + seconds


def _stop_token_ids(model: ServedModel, ids: Sequence[int]) -> frozenset[int]:
    most, field = limits.MAX_STOP_TOKEN_IDS, "options.stopping.stop_token_ids"
    require(len(ids) <= most, f"more than {most} stop_token_ids", field, given=len(ids), most=most)
    check_tokens(model, ids, field, "stop token id")
    return frozenset(ids)


def _stops(stops: Sequence[str]) -> tuple[str, ...]:
    most, field = limits.MAX_STOPS, "options.stopping.stop"
    require(len(stops) <= most, f"more than {most} stop strings", field, given=len(stops), most=most)
    longest = limits.MAX_STOP_BYTES
    for place, size in enumerate(len(stop.encode()) for stop in stops):
        sentence = f"a stop string has 1 to {longest} bytes, not {size}"
        require(0 < size <= longest, sentence, f"{field}[{place}]", given=size, least=1, most=longest)
    return tuple(stops)


def _biases(
    model: ServedModel, options: inference_pb2.SamplingOptions, min_tokens: int, ends: frozenset[int]
) -> Biases:
    logit_bias = [(each.token_id, each.bias) for each in options.logit_bias]
    return biases_of(model, logit_bias, options.bad_words, min_tokens, ends)


def _sampling(model: ServedModel, options: inference_pb2.SamplingOptions, drawn_seed: int, biases: Biases) -> Sampling:
    def value(name: str, default: float, span: tuple[float, float]) -> float:
        given = getattr(options, name) if options.HasField(name) else model.defaults.get(name, default)
        least, most = span
        is_inside = isfinite(given) and least <= given <= most
        sentence = f"{name} is {given}; it must lie in [{least}, {most}]"
        require(is_inside, sentence, f"options.sampling.{name}", given=given, least=least, most=most)
        return float(given)

    top_p = value("top_p", 1.0, (0.0, 1.0))
    require(top_p > 0, "top_p is 0; it must lie in (0, 1]", "options.sampling.top_p", given=0, most=1)
    return Sampling(
        temperature=value("temperature", 1.0, limits.TEMPERATURE),
        top_p=top_p,
        min_p=value("min_p", 0.0, limits.MIN_P),
        top_k=int(value("top_k", 0, limits.TOP_K)),
        repetition_penalty=value("repetition_penalty", 1.0, limits.REPETITION_PENALTY),
        presence_penalty=value("presence_penalty", 0.0, limits.PRESENCE_PENALTY),
        frequency_penalty=value("frequency_penalty", 0.0, limits.FREQUENCY_PENALTY),
        seed=options.seed if options.HasField("seed") else drawn_seed,
        biases=biases,
    )

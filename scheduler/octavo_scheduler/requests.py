"""From a client's message to a validated request: everything is checked here, once, and nothing else passes."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from math import isfinite

from octavo.v1 import inference_pb2

from octavo_scheduler import limits
from octavo_scheduler.core.request import RequestSpec, Sampling
from octavo_scheduler.errors import InvalidRequest, ModelNotFound
from octavo_scheduler.model import ServedModel

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
    stops: tuple[str, ...]
    include_stop: bool
    skip_special_tokens: bool
    stream_interval: int


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """What the front adds to a client's message."""

    id: str
    seed: int
    now: float
    """Monotonic seconds."""
    deadline: float | None


def parse_prompt(model: ServedModel, prompt: inference_pb2.Prompt) -> list[int]:
    """The prompt's token ids. Raises InvalidRequest for an empty prompt and for ids outside the vocabulary."""
    match prompt.WhichOneof("content"):
        case "text":
            ids = encode_text(model, prompt.text)
        case "token_ids":
            ids = list(prompt.token_ids.ids)
        case _:
            ids = []
    return check_prompt(model, ids)


def parse_messages(model: ServedModel, messages: Sequence[inference_pb2.ChatMessage]) -> list[int]:
    """The chat's token ids, through the model's template."""
    return check_prompt(model, encode_messages(model, messages))


def encode_text(model: ServedModel, text: str) -> list[int]:
    """The text's token ids, which may be more than fit."""
    _check_size(model, "the prompt", len(text.encode()))
    return model.vocabulary.encode(text)


def encode_messages(model: ServedModel, messages: Sequence[inference_pb2.ChatMessage]) -> list[int]:
    """The chat's token ids, which may be more than fit."""
    if model.template is None:
        raise InvalidRequest(f"the model {model.name} has no chat template; use Generate")
    _require(0 < len(messages) <= limits.MAX_MESSAGES, f"a chat has 1 to {limits.MAX_MESSAGES} messages")
    for message in messages:
        _require(
            message.role in ("system", "user", "assistant"),
            f"a message's role is system, user or assistant, not {message.role[: limits.MAX_ECHO]!r}",
        )
    _check_size(model, "the chat", sum(len(message.content.encode()) for message in messages))
    num_literals = sum(model.vocabulary.num_literals(message.content) for message in messages)
    _require(
        num_literals <= limits.MAX_CHAT_LITERALS,
        f"the chat has {num_literals} control tokens written out; at most {limits.MAX_CHAT_LITERALS} are taken as text",
    )
    turns = [(message.role, message.content) for message in messages]
    return model.vocabulary.encode_chat(model.template, turns)


def _check_size(model: ServedModel, what: str, num_bytes: int) -> None:
    """Refuses text that cannot fit before any of it is tokenised, which takes long."""
    longest = model.vocabulary.longest_token
    _require(
        num_bytes <= model.max_context * longest,
        f"{what} has {num_bytes} bytes; the context of {model.name} has {model.max_context} tokens of at most {longest} "
        "bytes each",
    )
    _require(num_bytes <= limits.MAX_PROMPT_BYTES, f"{what} has {num_bytes} bytes, more than {limits.MAX_PROMPT_BYTES}")


def check_prompt(model: ServedModel, ids: list[int]) -> list[int]:
    _require(bool(ids), "the prompt is empty: it needs at least one token")
    _require(
        len(ids) < model.max_context,
        f"the prompt has {len(ids)} tokens; the context of {model.name} is {model.max_context} tokens, answer included",
    )
    check_tokens(model, ids)
    return ids


def check_context(model: ServedModel, ids: Sequence[int]) -> None:
    """Raises InvalidRequest for more tokens than a prompt and its answer may have, and for an id that is none."""
    _require(
        len(ids) <= model.max_context,
        f"there are {len(ids)} tokens; the context of {model.name} has {model.max_context}",
    )
    check_tokens(model, ids)


def check_tokens(model: ServedModel, ids: Sequence[int]) -> None:
    """Raises InvalidRequest for an id outside the vocabulary."""
    outside = next((token for token in ids if token >= model.vocab_size), None)
    _require(outside is None, f"token id {outside} is outside the vocabulary of {model.vocab_size} tokens")


def check_model(model: ServedModel, name: str) -> None:
    if name not in ("", model.name):
        raise ModelNotFound(f"no model {name[: limits.MAX_ECHO]!r} is served here; there is {model.name!r}")


def parse(model: ServedModel, prompt: list[int], options: Options, label: str, arrival: Arrival) -> Parsed:
    """The request, checked. Raises InvalidRequest with a sentence that names the field and its range."""
    _refuse_unsupported(options)
    stopping, scheduling = options.stopping, options.scheduling
    _require(len(label.encode()) <= limits.MAX_REQUEST_ID_BYTES, "request_id is too long")
    _require(len(scheduling.tenant.encode()) <= limits.MAX_TENANT_BYTES, "tenant is too long")
    _require(len(scheduling.cache_salt.encode()) <= limits.MAX_TENANT_BYTES, "cache_salt is too long")
    ends = frozenset() if stopping.ignore_eos else model.end_token_ids
    stop_token_ids = ends | _stop_token_ids(model, stopping.stop_token_ids)
    max_tokens = _max_tokens(model, len(prompt), stopping)
    n = _num_answers(options.sampling)
    held = _held(scheduling, n)
    for tokens in held:
        _check_held(model, tokens, stop_token_ids, max_tokens or model.max_context - len(prompt))
    spec = RequestSpec(
        id=arrival.id,
        prompt=tuple(prompt),
        max_tokens=max_tokens,
        stop_token_ids=stop_token_ids,
        sampling=_sampling(model, options.sampling, arrival.seed),
        n=n,
        held=held,
        priority=scheduling.priority,
        tenant=scheduling.tenant,
        salt=scheduling.cache_salt if scheduling.HasField("cache_salt") else scheduling.tenant,
        deadline=arrival.deadline,
        queue_deadline=_queue_deadline(scheduling, arrival.now),
    )
    output = options.output
    return Parsed(
        spec=spec,
        label=label or arrival.id,
        name=label,
        has_seed=options.sampling.HasField("seed"),
        stops=_stops(stopping.stop),
        include_stop=stopping.include_stop,
        skip_special_tokens=output.skip_special_tokens if output.HasField("skip_special_tokens") else True,
        stream_interval=min(max(output.stream_interval, 1), limits.MAX_STREAM_INTERVAL),
    )


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise InvalidRequest(sentence)


def _refuse_unsupported(options: Options) -> None:
    """Fields of the schema that this version cannot honour are refused, never ignored."""
    asked = {
        "sampling.logit_bias": len(options.sampling.logit_bias) > 0,
        "sampling.bad_words": len(options.sampling.bad_words) > 0,
        "stopping.min_tokens": options.stopping.min_tokens > 0,
        "output.logprobs": options.output.HasField("logprobs"),
        "output.prompt_logprobs": options.output.HasField("prompt_logprobs"),
        "constraint": options.constraint.WhichOneof("kind") is not None,
    }
    for name, is_asked in asked.items():
        _require(not is_asked, f"{name} is not supported by this version")


def _max_tokens(model: ServedModel, num_prompt: int, stopping: inference_pb2.StoppingOptions) -> int | None:
    if not stopping.HasField("max_tokens"):
        return None
    room = model.max_context - num_prompt
    _require(stopping.max_tokens > 0, "max_tokens is 0; it must be at least 1")
    _require(
        stopping.max_tokens <= room,
        f"max_tokens is {stopping.max_tokens}; after {num_prompt} prompt tokens the context of {model.max_context} "
        f"has room for {room}",
    )
    return stopping.max_tokens


def _num_answers(sampling: inference_pb2.SamplingOptions) -> int:
    _require(sampling.n <= limits.MAX_ANSWERS, f"n is {sampling.n}; it must lie between 1 and {limits.MAX_ANSWERS}")
    return max(sampling.n, 1)


def _held(scheduling: inference_pb2.SchedulingOptions, n: int) -> tuple[tuple[int, ...], ...]:
    """The beginnings of all n answers; nothing when the client holds nothing of any."""
    others = scheduling.resume_from_others
    _require(len(others) < n, f"resume_from_others has {len(others)} answers; n is {n}")
    held = [tuple(some.ids) for some in (scheduling.resume_from, *others)]
    return (*held, *[()] * (n - len(held))) if any(held) else ()


def _check_held(model: ServedModel, tokens: Sequence[int], stop_token_ids: Set[int], most: int) -> None:
    """What a client says it holds must be something that it can have been sent."""
    _require(len(tokens) <= most, f"resume_from has {len(tokens)} tokens; the answer has at most {most}")
    check_tokens(model, tokens)
    _require(stop_token_ids.isdisjoint(tokens[:-1]), "resume_from goes on after a token that ends the answer")


def _queue_deadline(scheduling: inference_pb2.SchedulingOptions, now: float) -> float | None:
    if not scheduling.HasField("queue_seconds"):
        return None
    seconds, most = scheduling.queue_seconds, limits.MAX_REQUEST_SECONDS
    _require(0 < seconds <= most, f"queue_seconds is {seconds}; it must lie in (0, {most:g}]")
    return now + seconds


def _stop_token_ids(model: ServedModel, ids: Sequence[int]) -> frozenset[int]:
    _require(len(ids) <= limits.MAX_STOP_TOKEN_IDS, f"more than {limits.MAX_STOP_TOKEN_IDS} stop_token_ids")
    for token in ids:
        _require(
            token < model.vocab_size, f"stop token id {token} is outside the vocabulary of {model.vocab_size} tokens"
        )
    return frozenset(ids)


def _stops(stops: Sequence[str]) -> tuple[str, ...]:
    _require(len(stops) <= limits.MAX_STOPS, f"more than {limits.MAX_STOPS} stop strings")
    for stop in stops:
        size = len(stop.encode())
        _require(0 < size <= limits.MAX_STOP_BYTES, f"a stop string has 1 to {limits.MAX_STOP_BYTES} bytes, not {size}")
    return tuple(stops)


def _sampling(model: ServedModel, options: inference_pb2.SamplingOptions, drawn_seed: int) -> Sampling:
    def value(name: str, default: float, span: tuple[float, float]) -> float:
        given = getattr(options, name) if options.HasField(name) else model.defaults.get(name, default)
        _require(
            isfinite(given) and span[0] <= given <= span[1], f"{name} is {given}; it must lie in [{span[0]}, {span[1]}]"
        )
        return float(given)

    top_p = value("top_p", 1.0, (0.0, 1.0))
    _require(top_p > 0, "top_p is 0; it must lie in (0, 1]")
    return Sampling(
        temperature=value("temperature", 1.0, limits.TEMPERATURE),
        top_p=top_p,
        min_p=value("min_p", 0.0, limits.MIN_P),
        top_k=int(value("top_k", 0, limits.TOP_K)),
        repetition_penalty=value("repetition_penalty", 1.0, limits.REPETITION_PENALTY),
        presence_penalty=value("presence_penalty", 0.0, limits.PRESENCE_PENALTY),
        frequency_penalty=value("frequency_penalty", 0.0, limits.FREQUENCY_PENALTY),
        seed=options.seed if options.HasField("seed") else drawn_seed,
    )

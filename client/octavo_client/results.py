"""What comes back: frozen dataclasses, made from the protobuf messages of octavo.v1."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from octavo.v1 import inference_pb2 as pb

from octavo_client import prompts

FINISH_REASONS = {
    pb.FINISH_REASON_UNSPECIFIED: None,
    pb.FINISH_REASON_STOP: "stop",
    pb.FINISH_REASON_LENGTH: "length",
    pb.FINISH_REASON_ABORTED: "abort",
}


@dataclass(frozen=True)
class Usage:
    """Tokens of a request; `cached_tokens` of the prompt came from the prefix cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True)
class Timings:
    """Seconds from arrival at the server, and how often the request was preempted."""

    queue_seconds: float
    first_token_seconds: float
    total_seconds: float
    preemptions: int


@dataclass(frozen=True)
class TokenLogprobs:
    """One position: the token that came, its log-probability, and those of the most likely tokens by id, best first."""

    token_id: int
    logprob: float
    top: dict[int, float]


@dataclass(frozen=True)
class CompletionOutput:
    """One answer. `finish_reason` is "stop", "length" or "abort"; `stop_reason` the matched stop text or token id."""

    index: int
    text: str
    token_ids: list[int]
    finish_reason: str | None
    stop_reason: str | int | None
    cumulative_logprob: float | None = None
    logprobs: list[TokenLogprobs] | None = None


@dataclass(frozen=True)
class RequestOutput:
    """All answers to one prompt. Of `prompt` and `prompt_token_ids` that one is set in which form it was given."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int] | None
    outputs: list[CompletionOutput]
    usage: Usage
    timings: Timings
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    """The first token of a prompt has none."""
    finished: bool = True
    """False while more of the answers is to come (AsyncLLMEngine)."""


@dataclass(frozen=True)
class Start:
    """First event of a stream: the request runs."""

    request_id: str
    prompt_tokens: int
    cached_tokens: int
    queue_seconds: float
    seed: int = 0
    """Of its random numbers; resuming asks for it."""


@dataclass(frozen=True)
class PromptLogprobs:
    """Log-probabilities of the prompt's tokens from the one at `first_index` on; the first token of all has none."""

    first_index: int
    logprobs: list[TokenLogprobs | None]


@dataclass(frozen=True)
class Delta:
    """Text and tokens to append to answer `index`; `first_index` is where these tokens begin in the answer."""

    index: int
    text: str
    token_ids: list[int]
    first_index: int
    logprobs: list[TokenLogprobs] | None = None


@dataclass(frozen=True)
class AnswerEnd:
    """How answer `index` ended; the reasons are those of CompletionOutput."""

    index: int
    finish_reason: str | None
    stop_reason: str | int | None


@dataclass(frozen=True)
class End:
    """Last event of a stream."""

    answers: list[AnswerEnd]
    usage: Usage
    timings: Timings


Event: TypeAlias = Start | PromptLogprobs | Delta | End


def request_output(response: pb.GenerateResponse | pb.ChatResponse, prompt: prompts.Prompt | None) -> RequestOutput:
    """Returns the dataclass for a whole answer; `prompt` is None for a chat."""
    return RequestOutput(
        request_id=response.request_id,
        prompt=None if prompt is None else prompts.text_of(prompt),
        prompt_token_ids=None if prompt is None else prompts.token_ids_of(prompt),
        outputs=[_completion(completion) for completion in response.completions],
        usage=_usage(response.usage),
        timings=_timings(response.timings),
        prompt_logprobs=_prompt_logprobs(response.prompt_logprobs) or None,
    )


def stream_event(response: pb.GenerateStreamResponse | pb.ChatStreamResponse) -> Event | None:
    """Returns the dataclass for one message of a stream, or None for a kind of event newer than this client."""
    match response.WhichOneof("event"):
        case "start":
            start = response.start
            return Start(response.request_id, start.prompt_tokens, start.cached_tokens, start.queue_seconds, start.seed)
        case "prompt":
            return PromptLogprobs(response.prompt.first_index, _prompt_logprobs(response.prompt.logprobs))
        case "delta":
            delta = response.delta
            tokens = list(delta.token_ids)
            return Delta(delta.branch, delta.text, tokens, delta.first_index, _logprobs(delta.logprobs))
        case "end":
            answers = [AnswerEnd(end.branch, *_finish(end.finish)) for end in response.end.branches]
            return End(answers, _usage(response.end.usage), _timings(response.end.timings))
        case _:
            return None


def _completion(completion: pb.Completion) -> CompletionOutput:
    finish_reason, stop_reason = _finish(completion.finish)
    logprobs = _logprobs(completion.logprobs)
    return CompletionOutput(
        index=completion.branch,
        text=completion.text,
        token_ids=list(completion.token_ids),
        finish_reason=finish_reason,
        stop_reason=stop_reason,
        cumulative_logprob=None if logprobs is None else sum(position.logprob for position in logprobs),
        logprobs=logprobs,
    )


def _finish(finish: pb.Finish) -> tuple[str | None, str | int | None]:
    matched = finish.WhichOneof("matched")
    stop_reason: str | int | None = None if matched is None else getattr(finish, matched)
    return FINISH_REASONS.get(finish.reason), stop_reason


def _logprobs(positions: Iterable[pb.PositionLogprobs]) -> list[TokenLogprobs] | None:
    return [_position(position) for position in positions] or None


def _prompt_logprobs(positions: Iterable[pb.PositionLogprobs]) -> list[TokenLogprobs | None]:
    return [_position(position) if position.HasField("chosen") else None for position in positions]


def _position(position: pb.PositionLogprobs) -> TokenLogprobs:
    top = {entry.token_id: entry.logprob for entry in position.top}
    return TokenLogprobs(position.chosen.token_id, position.chosen.logprob, top)


def _usage(usage: pb.Usage) -> Usage:
    return Usage(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)


def _timings(timings: pb.Timings) -> Timings:
    return Timings(timings.queue_seconds, timings.first_token_seconds, timings.total_seconds, timings.preemptions)

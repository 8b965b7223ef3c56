"""The words of vllm.grpc.engine and ours: its requests as options of octavo.v1, our events as its responses.

What it means is checked where every request is checked, in `requests`; only what octavo.v1 has no words for is refused
here.
"""

from collections.abc import Iterator

from octavo.foreign import vllm_engine_pb2 as pb
from octavo.v1 import inference_pb2

from octavo_scheduler.answer import Begin, BranchEnd, End, Event, Piece
from octavo_scheduler.compat.finish import FINISH_REASONS
from octavo_scheduler.errors import InvalidRequest

UNSERVED = ("kv_transfer_params", "kv_transfer_params_json", "mm_inputs", "media_refs")
ANY_OBJECT = '{"type": "object"}'
SEEDS = 1 << 64


def prompt_of(request: pb.GenerateRequest) -> inference_pb2.Prompt:
    """What to continue. Raises InvalidRequest for what is neither text nor token ids."""
    for name in UNSERVED:
        if request.HasField(name):
            raise InvalidRequest(f"{name} is not served: this engine takes text and token ids", field=name)
    if request.extra_mm_inputs:
        raise InvalidRequest(
            "extra_mm_inputs is not served: this engine takes text and token ids", field="extra_mm_inputs"
        )
    if request.WhichOneof("input") == "text":
        return inference_pb2.Prompt(text=request.text)
    return inference_pb2.Prompt(token_ids=inference_pb2.TokenIds(ids=request.tokenized.input_ids))


def options_of(params: pb.SamplingParams) -> inference_pb2.GenerationOptions:
    """How to generate. Raises InvalidRequest."""
    if params.HasField("truncate_prompt_tokens"):
        raise InvalidRequest(
            "truncate_prompt_tokens is not served: a prompt is used whole",
            field="sampling_params.truncate_prompt_tokens",
        )
    for name in ("logprobs", "prompt_logprobs"):
        if params.HasField(name):
            raise InvalidRequest(f"{name} is not served by this API", field=f"sampling_params.{name}")
    options = inference_pb2.GenerationOptions(
        stopping=inference_pb2.StoppingOptions(
            max_tokens=params.max_tokens if params.HasField("max_tokens") else None,
            min_tokens=params.min_tokens,
            stop=params.stop,
            stop_token_ids=params.stop_token_ids,
            ignore_eos=params.ignore_eos,
            include_stop=params.include_stop_str_in_output,
        ),
        output=inference_pb2.OutputOptions(skip_special_tokens=params.skip_special_tokens),
    )
    _sampling(params, options.sampling)
    _constraint(params, options.constraint)
    return options


def _sampling(params: pb.SamplingParams, sampling: inference_pb2.SamplingOptions) -> None:
    """A number that is 0 counts as not set, except a temperature: 0 is greedy."""
    if params.HasField("temperature"):
        sampling.temperature = params.temperature
    for name in ("top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty"):
        if value := getattr(params, name):
            setattr(sampling, name, value)
    sampling.n = params.n
    if params.HasField("seed"):
        sampling.seed = params.seed % SEEDS
    for token, bias in sorted(params.logit_bias.items()):
        sampling.logit_bias.add(token_id=_natural("a token of logit_bias", token), bias=bias)


def _constraint(params: pb.SamplingParams, constraint: inference_pb2.OutputConstraint) -> None:
    match params.WhichOneof("constraint"):
        case "json_object":
            if params.json_object:
                constraint.json_schema = ANY_OBJECT
        case "choice":
            constraint.choice.values.extend(params.choice.choices)
        case "structural_tag":
            raise InvalidRequest("structural_tag is not served; json_schema, regex, grammar and choice are")
        case str(kind):
            setattr(constraint, kind, getattr(params, kind))


def _natural(name: str, value: int) -> int:
    if value < 0:
        raise InvalidRequest(f"{name} is {value}; it must be at least 0")
    return value


class Responses:
    """Of one request: chunks as tokens come, if they are wanted, and a complete for each answer at the end."""

    def __init__(self, num_answers: int, num_prompt: int, *, with_chunks: bool) -> None:
        self._ids: list[list[int]] = [[] for _ in range(num_answers)]
        self._num_prompt = num_prompt
        self._num_cached = 0
        self._with_chunks = with_chunks

    def of(self, event: Event) -> Iterator[pb.GenerateResponse]:
        """What an event leads to."""
        match event:
            case Begin():
                self._num_cached = event.cached_tokens
            case Piece() if event.tokens:
                self._ids[event.branch] += event.tokens
                if self._with_chunks:
                    yield self._chunk(event)
            case End():
                for index, end in enumerate(event.branches):
                    yield self._complete(index, end)

    def _chunk(self, piece: Piece) -> pb.GenerateResponse:
        chunk = pb.GenerateStreamChunk(
            token_ids=piece.tokens,
            prompt_tokens=self._num_prompt,
            completion_tokens=len(self._ids[piece.branch]),
            cached_tokens=self._num_cached,
            index=piece.branch,
        )
        return pb.GenerateResponse(chunk=chunk)

    def _complete(self, index: int, end: BranchEnd) -> pb.GenerateResponse:
        complete = pb.GenerateComplete(
            output_ids=self._ids[index],
            finish_reason=FINISH_REASONS[end.reason],
            prompt_tokens=self._num_prompt,
            completion_tokens=len(self._ids[index]),
            cached_tokens=self._num_cached,
            index=index,
            matched_stop_str=end.stop,
            matched_token_id=end.stop_token,
        )
        return pb.GenerateResponse(complete=complete)

"""The words of vllm.grpc.engine and ours: its requests as options of octavo.v1, our events as its responses.

What it means is checked where every request is checked, in `requests`; only what octavo.v1 has no words for is refused
here.
"""

from collections.abc import Iterator

from octavo.foreign import vllm_engine_pb2 as pb
from octavo.v1 import inference_pb2

from octavo_scheduler.answer import Begin, BranchEnd, End, Event, Piece, PromptPiece
from octavo_scheduler.compat.finish import FINISH_REASONS
from octavo_scheduler.core.request import RequestSpec
from octavo_scheduler.errors import InvalidRequest
from octavo_scheduler.logprobs import Pair, positions

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
    for name in ("logprobs", "prompt_logprobs"):
        if params.HasField(name):
            setattr(options.output, name, _natural(name, getattr(params, name)))
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
    """Of one request: chunks as tokens come, if they are wanted, and a complete for each answer at the end.

    Log-probabilities are told once: by the chunks, if there are any; those of the prompt by the first of each answer.
    """

    def __init__(self, spec: RequestSpec, *, with_chunks: bool) -> None:
        self._spec = spec
        self._with_chunks = with_chunks
        self._wholes = [pb.GenerateComplete(index=index, prompt_tokens=len(spec.prompt)) for index in range(spec.n)]
        self._prompt = pb.InputLogProbs()

    def of(self, event: Event) -> Iterator[pb.GenerateResponse]:
        """What an event leads to."""
        match event:
            case Begin():
                for whole in self._wholes:
                    whole.cached_tokens = event.cached_tokens
            case PromptPiece():
                _add_input(self._prompt, event.logprobs, self._spec)
            case Piece() if event.tokens:
                whole = self._wholes[event.branch]
                whole.output_ids.extend(event.tokens)
                whole.completion_tokens += len(event.tokens)
                if self._with_chunks:
                    yield pb.GenerateResponse(chunk=self._chunk(event, whole))
                else:
                    _add_output(whole, event.logprobs, self._spec)
            case End():
                for whole, end in zip(self._wholes, event.branches, strict=True):
                    yield pb.GenerateResponse(complete=self._complete(whole, end))

    def _chunk(self, piece: Piece, whole: pb.GenerateComplete) -> pb.GenerateStreamChunk:
        chunk = pb.GenerateStreamChunk(
            token_ids=piece.tokens,
            prompt_tokens=whole.prompt_tokens,
            completion_tokens=whole.completion_tokens,
            cached_tokens=whole.cached_tokens,
            index=whole.index,
        )
        _add_output(chunk, piece.logprobs, self._spec)
        if self._spec.prompt_logprobs is not None and whole.completion_tokens == len(piece.tokens):
            chunk.input_logprobs.CopyFrom(self._prompt)
        return chunk

    def _complete(self, whole: pb.GenerateComplete, end: BranchEnd) -> pb.GenerateComplete:
        whole.finish_reason = FINISH_REASONS[end.reason]
        if end.stop is not None:
            whole.matched_stop_str = end.stop
        elif end.stop_token is not None:
            whole.matched_token_id = end.stop_token
        if self._spec.prompt_logprobs is not None and not self._with_chunks:
            whole.input_logprobs.CopyFrom(self._prompt)
        return whole


def _add_output(to: pb.GenerateComplete | pb.GenerateStreamChunk, logprobs: bytes, spec: RequestSpec) -> None:
    if spec.logprobs is None:
        return
    told = to.output_logprobs
    for own, best in positions(logprobs, spec.logprobs):
        assert own is not None, "tokens of answers have values"
        told.token_ids.append(own[0])
        told.token_logprobs.append(own[1])
        told.top_logprobs.append(_top(best))


def _add_input(told: pb.InputLogProbs, logprobs: bytes, spec: RequestSpec) -> None:
    """The first token of a prompt is there without a value."""
    for own, best in positions(logprobs, spec.prompt_logprobs):
        told.token_ids.append(spec.prompt[0] if own is None else own[0])
        told.token_logprobs.append(pb.InputTokenLogProb(value=None if own is None else own[1]))
        told.top_logprobs.append(_top(best))


def _top(best: list[Pair]) -> pb.TopLogProbs:
    return pb.TopLogProbs(token_ids=[token for token, _ in best], values=[value for _, value in best])

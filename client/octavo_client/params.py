"""How an answer is sampled, when it ends and what comes back with it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from octavo.v1 import inference_pb2 as pb

from octavo_client.errors import InvalidRequest

CONSTRAINTS = ("json_schema", "regex", "grammar", "choice")
UINT32_FIELDS = ("n", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs")


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Settings of one request, under the names that offline users of other engines know.

    None means "not sent": the server then takes the model's own default, and for `max_tokens` as many as fit.
    Ranges are the server's business, apart from whole numbers that the wire cannot carry: those raise InvalidRequest here.
    """

    n: int = 1
    """Answers to generate."""
    temperature: float | None = 1.0
    """0 is greedy."""
    top_p: float | None = 1.0
    """Keep the smallest set of tokens with this much probability, in (0, 1]."""
    top_k: int | None = 0
    """Keep the k most likely tokens; 0 or -1: all."""
    min_p: float | None = 0.0
    """Drop tokens less likely than this share of the most likely one, in [0, 1]."""
    repetition_penalty: float | None = 1.0
    """Above 1 makes tokens of prompt and answer less likely to come again."""
    presence_penalty: float | None = 0.0
    """In [-2, 2]: taken off the logit of tokens already answered."""
    frequency_penalty: float | None = 0.0
    """In [-2, 2]: the same, once for each time."""
    seed: int | None = None
    """Same seed, same answer. None: the server draws one."""
    max_tokens: int | None = 16
    """Most tokens to generate."""
    min_tokens: int = 0
    """No end before this many tokens."""
    stop: str | Sequence[str] | None = None
    """Texts that end the answer."""
    stop_token_ids: Sequence[int] | None = None
    """Tokens that end the answer, besides the model's own end token."""
    ignore_eos: bool = False
    """Go on past the model's end token."""
    include_stop_str_in_output: bool = False
    """Leave the matched stop text in the answer."""
    logprobs: int | None = None
    """Log-probabilities of the chosen token and this many others."""
    prompt_logprobs: int | None = None
    """The same for the prompt's tokens."""
    skip_special_tokens: bool = True
    """Leave control tokens out of the text."""
    logit_bias: Mapping[int, float] | None = None
    """Token id to a number in [-100, 100] added to its logit."""
    bad_words: Sequence[str] | None = None
    """Texts never generated."""
    json_schema: str | Mapping[str, object] | None = None
    """The answer is JSON that satisfies this schema. Of this and the next three at most one is given."""
    regex: str | None = None
    """The answer matches this regular expression."""
    grammar: str | None = None
    """The answer is a text of this grammar, in Lark syntax."""
    choice: Sequence[str] | None = None
    """The answer is one of these texts."""

    def __post_init__(self) -> None:
        for name in UINT32_FIELDS:
            _check_range(name, getattr(self, name), 1 if name == "n" else 0, 2**32 - 1)
        _check_range("seed", self.seed, 0, 2**64 - 1)
        _check_range("top_k", self.top_k, -1, 2**31 - 1)
        given = [name for name in CONSTRAINTS if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidRequest(f"An answer has one constraint; {' and '.join(given)} are two.")

    def as_proto(self) -> pb.GenerationOptions:
        """Returns the message. Raises InvalidRequest when a value has a type the wire cannot carry."""
        try:
            return pb.GenerationOptions(
                sampling=self._sampling(),
                stopping=self._stopping(),
                output=self._output(),
                constraint=self._constraint(),
            )
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"A sampling parameter has a value of the wrong type: {error}") from error

    def _sampling(self) -> pb.SamplingOptions:
        bias = (self.logit_bias or {}).items()
        return pb.SamplingOptions(
            temperature=self.temperature,
            top_k=0 if self.top_k == -1 else self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            seed=self.seed,
            n=self.n,
            logit_bias=[pb.LogitBias(token_id=token, bias=value) for token, value in bias],
            bad_words=self.bad_words,
        )

    def _stopping(self) -> pb.StoppingOptions:
        return pb.StoppingOptions(
            max_tokens=self.max_tokens,
            min_tokens=self.min_tokens,
            stop=[self.stop] if isinstance(self.stop, str) else self.stop,
            stop_token_ids=self.stop_token_ids,
            ignore_eos=self.ignore_eos,
            include_stop=self.include_stop_str_in_output,
        )

    def _constraint(self) -> pb.OutputConstraint | None:
        if all(getattr(self, name) is None for name in CONSTRAINTS):
            return None
        schema = self.json_schema
        return pb.OutputConstraint(
            json_schema=schema if isinstance(schema, str | None) else json.dumps(schema, ensure_ascii=False),
            regex=self.regex,
            grammar=self.grammar,
            choice=None if self.choice is None else pb.Choice(values=self.choice),
        )

    def _output(self) -> pb.OutputOptions:
        return pb.OutputOptions(
            logprobs=self.logprobs,
            prompt_logprobs=self.prompt_logprobs,
            skip_special_tokens=self.skip_special_tokens,
        )


def _check_range(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise InvalidRequest(f"{name} must be from {least} to {most}, not {value}.")

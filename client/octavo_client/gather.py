"""Whole answers, made of the events of a stream."""

from collections.abc import AsyncIterator

from octavo_client import prompts, results
from octavo_client.errors import ServerFault


class Gathered:
    """All that a stream has brought so far of so many answers. `prompt` is None for a chat."""

    def __init__(self, prompt: prompts.Prompt | None, num_answers: int = 1) -> None:
        self._prompt = prompt
        self._start: results.Start | None = None
        self._end: results.End | None = None
        self._deltas: list[list[results.Delta]] = [[] for _ in range(num_answers)]
        self._prompt_logprobs: list[results.TokenLogprobs | None] = []

    def add(self, event: results.Event) -> None:
        """Takes the next event."""
        match event:
            case results.Start():
                self._start = event
            case results.PromptLogprobs():
                self._prompt_logprobs += event.logprobs
            case results.Delta():
                self._deltas += [[] for _ in range(event.index + 1 - len(self._deltas))]
                self._deltas[event.index].append(event)
            case results.End():
                self._end = event
                self._deltas += [[] for _ in range(len(event.answers) - len(self._deltas))]

    def output(self) -> results.RequestOutput:
        """The answers as far as they have come. Raises ServerFault before the stream's start."""
        if self._start is None:
            raise ServerFault("The server sent no start of a stream.")
        ends = self._end.answers if self._end else [results.AnswerEnd(k, None, None) for k in range(len(self._deltas))]
        num_tokens = sum(len(delta.token_ids) for deltas in self._deltas for delta in deltas)
        usage = results.Usage(self._start.prompt_tokens, num_tokens, self._start.cached_tokens)
        return results.RequestOutput(
            request_id=self._start.request_id,
            prompt=None if self._prompt is None else prompts.text_of(self._prompt),
            prompt_token_ids=None if self._prompt is None else prompts.token_ids_of(self._prompt),
            outputs=[completion(end, self._deltas[end.index]) for end in ends],
            usage=self._end.usage if self._end else usage,
            timings=self._end.timings if self._end else results.Timings(self._start.queue_seconds, 0.0, 0.0, 0),
            prompt_logprobs=list(self._prompt_logprobs) or None,
            finished=self._end is not None,
        )


async def gathered(events: AsyncIterator[results.Event], prompt: prompts.Prompt | None) -> results.RequestOutput:
    """The whole answers. Raises ServerFault for a stream that stopped before its end."""
    so_far = Gathered(prompt)
    async for event in events:
        so_far.add(event)
    output = so_far.output()
    if not output.finished:
        raise ServerFault("The server ended a stream before its end.")
    return output


def completion(answer: results.AnswerEnd, deltas: list[results.Delta]) -> results.CompletionOutput:
    """One answer."""
    logprobs = [position for delta in deltas for position in delta.logprobs or ()]
    return results.CompletionOutput(
        index=answer.index,
        text="".join(delta.text for delta in deltas),
        token_ids=[token for delta in deltas for token in delta.token_ids],
        finish_reason=answer.finish_reason,
        stop_reason=answer.stop_reason,
        cumulative_logprob=sum(position.logprob for position in logprobs) if logprobs else None,
        logprobs=logprobs or None,
    )

"""What a step's result must have, and whose its log-probabilities are."""

from octavo_scheduler.core.events import NO_TOKEN, PAIR_BYTES, Output, Scored, StepDone
from octavo_scheduler.core.plan import StepPlan
from octavo_scheduler.core.request import Sequence
from octavo_scheduler.core.states import SequenceState


def fits(done: StepDone, plan: StepPlan, vocab_size: int) -> bool:
    """Whether a result has one token of the vocabulary, or NO_TOKEN, for each sampled row, and all log-probabilities."""
    tokens = done.tokens
    is_known = not tokens or (min(tokens) >= NO_TOKEN and max(tokens) < vocab_size)
    return is_known and len(done.logprobs) == plan.logprob_bytes and len(tokens) == sum(plan.row_samples)


def take_scores(plan: StepPlan, logprobs: bytes, outputs: list[Output]) -> dict[Sequence, bytes]:
    """Log-probabilities of samples, by their sequences, each cut to what its request asks for. Those of prompts are put out
    at once: they are told once, whatever becomes of the sequence."""
    size, sampled = PAIR_BYTES * (1 + plan.num_best), {}
    for number, (sequence, position) in enumerate(plan.scored):
        request = sequence.request
        spec, first = request.spec, number * size
        if position >= sequence.num_prompt:
            sampled[sequence] = logprobs[first : first + PAIR_BYTES * (1 + (spec.logprobs or 0))]
        elif sequence.state is not SequenceState.DONE:
            told = logprobs[first : first + PAIR_BYTES * (1 + (spec.prompt_logprobs or 0))]
            outputs.append(Scored(spec.id, position, told))
            request.num_scored = position + 1
    return sampled

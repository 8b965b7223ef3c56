"""Choosing the next token.

Order: penalties, temperature, top-k, top-p, min-p, renormalise, draw. Candidates are ranked by descending logit, ties
by ascending token id, so each filter keeps a prefix of the ranking and its length is all that has to be known. The draw
is the first rank whose cumulative weight exceeds u times the weight of the prefix.

Ranking a whole vocabulary is slow. Almost always the prefix, or at least the drawn rank, lies among the first
`SHORTLIST` candidates; only rows where it does not are ranked in full, with the same result.
"""

import torch
from torch import Tensor

from octavo_kernels.ops import Sampling, Step
from octavo_kernels.reference.philox import uniform

PURPOSE_TOKEN = 0
NO_TOKEN = -1
SHORTLIST = 256


def sample(logits: Tensor, sampling: Sampling, step: Step, out: Tensor) -> None:
    """See ops.Sample."""
    if not step.num_samples:
        return
    row, slot = step.sample_row[: step.num_samples].long(), step.sample_slot[: step.num_samples].long()
    draw(logits[row], slot, sampling, out[: step.num_samples])
    remember(slot, sampling, out[: step.num_samples])


def sample_one_by_one(logits: Tensor, sampling: Sampling, step: Step, out: Tensor) -> None:
    """The same with a fixed shape: sums over a vocabulary are split over threads by the size of the batch."""
    for i in range(step.num_samples):
        row, slot = step.sample_row[i : i + 1].long(), step.sample_slot[i : i + 1].long()
        draw(logits[row], slot, sampling, out[i : i + 1])
        remember(slot, sampling, out[i : i + 1])


def remember(slot: Tensor, sampling: Sampling, tokens: Tensor) -> None:
    """Put each token that was drawn at the end of its slot's history, where there is room."""
    length = sampling.length[slot].long()
    fits = (length < sampling.history.shape[1]) & (tokens >= 0)
    sampling.history[slot[fits], length[fits]] = tokens[fits]


def draw(logits: Tensor, slot: Tensor, sampling: Sampling, out: Tensor) -> None:
    """out [S]: a token for each row of logits [S, V], which belongs to this draw and changes."""
    penalise(logits, slot, sampling)
    has_token = is_sound(logits)
    out.copy_(torch.where(has_token, logits.argmax(-1), NO_TOKEN))
    warm = ((sampling.temperature[slot] > 0) & has_token).nonzero().squeeze(1)
    if warm.numel():
        slot = slot[warm]
        below = logits[warm] - logits[warm].amax(-1, keepdim=True)  # so that no temperature makes the largest overflow
        out[warm] = draw_by_rank(below / sampling.temperature[slot, None], slot, sampling).to(out.dtype)


def is_sound(logits: Tensor) -> Tensor:
    """Whether rows have numbers to draw by."""
    return (logits < torch.inf).all(-1) & (logits > -torch.inf).any(-1)


def penalise(logits: Tensor, slot: Tensor, sampling: Sampling) -> None:
    """Repetition counts prompt and answer; presence and frequency count the answer only."""
    repetition, presence = sampling.repetition_penalty[slot], sampling.presence_penalty[slot]
    frequency = sampling.frequency_penalty[slot]
    rows = ((repetition != 1) | (presence != 0) | (frequency != 0)).nonzero().squeeze(1)
    if not rows.numel():
        return
    slot, repetition = slot[rows], repetition[rows, None]
    length = sampling.length[slot, None]
    said = sampling.history[slot, : int(length.max())].long()
    place = torch.arange(said.shape[1], device=said.device)
    is_token, is_answer = place < length, (place < length) & (place >= sampling.num_prompt[slot, None])
    said = said.masked_fill(~is_token, 0)
    before = torch.zeros_like(logits[rows]).scatter_add_(1, said, is_token.float()) > 0
    times = torch.zeros_like(logits[rows]).scatter_add_(1, said, is_answer.float())
    old = logits[rows]
    new = torch.where(before, torch.where(old > 0, old / repetition, old * repetition), old)
    logits[rows] = new - presence[rows, None] * (times > 0) - frequency[rows, None] * times


def draw_by_rank(logits: Tensor, slot: Tensor, sampling: Sampling) -> Tensor:
    """[S] tokens from logits [S, V], whose largest is 0 in each row, by inverse CDF, in float32."""
    u = uniform(sampling.length[slot], sampling.branch[slot], PURPOSE_TOKEN, sampling.seed[slot])
    weights = logits.exp()
    total = weights.sum(-1)
    order = rank_keys(logits)
    token, is_settled = invert(order, weights, total, u, slot, sampling, min(SHORTLIST, logits.shape[1]))
    rest = (~is_settled).nonzero().squeeze(1)
    if rest.numel():
        token[rest] = invert(order[rest], weights[rest], total[rest], u[rest], slot[rest], sampling, logits.shape[1])[0]
    return token


def rank_keys(logits: Tensor) -> Tensor:
    """int64 [S, V], all different in a row: descending keys are descending logits, ties by ascending token id."""
    bits = (logits + 0.0).view(torch.int32).long()  # + 0.0 makes -0.0 a tie of 0.0
    ordered = torch.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)
    return (ordered << 32) + torch.arange(logits.shape[1] - 1, -1, -1, device=logits.device)


def invert(
    order: Tensor, weights: Tensor, total: Tensor, u: Tensor, slot: Tensor, sampling: Sampling, width: int
) -> tuple[Tensor, Tensor]:
    """Tokens drawn among the first `width` ranks, and whether looking further would change nothing."""
    vocabulary = order.shape[1]
    ranked = order.topk(width, dim=-1).indices
    weight = weights.gather(1, ranked)
    upto = weight.cumsum(-1)

    def mass_of(num_kept: Tensor) -> Tensor:
        last = num_kept.clamp(max=width) - 1
        return torch.where(num_kept < vocabulary, upto.gather(1, last[:, None])[:, 0], total)

    top_k, top_p, min_p = sampling.top_k[slot].long(), sampling.top_p[slot], sampling.min_p[slot]
    num_kept = torch.where(top_k > 0, top_k.clamp(max=vocabulary), vocabulary)
    is_settled = (num_kept <= width) | (num_kept == vocabulary)

    # The smallest prefix that holds top_p of the mass: its last rank is the first to reach it.
    reached = (upto < (top_p * mass_of(num_kept))[:, None]).sum(-1) + 1
    is_settled &= (top_p >= 1) | (reached <= width)
    num_kept = torch.where(top_p < 1, torch.minimum(reached, num_kept), num_kept)

    likely = (weight >= min_p[:, None]).sum(-1)
    is_settled &= (min_p <= 0) | (likely < width) | (num_kept <= width)
    num_kept = torch.where(min_p > 0, torch.minimum(likely, num_kept), num_kept)

    chosen = (upto <= (u * mass_of(num_kept))[:, None]).sum(-1)
    is_settled &= (chosen < width) | (num_kept <= width)
    last = torch.minimum(num_kept, (weight > 0).sum(-1)) - 1  # rounding may carry the draw past the end
    return ranked.gather(1, torch.minimum(chosen, last)[:, None])[:, 0], is_settled

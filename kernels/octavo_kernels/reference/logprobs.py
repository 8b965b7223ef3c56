"""Log-probabilities of the tokens that came, and of the most likely ones."""

import torch
from torch import Tensor

from octavo_kernels.ops import Sampling, Step
from octavo_kernels.reference.sampling import NO_TOKEN, is_sound, rank_keys


def logprobs(logits: Tensor, sampling: Sampling, step: Step, values: Tensor, ids: Tensor) -> None:
    """See ops.Logprobs. One token at a time, in float64."""
    for i in range(step.num_scores):
        row = logits[int(step.score_row[i])]
        values[i], ids[i] = -torch.inf, NO_TOKEN
        if is_sound(row):
            token = sampling.history[int(step.score_slot[i]), int(step.score_position[i])]
            best = rank_keys(row[None])[0].topk(min(ids.shape[1] - 1, len(row))).indices
            best = best[row[best] > -torch.inf]
            listed = torch.cat((token[None].long(), best))
            ids[i, : len(listed)] = listed.int()
            values[i, : len(listed)] = row.double().log_softmax(-1)[listed].float()

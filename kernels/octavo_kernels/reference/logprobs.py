"""Log-probabilities of the tokens that were drawn, and of the most likely ones."""

import torch
from torch import Tensor

from octavo_kernels.ops import Step
from octavo_kernels.reference.sampling import NO_TOKEN, rank_keys


def logprobs(logits: Tensor, step: Step, tokens: Tensor, values: Tensor, ids: Tensor) -> None:
    """See ops.Logprobs. One sample at a time, in float64."""
    for i in range(step.num_samples):
        row, token = logits[int(step.sample_row[i])], int(tokens[i])
        values[i], ids[i] = -torch.inf, NO_TOKEN
        if token != NO_TOKEN:
            best = rank_keys(row[None])[0].topk(min(ids.shape[1] - 1, len(row))).indices
            best = best[row[best] > -torch.inf]
            listed = torch.cat((torch.tensor([token]), best))
            ids[i, : len(listed)] = listed.int()
            values[i, : len(listed)] = row.double().log_softmax(-1)[listed].float()

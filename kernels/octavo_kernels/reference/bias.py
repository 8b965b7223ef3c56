"""Biases of logits."""

import torch
from torch import Tensor

from octavo_kernels.ops import BIAS_WORDS, Sampling, Step


def bias_logits(logits: Tensor, sampling: Sampling, step: Step, out: Tensor) -> None:
    """See ops.BiasLogits. One row and one bias at a time."""
    for i in range(step.num_biased):
        slot = int(step.bias_slot[i])
        out[i] = logits[int(step.bias_row[i])]
        biases = sampling.biases[slot].view(-1, BIAS_WORDS)[: int(sampling.num_biases[slot])]
        length, answered = int(sampling.length[slot]), int(sampling.length[slot] - sampling.num_prompt[slot])
        for place, (token, _, until, context) in enumerate(biases.tolist()):
            said = sampling.history[slot, length - max(context, 0) : length]
            if length < until and 0 <= context <= answered and torch.equal(said, biases[place - context : place, 0]):
                out[i, token] += biases[place, 1].view(torch.float32)

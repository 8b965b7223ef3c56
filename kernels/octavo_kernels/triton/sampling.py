"""Choosing tokens."""

import torch
import triton
from torch import Tensor

from octavo_kernels.ops import Sampling, Step
from octavo_kernels.triton.launcher import Launcher
from octavo_kernels.triton.source.ranking import LISTED, TOKEN_BITS
from octavo_kernels.triton.source.sampling import penalise_kernel, sample_kernel

MAX_VOCABULARY = 1 << TOKEN_BITS.value
BLOCK = 4096
CHUNK = 4096
HISTORY_BLOCK = 1024
WARPS = 16


class Sampler:
    """The functions of the door over these kernels. Keeps room for the largest step that it saw."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self.penalised = torch.empty(0, dtype=torch.float32, device=launcher.device.place)
        self.lists = torch.empty(0, dtype=torch.int32, device=launcher.device.place)

    def sample(self, logits: Tensor, sampling: Sampling, step: Step, out: Tensor) -> None:
        """See ops.Sample."""
        vocabulary = logits.shape[1]
        if vocabulary > MAX_VOCABULARY:
            raise ValueError(f"a vocabulary of {vocabulary} tokens; these kernels sample from {MAX_VOCABULARY}")
        self.make_room(len(step.sample_slot), vocabulary)
        samples = self.launcher.most(step.samples, len(step.sample_slot))
        self.penalise(samples, logits, sampling, step)
        self.launcher(
            sample_kernel,
            (samples,),
            self.launcher.count(step.samples),
            step.sample_row,
            step.sample_slot,
            logits,
            self.penalised,
            sampling.temperature,
            sampling.top_k,
            sampling.top_p,
            sampling.min_p,
            sampling.repetition_penalty,
            sampling.presence_penalty,
            sampling.frequency_penalty,
            sampling.seed,
            sampling.branch,
            sampling.length,
            sampling.history,
            self.lists,
            out,
            logits.stride(0),
            sampling.history.stride(0),
            vocabulary,
            BLOCK=BLOCK,
            num_warps=WARPS,
        )

    def penalise(self, samples: int, logits: Tensor, sampling: Sampling, step: Step) -> None:
        """Fills the rows of `penalised` of those samples that have a penalty."""
        self.launcher(
            penalise_kernel,
            (samples, triton.cdiv(logits.shape[1], CHUNK)),
            self.launcher.count(step.samples),
            step.sample_row,
            step.sample_slot,
            logits,
            sampling.repetition_penalty,
            sampling.presence_penalty,
            sampling.frequency_penalty,
            sampling.num_prompt,
            sampling.length,
            sampling.history,
            self.penalised.view(torch.int32),
            self.penalised,
            logits.stride(0),
            sampling.history.stride(0),
            logits.shape[1],
            CHUNK=CHUNK,
            BLOCK=HISTORY_BLOCK,
            num_warps=8,
            enable_fp_fusion=False,  # rounded as the reference rounds
        )

    def make_room(self, samples: int, vocabulary: int) -> None:
        """For so many samples. What a captured step uses must not move: its first run, kernel by kernel, comes here."""
        if self.penalised.numel() < samples * vocabulary:
            self.penalised = self.penalised.new_empty(samples * vocabulary)
        if self.lists.numel() < samples * 2 * LISTED.value:
            self.lists = self.lists.new_empty(samples * 2 * LISTED.value)

"""Choosing tokens."""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from octavo_kernels.ops import Sampling, Step
from octavo_kernels.triton.launcher import Launcher
from octavo_kernels.triton.source.bias import Biased, Biases, bias_kernel
from octavo_kernels.triton.source.logprobs import Scores, logprobs_kernel
from octavo_kernels.triton.source.ranking import LISTED, TOKEN_BITS
from octavo_kernels.triton.source.sampling import Columns, Samples, penalise_kernel, sample_kernel

MAX_VOCABULARY = 1 << TOKEN_BITS.value
BLOCK = 4096
CHUNK = 4096
HISTORY_BLOCK = 1024
BIAS_BLOCK = 256
WARPS = 16


@dataclass(frozen=True, slots=True)
class Scratch:
    """What programs write and read again."""

    penalised: Tensor  # float32 [S, V]: logits after penalties, of samples that have any
    lists: Tensor  # int32 [S, 2 * LISTED]


class Sampler:
    """The functions of the door over these kernels."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self.scratches: dict[tuple[int, int], Scratch] = {}
        self.lists: dict[int, Tensor] = {}

    def sample(self, logits: Tensor, sampling: Sampling, step: Step, out: Tensor) -> None:
        """See ops.Sample."""
        scratch = self.scratch(step, logits)
        self.penalise(scratch.penalised, logits, sampling, step)
        self.launcher(
            sample_kernel,
            (self.most(step),),
            self.samples_of(step),
            columns_of(sampling),
            logits,
            scratch.penalised,
            scratch.lists,
            out,
            logits.stride(0),
            sampling.history.stride(0),
            logits.shape[1],
            BLOCK=BLOCK,
            num_warps=WARPS,
        )

    def penalise(self, penalised: Tensor, logits: Tensor, sampling: Sampling, step: Step) -> None:
        """Fills the rows of `penalised` of those samples that have a penalty."""
        self.launcher(
            penalise_kernel,
            (self.most(step), triton.cdiv(logits.shape[1], CHUNK)),
            self.samples_of(step),
            columns_of(sampling),
            logits,
            penalised.view(torch.int32),
            penalised,
            logits.stride(0),
            sampling.history.stride(0),
            logits.shape[1],
            CHUNK=CHUNK,
            BLOCK=HISTORY_BLOCK,
            num_warps=8,
            enable_fp_fusion=False,  # rounded as the reference rounds
        )

    def bias_logits(self, logits: Tensor, sampling: Sampling, step: Step, out: Tensor) -> None:
        """See ops.BiasLogits. Steps that have no biased row launch nothing."""
        most = self.launcher.most(step.biased, len(out))
        if not most:
            return
        self.launcher(
            bias_kernel,
            (most, triton.cdiv(logits.shape[1], CHUNK)),
            Biased(self.launcher.count(step.biased), step.bias_row, step.bias_slot),
            Biases(*(getattr(sampling, name) for name in Biases._fields)),
            logits,
            out,
            logits.stride(0),
            out.stride(0),
            sampling.biases.stride(0),
            sampling.history.stride(0),
            logits.shape[1],
            CHUNK=CHUNK,
            BLOCK=BIAS_BLOCK,
            num_warps=8,
        )

    def logprobs(self, logits: Tensor, sampling: Sampling, step: Step, values: Tensor, ids: Tensor) -> None:
        """See ops.Logprobs. Steps that ask for none launch nothing."""
        check_vocabulary(logits)
        room = len(step.score_row)
        most = self.launcher.most(step.scores, room)
        if room not in self.lists:
            self.lists[room] = torch.empty((room, LISTED.value), dtype=torch.int32, device=self.launcher.device.place)
        if not most:
            return
        self.launcher(
            logprobs_kernel,
            (most,),
            Scores(self.launcher.count(step.scores), step.score_row, step.score_slot, step.score_position),
            sampling.history,
            logits,
            self.lists[room],
            values,
            ids,
            logits.stride(0),
            sampling.history.stride(0),
            logits.shape[1],
            values.shape[1] - 1,
            BLOCK=BLOCK,
            num_warps=WARPS,
        )

    def most(self, step: Step) -> int:
        """How many samples a launch must hold."""
        return self.launcher.most(step.samples, len(step.sample_slot))

    def samples_of(self, step: Step) -> Samples:
        return Samples(self.launcher.count(step.samples), step.sample_row, step.sample_slot)

    def scratch(self, step: Step, logits: Tensor) -> Scratch:
        """For steps of this size: made when the first one runs, and kept where it is, since graphs read and write there."""
        check_vocabulary(logits)
        samples, vocabulary = len(step.sample_slot), logits.shape[1]
        if (samples, vocabulary) not in self.scratches:
            place = self.launcher.device.place
            self.scratches[samples, vocabulary] = Scratch(
                torch.empty((samples, vocabulary), dtype=torch.float32, device=place),
                torch.empty((samples, 2 * LISTED.value), dtype=torch.int32, device=place),
            )
        return self.scratches[samples, vocabulary]


def check_vocabulary(logits: Tensor) -> None:
    """Raises ValueError if a row is too long."""
    if logits.shape[1] > MAX_VOCABULARY:
        raise ValueError(f"a vocabulary of {logits.shape[1]} tokens; these kernels sample from {MAX_VOCABULARY}")


def columns_of(sampling: Sampling) -> Columns:
    return Columns(*(getattr(sampling, name) for name in Columns._fields))

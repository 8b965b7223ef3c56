"""The one door to the kernels: a record of functions, picked once by name and handed down.

Rules of the door, the same for every implementation:
- Every function writes into buffers of its caller; nothing that a later function needs is returned.
- What changes from step to step lives in `Step`, persistent tensors that are filled before the step. Sizes are the
  counts in `Step`; a captured step uses the counts of its bucket, and padded entries carry -1 (`kv_index`, `row_slot`).
- The pool is one tensor [page][layer][kv_head][K | V]. A page is contiguous over all layers. Only the functions here
  know the order of elements inside a head's block; its name is `Ops.layout`.
- Page 0 is the null page: it may hold anything, NaN included, and so may every position that is past a row's length.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Geometry:
    """Shape of a page."""

    page_size: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def block_elements(self) -> int:
        """Elements of one head's block, K and V."""
        return 2 * self.page_size * self.head_dim

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all layers."""
        return self.num_layers * self.num_kv_heads * self.block_elements * self.dtype.itemsize

    def new_pool(self, num_pages: int, device: torch.device) -> Tensor:
        """[num_pages + 1, layers, kv_heads, block_elements]: page 0 is the null page.

        Not filled: main memory is then taken page by page as tokens come, and no kernel may read what none has written.
        """
        shape = (num_pages + 1, self.num_layers, self.num_kv_heads, self.block_elements)
        return torch.empty(shape, dtype=self.dtype, device=device)


@dataclass(slots=True)
class Step:
    """What one step computes: T tokens of R rows, H rows through the head, S samples. All int32 but `kv_index`."""

    geometry: Geometry
    token: Tensor  # [T] ids
    position: Tensor  # [T] index of the token in its sequence
    kv_index: Tensor  # [T] int64: page * page_size + offset where K and V go; -1: nowhere
    row_slot: Tensor  # [R] slot; -1: padded
    row_start: Tensor  # [R + 1] cumulative query lengths
    row_length: Tensor  # [R] tokens of the sequence that have K and V once this step has written its own
    table: Tensor  # [slots, pages] block table of each slot; past a row's length: anything
    head_token: Tensor  # [H] index into T of the tokens that go through the head
    sample_row: Tensor  # [S] index into H
    sample_slot: Tensor  # [S] slot whose next token is drawn
    num_tokens: int = 0
    num_rows: int = 0
    num_head_rows: int = 0
    num_samples: int = 0
    workspace: object = None  # whatever `Ops.prepare` derives for this step


@dataclass(slots=True)
class Sampling:
    """How each slot samples, one element a slot, and what it has said so far."""

    temperature: Tensor  # float32; 0: greedy
    top_p: Tensor  # float32; 1: off
    min_p: Tensor  # float32; 0: off
    top_k: Tensor  # int32; 0: off
    repetition_penalty: Tensor  # float32; 1: off
    presence_penalty: Tensor  # float32; 0: off
    frequency_penalty: Tensor  # float32; 0: off
    seed: Tensor  # int64, the bits of an unsigned 64-bit key
    branch: Tensor  # int32
    num_prompt: Tensor  # int32: tokens of `history` that are the prompt
    length: Tensor  # int32: tokens of `history`; the index of the token drawn next
    history: Tensor  # int32 [slots, max_context]


class TakeRows(Protocol):
    """out[i] = source[index[i]]."""

    def __call__(self, source: Tensor, index: Tensor, out: Tensor) -> None: ...


class Linear(Protocol):
    """out [M, N] = x [M, K] @ weight [N, K] transposed (+ bias [N])."""

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None: ...


class RmsNorm(Protocol):
    """residual += x, when x is given; out = residual / sqrt(mean(residual²) + eps) * weight, in float32 inside."""

    def __call__(self, x: Tensor | None, residual: Tensor, weight: Tensor, eps: float, out: Tensor) -> None: ...


class RopeAndWrite(Protocol):
    """Rotates q [T, H, D] in place and k [T, KV, D]; writes rotated k and v into the pool at `step.kv_index`.

    `cos` and `sin` are float32 [max_context, D / 2]; halves are rotated (not pairs).
    """

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, pool: Tensor, layer: int, step: Step
    ) -> None: ...


class Attention(Protocol):
    """out [T, H, D]: causal attention of each row's queries over its pages. Scores are scaled by 1/sqrt(D)."""

    def __call__(self, q: Tensor, pool: Tensor, layer: int, step: Step, out: Tensor) -> None: ...


class SiluMul(Protocol):
    """out [M, N] = silu(gate_up[:, :N]) * gate_up[:, N:]."""

    def __call__(self, gate_up: Tensor, out: Tensor) -> None: ...


class MovePages(Protocol):
    """target[target_ids[i]] = source[source_ids[i]], bytes unchanged; all reads come before all writes."""

    def __call__(self, source: Tensor, source_ids: Tensor, target: Tensor, target_ids: Tensor) -> None: ...


class Sample(Protocol):
    """out int32 [S]: the next token of each `step.sample_slot`, drawn from logits [H, V] float32 (which may change)."""

    def __call__(self, logits: Tensor, sampling: Sampling, step: Step, out: Tensor) -> None: ...


@dataclass(frozen=True, slots=True)
class Ops:
    """One implementation of everything a decoder needs."""

    name: str
    layout: str
    batch_invariant: bool  # the same row gives the same bits in any batch and any chunking
    needs_zeroed_pages: bool
    prepare: Callable[[Step], None]  # once a step, after `Step` is filled and before the first op
    take_rows: TakeRows
    linear: Linear
    rms_norm: RmsNorm
    rope_and_write: RopeAndWrite
    attention: Attention
    silu_mul: SiluMul
    move_pages: MovePages
    zero_pages: Callable[[Tensor, Tensor], None]  # (pool, page ids)
    sample: Sample


class KernelsUnavailable(ValueError):
    """No kernels of that name run on that device. The message lists those that do."""


def pick(device: torch.device | str, name: str | None = None, *, invariant: bool = False) -> Ops:
    """The kernels called `name`, or the best ones for `device`. Raises KernelsUnavailable."""
    choices = runnable(torch.device(device))
    if name is None and choices:
        name = next(iter(choices))
    if name not in choices:
        names = ", ".join(choices) or "none"
        raise KernelsUnavailable(f"kernels {name or '(any)'!r} do not run on device {str(device)!r}; these do: {names}")
    return choices[name](invariant)


def runnable(device: torch.device) -> dict[str, Callable[[bool], Ops]]:
    """Builders of the kernels that run on `device`, best first."""
    from octavo_kernels.reference import build

    is_there = device.type == "cpu" or (device.type == "cuda" and torch.cuda.is_available())
    return {"reference": build} if is_there else {}

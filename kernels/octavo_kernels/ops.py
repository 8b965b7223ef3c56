"""The one door to the kernels: a record of functions, picked once by name (`choice.pick`) and handed down.

Rules of the door, the same for every implementation:
- Every function writes into buffers of its caller; nothing that a later function needs is returned.
- What changes from step to step lives in `Step` and `Sampling`, persistent arrays that are filled before the step. How many
  rows a function works on it reads from an array of one element when it runs, so that a captured step fits every batch.
- The pool is one array [page][layer][kv_head][block]. A page is contiguous over all layers. Only the functions here know
  the order of elements inside a head's block; its name is `Ops.layout`.
- Page 0 is the null page: it may hold anything, NaN included, and so may every position that is past a row's length.

An array is a torch tensor or a numpy array, as `Ops.new_buffer` and `Ops.share` make them: kernels that need no torch
do not import it. Buffers are handed over whole, with room for the largest step; an array of one int32, shared and called
`rows` below, says how many of their rows count. Matrices that stand in for rows of heads are flat: a row of `qkv` is H
heads of queries, KV of keys and KV of values, D elements each.

Kernels may keep their own copy of a shared array, in the memory of a device; `Ops.changed` tells them what was written
here since. Only `Sampling.history` is written by kernels as well: there a sampled token is known first.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from octavo_kernels.int4 import Int4

Array: TypeAlias = Any
Replay: TypeAlias = Callable[[], None]
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1, "fp8": 1}
"""fp8 is e4m3."""
SCALED = ("int8", "fp8")
SCALE_BYTES = 2
"""Of the bfloat16 scale that each token's K and V of a head have in such a cache."""
MOST_LOGPROBS = 20
"""Most likely tokens whose log-probabilities a step tells."""
BIAS_WORDS = 4
"""Of one bias in `Sampling.biases`."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Shape of a page. `dtype` names the elements of K and V, a key of ITEM_BYTES."""

    page_size: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: str

    @property
    def block_bytes(self) -> int:
        """Bytes of one head's block: K, V and their scales."""
        token = self.head_dim * ITEM_BYTES[self.dtype] + (SCALE_BYTES if self.dtype in SCALED else 0)
        return 2 * self.page_size * token

    @property
    def page_bytes(self) -> int:
        """Bytes of one page over all layers."""
        return self.num_layers * self.num_kv_heads * self.block_bytes


@dataclass(frozen=True, slots=True)
class Memory:
    """Of a device, in bytes."""

    total: int
    free: int
    own: int  # taken by this process


class Fetched(Protocol):
    """Elements on their way to main memory."""

    def is_there(self) -> bool:
        """Whether `wait` would not."""

    def wait(self) -> np.ndarray:
        """The elements, once all that was given to the kernels before they were asked for is done."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix [outputs, inputs] as the kernels want it.

    `parts` are all that must be kept to have it again, in numpy; bfloat16 is uint16 there.
    """

    format: str  # one of Ops.formats
    outputs: int
    inputs: int
    parts: Mapping[str, np.ndarray]
    handle: object = None  # whatever the kernels derive from the parts

    @property
    def num_bytes(self) -> int:
        """Of all parts."""
        return sum(part.nbytes for part in self.parts.values())


BLOCK_BYTES = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34}
"""Kinds of GGUF blocks that kernels may keep, and their sizes."""
BLOCK_FORMATS = {"Q4_0": "int4", "Q4_1": "int4", "Q8_0": "int8_groups"}
BLOCK_ELEMENTS = 32


@dataclass(frozen=True, slots=True)
class Blocks:
    """A matrix [outputs, inputs] of GGUF blocks as they lie in the file: uint8 [outputs, bytes of a row]."""

    kind: str  # a key of BLOCK_BYTES
    data: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix."""
        outputs, row_bytes = self.data.shape
        return outputs, row_bytes // BLOCK_BYTES[self.kind] * BLOCK_ELEMENTS

    @property
    def format(self) -> str:
        """That of a weight which holds the very same values."""
        return BLOCK_FORMATS[self.kind]

    def floats(self) -> np.ndarray:
        """The matrix in float32."""
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        return np.asarray(dequantize(self.data, GGMLQuantizationType[self.kind]), np.float32)


Values: TypeAlias = np.ndarray | Blocks | Int4
"""A matrix in float32, or one that is quantised already."""


def one_count() -> np.ndarray:
    """int32 [1]: how many there are in this step."""
    return np.zeros(1, np.int32)


def no_biases() -> np.ndarray:
    """Of any slot."""
    return np.zeros((1, BIAS_WORDS), np.int32)


@dataclass(slots=True)
class Step:
    """What one step computes: T tokens of R rows, H rows through the head, S samples. All int32 but `kv_index`.

    Few steps have more: B biased rows, which samples are drawn from, and P tokens whose log-probabilities are asked for.
    """

    geometry: Geometry
    token: Array  # [T] ids, filled by `Ops.take_tokens`
    position: Array  # [T] index of the token in its sequence
    kv_index: Array  # [T] int64: page * page_size + offset where K and V go; -1: nowhere
    row_slot: Array  # [R] slot; -1: padded
    row_start: Array  # [R + 1] cumulative query lengths
    row_length: Array  # [R] tokens of the sequence that have K and V once this step has written its own
    table: Array  # [slots, pages] block table of each slot; past a row's length: anything
    head_token: Array  # [H] index into T of the tokens that go through the head
    sample_row: Array  # [S] index into the rows of logits
    sample_slot: Array  # [S] slot whose next token is drawn
    tokens: Array = field(default_factory=one_count)
    rows: Array = field(default_factory=one_count)
    head_rows: Array = field(default_factory=one_count)
    samples: Array = field(default_factory=one_count)
    longest: Array = field(default_factory=one_count)  # query tokens of the row that has most
    bias_row: Array = field(default_factory=one_count)  # [B] index into H
    bias_slot: Array = field(default_factory=one_count)  # [B] slot whose biases are added
    biased: Array = field(default_factory=one_count)
    score_row: Array = field(default_factory=one_count)  # [P] index into H: what the token was drawn from
    score_slot: Array = field(default_factory=one_count)  # [P]
    score_position: Array = field(default_factory=one_count)  # [P] place of the token in the slot's history
    scores: Array = field(default_factory=one_count)
    workspace: object = None  # whatever `Ops.prepare` derives for this step

    @property
    def num_tokens(self) -> int:
        """T of this step."""
        return int(self.tokens[0])

    @property
    def num_rows(self) -> int:
        """R of this step."""
        return int(self.rows[0])

    @property
    def num_head_rows(self) -> int:
        """H of this step."""
        return int(self.head_rows[0])

    @property
    def num_samples(self) -> int:
        """S of this step."""
        return int(self.samples[0])

    @property
    def num_biased(self) -> int:
        """B of this step."""
        return int(self.biased[0])

    @property
    def num_scores(self) -> int:
        """P of this step."""
        return int(self.scores[0])

    def count(
        self,
        *,
        tokens: int,
        rows: int,
        head_rows: int,
        samples: int,
        longest: int = 0,
        biased: int = 0,
        scores: int = 0,
    ) -> None:
        """Say how many there are in this step. `longest` 0: nobody knows, `tokens` at most."""
        self.tokens[0], self.rows[0], self.head_rows[0], self.samples[0] = tokens, rows, head_rows, samples
        self.longest[0], self.biased[0], self.scores[0] = longest or tokens, biased, scores


@dataclass(slots=True)
class Sampling:
    """How each slot samples, one element a slot, and what it has said so far."""

    temperature: Array  # float32; 0: greedy
    top_p: Array  # float32; 1: off
    min_p: Array  # float32; 0: off
    top_k: Array  # int32; 0: off
    repetition_penalty: Array  # float32; 1: off
    presence_penalty: Array  # float32; 0: off
    frequency_penalty: Array  # float32; 0: off
    seed: Array  # int64, the bits of an unsigned 64-bit key
    branch: Array  # int32
    num_prompt: Array  # int32: tokens of `history` that are the prompt
    length: Array  # int32: tokens of `history` before this step's sample; the index of the token drawn
    history: Array  # int32 [slots, max_context]
    num_biases: Array = field(default_factory=one_count)  # int32
    biases: Array = field(default_factory=no_biases)  # int32 [slots, BIAS_WORDS * most]; see BiasLogits


@dataclass(slots=True)
class Masks:
    """What constrained answers may go on with: for some rows that samples are drawn from, which tokens may be drawn."""

    row: Array  # int32 [S]: index into the rows of logits
    bits: Array  # int32 [S, ceil(V / 32)]: a bit a token, the lowest first; set: allowed
    rows: Array = field(default_factory=one_count)  # how many of these there are in this step


class TakeTokens(Protocol):
    """step.token[i] = history[slot of the token's row, step.position[i]], for all tokens of rows that are not padded."""

    def __call__(self, sampling: Sampling, step: Step) -> None: ...


class TakeRows(Protocol):
    """out[i] = source[index[i]] for i < rows. Elements change their type as `out` wants."""

    def __call__(self, rows: Array, source: Array, index: Array, out: Array) -> None: ...


class Embed(Protocol):
    """out[i] = row index[i] of a weight, for i < rows."""

    def __call__(self, rows: Array, source: Weight, index: Array, out: Array) -> None: ...


class Linear(Protocol):
    """out [rows, N] = x [rows, K] @ weight [N, K] transposed (+ the weight's bias [N])."""

    def __call__(self, rows: Array, x: Array, weight: Weight, out: Array) -> None: ...


class GatedLinear(Protocol):
    """out [rows, N] = silu(x @ gate [N, K] transposed) * (x @ up [N, K] transposed)."""

    def __call__(self, rows: Array, x: Array, gate: Weight, up: Weight, out: Array) -> None: ...


class RmsNorm(Protocol):
    """residual += x, when x is given; out = residual / sqrt(mean(residual²) + eps) * weight, in float32 inside.

    `weight` is float32 [width].
    """

    def __call__(
        self, rows: Array, x: Array | None, residual: Array, weight: Array, eps: float, out: Array
    ) -> None: ...


class RopeAndWrite(Protocol):
    """Rotates the queries in `qkv` [T, (H + 2 KV) D] in place; writes rotated keys and the values into the pool.

    A token's K and V go to `step.kv_index`. `cos` and `sin` are float32 [max_context, D / 2]; halves are rotated, not
    pairs.
    """

    def __call__(self, qkv: Array, cos: Array, sin: Array, pool: Array, layer: int, step: Step) -> None: ...


class Attention(Protocol):
    """out [T, H D]: causal attention of each row's queries, the first H D columns of `qkv`, over its pages.

    Scores are scaled by 1/sqrt(D). `window` > 0: a query sees that many positions, its own included; what lies before the
    windows of all queries of a row may be anything, NaN included. `softcap` > 0: a score s becomes
    softcap * tanh(s / softcap). Tokens of padded rows are left alone.
    """

    def __call__(
        self, qkv: Array, pool: Array, layer: int, step: Step, out: Array, *, window: int = 0, softcap: float = 0.0
    ) -> None: ...


class SiluMul(Protocol):
    """out [rows, N] = silu(gate_up[:, :N]) * gate_up[:, N:]."""

    def __call__(self, rows: Array, gate_up: Array, out: Array) -> None: ...


class MovePages(Protocol):
    """target[target_ids[i]] = source[source_ids[i]], bytes unchanged; all reads come before all writes. Ids are int64.

    Moves to and from the host tier begin after all that was given to the kernels before, and may run beside what is given
    next, until `Ops.fence`.
    """

    def __call__(self, source: Array, source_ids: np.ndarray, target: Array, target_ids: np.ndarray) -> None: ...


class Sample(Protocol):
    """out int32 [S]: the next token of each `step.sample_slot`, drawn from logits [H, V] float32, which stay as they are.

    It is also put at the end of the slot's history, where there is room; `sampling.length` stays. No token can be drawn
    from a row that holds a NaN or an infinity, after penalties, or nothing but minus infinities: `out` is -1 then, and
    the history stays too.
    """

    def __call__(self, logits: Array, sampling: Sampling, step: Step, out: Array) -> None: ...


class MaskLogits(Protocol):
    """logits[masks.row[i], t] = -inf where bit t of masks.bits[i] is not set, for i < masks.rows; logits float32.

    A NaN stays and +inf becomes one, so that a row that is no numbers is still known for that.
    """

    def __call__(self, logits: Array, masks: Masks, step: Step) -> None: ...


class BiasLogits(Protocol):
    """out [B, V] = rows `step.bias_row` of logits [H, V] float32, with the biases of the slots `step.bias_slot` added.

    A slot's biases are its first `num_biases` groups of four words: a token; what is added to its logit, the bits of a
    float32 that is finite or minus infinity; the length of the history from which on it is not added any more; and its
    context. A bias of context c is added if the last c tokens of the history are all of the answer and are the tokens of the
    c biases just before it; one of context -1 is never added, and is there to be the context of another.
    """

    def __call__(self, logits: Array, sampling: Sampling, step: Step, out: Array) -> None: ...


class Logprobs(Protocol):
    """Log-probabilities of the tokens at `step.score_position` of the histories of `step.score_slot`, and of the best.

    They are those of the softmax of rows `step.score_row` of logits [H, V], float32, as they are: without biases, penalties
    or temperature. values float32 [P, 1 + n], ids int32 [P, 1 + n]: first those of the token, then of the n <=
    MOST_LOGPROBS most likely ones, ties by ascending id. Where there is none, as for a row that holds a NaN or an infinity
    and past the last token that has any probability: id -1 and minus infinity.
    """

    def __call__(self, logits: Array, sampling: Sampling, step: Step, values: Array, ids: Array) -> None: ...


def at_once(action: Replay) -> None:
    """Run it."""
    action()


class AllReduce(Protocol):
    """x[i] = the sum of x[i] over all ranks of the tensor-parallel group, for i < rows, the same bits on each rank."""

    def __call__(self, rows: Array, x: Array) -> None: ...


class AllGather(Protocol):
    """out[i] = the columns of all ranks' x[i], side by side in order of rank, for i < rows.

    Of N columns of `out` rank r has those from r N // ranks on; `x` is as wide as the widest part on every rank.
    """

    def __call__(self, rows: Array, x: Array, out: Array) -> None: ...


class OnRows(Protocol):
    """act(x[:n]) for some n ≥ rows, known when the step is captured, in its turn among the other operations."""

    def __call__(self, rows: Array, x: Array, act: Callable[[Array], None]) -> None: ...


def on_all_rows(rows: Array, x: Array, act: Callable[[Array], None]) -> None:
    """Where operations run at once, and nothing is known of a step before it comes."""
    act(x)


def nobody_else(*arguments: Array, **named: Array) -> None:
    """A worker alone has nothing to exchange."""


@dataclass(frozen=True, slots=True)
class Ops:
    """One implementation of everything a decoder needs."""

    name: str
    layout: str  # of pages
    weight_layout: str  # of the parts of weights
    formats: tuple[str, ...]  # of weights
    dtypes: tuple[str, ...]  # of activations, best first
    cache_dtypes: tuple[str, ...]  # of K and V
    batch_invariant: bool  # the same row gives the same bits in any batch and any chunking
    needs_zeroed_pages: bool

    # Memory. What a pool holds is not defined before something is written into it.
    new_buffer: Callable[[tuple[int, ...], str], Array]  # (shape, dtype): zeros
    share: Callable[[np.ndarray], Array]  # as these kernels want it: the same memory, or their copy of it
    changed: Callable[[np.ndarray, int, int], None]  # (shared array, first, count): these elements were written here
    copied: Callable[
        [np.ndarray, np.ndarray, np.ndarray], None
    ]  # (shared array, sources, targets): these rows were copied
    fetch: Callable[[np.ndarray, int], Fetched]  # (shared array, count): its first elements, as kernels wrote them
    new_pool: Callable[[Geometry, int], Array]  # (geometry, n usable pages): uint8 [n + 1, page_bytes]. MemoryError
    new_host_pool: Callable[[Geometry, int], Array]  # the same in main memory
    memory: Callable[[], Memory] | None  # of the device; None: main memory
    pack: Callable[[Values, np.ndarray | None, str], Weight]  # ([N, K], float32 bias [N], format)
    unpack: Callable[[str, int, int, Mapping[str, np.ndarray]], Weight]  # (format, N, K, parts as kept). ValueError

    # Running. `capture` is given what computes a step. It calls it once, to see what it does, or once for each size of
    # step, or each time that its result is called.
    capture: Callable[[Step, Callable[[], None]], Replay]

    # What a step is made of.
    prepare: Callable[[Step], None]  # once a step, after `Step` is filled and before the first op
    take_tokens: TakeTokens
    take_rows: TakeRows
    embed: Embed
    linear: Linear
    gated_linear: GatedLinear
    rms_norm: RmsNorm
    rope_and_write: RopeAndWrite
    attention: Attention
    silu_mul: SiluMul
    bias_logits: BiasLogits
    mask_logits: MaskLogits
    sample: Sample
    logprobs: Logprobs

    # Between steps; never captured.
    move_pages: MovePages
    fence: Callable[[], None]  # what is given from now on begins after all moves between the tiers
    swap_seconds: Callable[[], float]  # that moves between the tiers have taken so far, of those that are done
    zero_pages: Callable[[Array, np.ndarray], None]  # (pool, page ids)

    # Python inside a step: an action that is to run at this place each time that the step does. Kernels that record what
    # they are asked for, as those in C, cut their recording here; others run it at once.
    call: Callable[[Replay], None] = at_once
    may_wait: bool = False  # such an action may: what stands before it is done by then, and nothing else waits for it

    # Between the ranks of a tensor-parallel group. A step is cut here where the kernels cannot capture it.
    ranks: int = 1
    all_reduce: AllReduce = nobody_else
    all_gather: AllGather = nobody_else
    on_rows: OnRows = on_all_rows  # how an exchange between devices gets its turn

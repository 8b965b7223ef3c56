"""`Ops` over the C library: each function fills the arguments of one operation."""

from collections.abc import Callable
from ctypes import pointer
from typing import Any

import numpy as np

from octavo_kernels.cpu import library as c
from octavo_kernels.cpu.memory import address, matrix, new_buffer, new_pool
from octavo_kernels.cpu.tape import Team
from octavo_kernels.cpu.weights import pack_weight, packed, unpack
from octavo_kernels.ops import BIAS_WORDS, Array, Geometry, Masks, Ops, Sampling, Step, Weight
from octavo_kernels.prompt import prompt

LAYOUT = "cpu.16"
WEIGHT_LAYOUT = "cpu.panels_of_32"
MULTIPLY_BFLOAT16 = ("amx", "avx512bf16")
"""Variants with instructions for it; the others compute in float32 what they read."""


def open_door(team: Team) -> Ops:
    """All functions of the door, run by a team."""
    return Ops(
        name="cpu",
        layout=LAYOUT,
        weight_layout=WEIGHT_LAYOUT,
        formats=("float32", "bfloat16", "int8", "int4", "int8_groups"),
        dtypes=("bfloat16", "float32") if team.variant in MULTIPLY_BFLOAT16 else ("float32", "bfloat16"),
        cache_dtypes=("bfloat16", "float32", "float16", "int8"),
        batch_invariant=True,
        needs_zeroed_pages=False,
        ranks=1,
        new_buffer=new_buffer,
        share=lambda array: array,
        new_pool=new_pool,
        new_host_pool=new_pool,
        memory=None,
        pack=lambda matrix, bias, format: pack_weight(team, matrix, bias, format),
        unpack=unpack,
        capture=team.capture,
        may_wait=True,
        call=team.call,
        prepare=lambda step: None,
        **on_rows(team),
        **on_sequences(team),
        **on_logits(team),
        zero_pages=lambda pool, ids: zero_pages(team, pool, ids),
        **prompt(lambda *pages: move_pages(team, *pages)),
    )


class Room:
    """Memory that operations use one after the other. Who got an older, smaller one keeps it."""

    def __init__(self) -> None:
        self.memory = new_buffer((0,), "int8")

    def of(self, num_bytes: int) -> Array:
        """At least so many bytes."""
        if self.memory.nbytes < num_bytes:
            self.memory = new_buffer((num_bytes,), "int8")
        return self.memory


def on_rows(team: Team) -> dict[str, Callable[..., Any]]:
    """Operations on rows of activations."""
    room = Room()

    def take_rows(rows: Array, source: Array, index: Array, out: Array) -> None:
        arguments = c.TakeRows(address(rows), matrix(source), address(index), matrix(out))
        team.do("take_rows", arguments, rows, source, index, out)

    def embed(rows: Array, source: Weight, index: Array, out: Array) -> None:
        kept = packed(source)
        arguments = c.Embed(address(rows), pointer(kept), address(index), matrix(out))
        team.do("embed", arguments, rows, source, kept, index, out)

    def rms_norm(rows: Array, x: Array | None, residual: Array, weight: Array, eps: float, out: Array) -> None:
        arguments = c.RmsNorm(address(rows), matrix(x), matrix(residual), address(weight), matrix(out), eps)
        team.do("rms_norm", arguments, rows, x, residual, weight, out)

    def linear(rows: Array, x: Array, weight: Weight, out: Array) -> None:
        scratch = room.of(linear_scratch(x.shape[0], weight))
        kept = packed(weight)
        arguments = c.Linear(address(rows), matrix(x), pointer(kept), matrix(out), address(scratch))
        team.do("linear", arguments, rows, x, weight, kept, out, scratch)

    def gated_linear(rows: Array, x: Array, gate: Weight, up: Weight, out: Array) -> None:
        scratch = room.of(linear_scratch(x.shape[0], gate))
        kept = packed(gate), packed(up)
        arguments = c.GatedLinear(address(rows), matrix(x), *map(pointer, kept), matrix(out), address(scratch))
        team.do("gated_linear", arguments, rows, x, gate, up, kept, out, scratch)

    def silu_mul(rows: Array, gate_up: Array, out: Array) -> None:
        team.do("silu_mul", c.SiluMul(address(rows), matrix(gate_up), matrix(out)), rows, gate_up, out)

    return {
        "take_rows": take_rows,
        "embed": embed,
        "rms_norm": rms_norm,
        "linear": linear,
        "gated_linear": gated_linear,
        "silu_mul": silu_mul,
    }


def on_sequences(team: Team) -> dict[str, Callable[..., Any]]:
    """Operations that read what a step says of its sequences."""

    def take_tokens(sampling: Sampling, step: Step) -> None:
        columns, arrays = sampling_of(sampling), step_of(step)
        team.do("take_tokens", c.TakeTokens(pointer(columns), pointer(arrays)), sampling, columns, arrays, step)

    def rope_and_write(qkv: Array, cos: Array, sin: Array, pool: Array, layer: int, step: Step) -> None:
        geometry, arrays = geometry_of(step.geometry), step_of(step)
        rows = matrix(qkv)
        heads = rows.width // step.geometry.head_dim - 2 * step.geometry.num_kv_heads
        where = (address(cos), address(sin), address(pool), pointer(geometry), pointer(arrays))
        arguments = c.RopeAndWrite(rows, *where, heads, layer)
        team.do("rope_and_write", arguments, qkv, cos, sin, pool, geometry, arrays, step)

    def attention(
        qkv: Array, pool: Array, layer: int, step: Step, out: Array, *, window: int = 0, softcap: float = 0.0
    ) -> None:
        geometry, arrays, rows = geometry_of(step.geometry), step_of(step), matrix(out)
        how = (rows.width // step.geometry.head_dim, layer, window, softcap)
        arguments = c.Attention(matrix(qkv), address(pool), pointer(geometry), pointer(arrays), rows, *how)
        team.do("attention", arguments, qkv, pool, geometry, arrays, step, out)

    return {
        "take_tokens": take_tokens,
        "rope_and_write": rope_and_write,
        "attention": attention,
    }


def on_logits(team: Team) -> dict[str, Callable[..., Any]]:
    """Operations that choose tokens."""

    def bias_logits(logits: Array, sampling: Sampling, step: Step, out: Array) -> None:
        columns, arrays = sampling_of(sampling), step_of(step)
        where = (pointer(columns), pointer(arrays))
        team.do(
            "bias_logits",
            c.BiasLogits(matrix(logits), *where, matrix(out)),
            logits,
            sampling,
            columns,
            arrays,
            step,
            out,
        )

    def mask_logits(logits: Array, masks: Masks, step: Step) -> None:
        where = (address(masks.rows), address(masks.row), address(masks.bits))
        team.do("mask_logits", c.MaskLogits(matrix(logits), *where, int(masks.bits.shape[1])), logits, masks)

    def sample(logits: Array, sampling: Sampling, step: Step, out: Array) -> None:
        columns, arrays = sampling_of(sampling), step_of(step)
        check_vocabulary(logits)
        arguments = c.Sample(matrix(logits), pointer(columns), pointer(arrays), address(out))
        team.do("sample", arguments, logits, sampling, columns, arrays, step, out)

    def logprobs(logits: Array, sampling: Sampling, step: Step, values: Array, ids: Array) -> None:
        columns, arrays = sampling_of(sampling), step_of(step)
        check_vocabulary(logits)
        where = (pointer(columns), pointer(arrays), address(values), address(ids))
        arguments = c.Logprobs(matrix(logits), *where, values.shape[1] - 1)
        team.do("logprobs", arguments, logits, sampling, columns, arrays, step, values, ids)

    return {"bias_logits": bias_logits, "mask_logits": mask_logits, "sample": sample, "logprobs": logprobs}


def check_vocabulary(logits: Array) -> None:
    """Raises ValueError if a row is too long."""
    if logits.shape[1] > c.MAX_VOCABULARY:
        raise ValueError(f"a vocabulary of {logits.shape[1]} tokens; these kernels sample from {c.MAX_VOCABULARY}")


def move_pages(team: Team, source: Array, source_ids: np.ndarray, target: Array, target_ids: np.ndarray) -> None:
    page_bytes, same = row_bytes(source), address(source) == address(target)
    staging = np.empty(len(source_ids) * page_bytes, np.uint8) if same else None
    source_ids, target_ids = (np.ascontiguousarray(ids, np.int64) for ids in (source_ids, target_ids))
    pages = (address(source), address(source_ids), address(target), address(target_ids))
    staged = None if staging is None else address(staging)
    team.do("move_pages", c.MovePages(*pages, staged, len(source_ids), page_bytes))


def zero_pages(team: Team, pool: Array, ids: np.ndarray) -> None:
    ids = np.ascontiguousarray(ids, np.int64)
    team.do("zero_pages", c.ZeroPages(address(pool), address(ids), len(ids), row_bytes(pool)))


def row_bytes(pool: Array) -> int:
    """Of one page."""
    return int(pool.nbytes) // int(pool.shape[0])


def linear_scratch(rows: int, weight: Weight) -> int:
    """Bytes for all rows of x, padded and with their scales; see octavo_linear."""
    padded = -(-weight.inputs // 64) * 64
    return rows * (padded * 4 + padded // 32 * 8)


def geometry_of(geometry: Geometry) -> c.PageGeometry:
    """For C."""
    sizes = (geometry.page_size, geometry.num_layers, geometry.num_kv_heads, geometry.head_dim)
    return c.PageGeometry(geometry.block_bytes, *sizes, c.TYPES[geometry.dtype])


def step_of(step: Step) -> c.StepArrays:
    """For C. The step must outlive it."""
    table: Array = step.table
    first = (address(getattr(step, name)) for name in c.STEP_ARRAYS)
    last = (address(getattr(step, name)) for name in c.STEP_TAIL)
    return c.StepArrays(*first, int(table.shape[1]) if len(table.shape) > 1 else 0, *last)


def sampling_of(sampling: Sampling) -> c.SamplingArrays:
    """For C. The columns must outlive it."""
    columns = (address(getattr(sampling, name)) for name in c.SAMPLING_ARRAYS)
    return c.SamplingArrays(*columns, int(sampling.history.shape[1]), int(sampling.biases.shape[1]) // BIAS_WORDS)

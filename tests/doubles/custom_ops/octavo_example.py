"""An example of a package that replaces attention, or positions. It lies here as pip would have installed it.

Arrays are numpy's or torch's, as the kernels make them; in float32 on a CPU both are the same memory to numpy.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from octavo_kernels.ops import Array, Ops, Step


def plain(ops: Ops) -> Ops:
    """Softmax attention row by row, over pages of an order of its own: [K | V][token][dimension] for each head."""
    return replace(
        ops,
        layout="example.plain",
        dtypes=("float32",),
        cache_dtypes=("float32",),
        batch_invariant=False,
        rope_and_write=rope_and_write,
        attention=attention,
    )


def without_positions(ops: Ops) -> Ops:
    """Every token is where the first one is: angles of 0."""

    def write(qkv: Array, cos: Array, sin: Array, pool: Array, layer: int, step: Step) -> None:
        ops.rope_and_write(qkv, cos * 0 + 1, sin * 0, pool, layer, step)

    return replace(ops, rope_and_write=write)


def pages_of(pool: Array, step: Step) -> np.ndarray:
    """The same memory as float32 [page, layer, kv_head, K or V, token, dimension]."""
    g = step.geometry
    shape = (-1, g.num_layers, g.num_kv_heads, 2, g.page_size, g.head_dim)
    return np.asarray(pool).view(np.float32).reshape(shape)


def rope_and_write(qkv: Array, cos: Array, sin: Array, pool: Array, layer: int, step: Step) -> None:
    """See ops.RopeAndWrite."""
    g, tokens = step.geometry, step.num_tokens
    heads = np.asarray(qkv)[:tokens].reshape(tokens, -1, g.head_dim)  # the same memory
    position = np.asarray(step.position)[:tokens]
    c, s = (np.asarray(each)[position][:, None] for each in (cos, sin))
    turned = heads[:, : -g.num_kv_heads]  # queries and keys
    first, second = turned[..., : g.head_dim // 2].copy(), turned[..., g.head_dim // 2 :].copy()
    turned[..., : g.head_dim // 2] = first * c - second * s
    turned[..., g.head_dim // 2 :] = second * c + first * s
    index = np.asarray(step.kv_index)[:tokens]
    page, token = np.divmod(index[index >= 0], g.page_size)
    pages, kept = pages_of(pool, step), heads[index >= 0]
    pages[page, layer, :, 0, token] = kept[:, -2 * g.num_kv_heads : -g.num_kv_heads]
    pages[page, layer, :, 1, token] = kept[:, -g.num_kv_heads :]


def attention(
    qkv: Array, pool: Array, layer: int, step: Step, out: Array, *, window: int = 0, softcap: float = 0.0
) -> None:
    """See ops.Attention."""
    g = step.geometry
    width = np.asarray(out).shape[1]
    for row in range(step.num_rows):
        slot, length = int(step.row_slot[row]), int(step.row_length[row])
        if slot < 0:
            continue
        start, end = int(step.row_start[row]), int(step.row_start[row + 1])
        ids = np.asarray(step.table)[slot, : -(-length // g.page_size)]
        kv = pages_of(pool, step)[ids, layer].transpose(1, 2, 0, 3, 4).reshape(g.num_kv_heads, 2, -1, g.head_dim)
        queries = np.asarray(qkv)[start:end, :width].reshape(end - start, g.num_kv_heads, -1, g.head_dim)
        own = np.arange(length - (end - start), length)
        result = attend(queries, kv[:, 0, :length], kv[:, 1, :length], own, window or length, softcap)
        np.asarray(out)[start:end] = result.reshape(end - start, -1)


def attend(queries: Any, keys: Any, values: Any, own: Any, window: int, softcap: float) -> np.ndarray:
    """[T, KV, G, D] of queries [T, KV, G, D] at positions `own` [T], keys and values [KV, length, D]."""
    scores = np.einsum("qkgd,ktd->qkgt", queries, keys) / np.sqrt(queries.shape[-1])
    if softcap:
        scores = np.tanh(scores / softcap) * softcap
    key = np.arange(keys.shape[1])
    seen = (key <= own[:, None]) & (key > own[:, None] - window)
    scores = np.where(seen[:, None, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(np.einsum("qkgt,ktd->qkgd", weights / weights.sum(-1, keepdims=True), values))

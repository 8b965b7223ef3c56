"""Attention of somebody's own, written as a class over plain tensors, before it becomes a kernel.

    class MyAttention:
        def forward(self, query, key, value, position): ...

`forward` sees one row of a step at a time, in float32: `query` [T, H, D], `key` and `value` [length, KV, D] of positions
0 to length - 1, `position` int64 [T] of the queries. RoPE has been applied. It returns [T, H, D]. A model with sliding
windows or soft-capped logits hands it `window=` and `softcap=` as well. Rows run one after the other, in Python: this
is for trying an idea, on CPUs.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from octavo_kernels.ops import Array, Ops, Step
from octavo_kernels.reference import pages

DTYPES = ("float32", "bfloat16")

Forward = Callable[..., Tensor]


def with_attention(ops: Ops, forward: Forward) -> Ops:
    """These kernels with pages in the reference's order and `forward` in the place of attention."""
    return replace(
        ops,
        layout=pages.LAYOUT,
        dtypes=tuple(dtype for dtype in ops.dtypes if dtype in DTYPES),
        cache_dtypes=tuple(dtype for dtype in ops.cache_dtypes if dtype in DTYPES),
        batch_invariant=False,
        rope_and_write=rope_and_write,
        attention=attention(forward),
    )


def rope_and_write(qkv: Array, cos: Array, sin: Array, pool: Array, layer: int, step: Step) -> None:
    """See ops.RopeAndWrite."""
    pages.rope_and_write(tensor(qkv), tensor(cos), tensor(sin), tensor(pool), layer, step)


def attention(forward: Forward) -> Callable[..., None]:
    """See ops.Attention."""

    def run(
        qkv: Array, pool: Array, layer: int, step: Step, out: Array, *, window: int = 0, softcap: float = 0.0
    ) -> None:
        asked: dict[str, Any] = {"window": window, "softcap": softcap}
        named = {name: value for name, value in asked.items() if value}
        geometry, result = step.geometry, tensor(out)
        queries = tensor(qkv)[:, : result.shape[1]].unflatten(1, (-1, geometry.head_dim))
        kept = pages.blocks(tensor(pool), geometry)[:, layer]
        for row in range(step.num_rows):
            slot, length = int(step.row_slot[row]), int(step.row_length[row])
            if slot < 0:
                continue
            start, end = int(step.row_start[row]), int(step.row_start[row + 1])
            key, value = read(kept, tensor(step.table)[slot], length)
            position = torch.arange(length - (end - start), length)
            query = queries[start:end].float()
            with torch.no_grad():
                answer = forward(query, key, value, position, **named)
            check(answer, query)
            result[start:end] = answer.flatten(1).to(result.dtype)

    return run


def read(kept: Tensor, table: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """K and V of a row, each float32 [length, KV, D], from [page, KV, K or V, token, D]."""
    page_size = kept.shape[3]
    own = kept[table[: -(-length // page_size)].long()]
    both = own.permute(2, 0, 3, 1, 4).flatten(1, 2)[:, :length].float()
    return both[0], both[1]


def check(answer: object, query: Tensor) -> None:
    """Raises ValueError for anything but [T, H, D]."""
    if not isinstance(answer, Tensor) or answer.shape != query.shape:
        shape = list(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
        raise ValueError(f"attention of somebody's own gave {shape} instead of {list(query.shape)}")


def tensor(array: Array) -> Tensor:
    """The same memory. Elements of 16 bits are bfloat16 in numpy."""
    if isinstance(array, Tensor):
        return array
    made = torch.from_numpy(array)
    return made.view(torch.bfloat16) if array.dtype == np.uint16 else made

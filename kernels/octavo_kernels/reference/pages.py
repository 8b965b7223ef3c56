"""Writing K and V into pages, and moving pages.

A head's block is K as [token][dimension], then V as [token][dimension].
"""

import numpy as np
import torch
from torch import Tensor

from octavo_kernels.ops import Geometry, Step
from octavo_kernels.reference.memory import DTYPES

LAYOUT = "ref.token_dim"


def rope_and_write(qkv: Tensor, cos: Tensor, sin: Tensor, pool: Tensor, layer: int, step: Step) -> None:
    """See ops.RopeAndWrite."""
    n, kv = step.num_tokens, step.geometry.num_kv_heads
    heads = qkv[:n].unflatten(1, (-1, step.geometry.head_dim))
    position = step.position[:n]
    cos, sin = cos[position].unsqueeze(1), sin[position].unsqueeze(1)
    q, k, v = heads[:, : -2 * kv], heads[:, -2 * kv : -kv], heads[:, -kv:]
    q.copy_(rotate(q, cos, sin))
    write(rotate(k, cos, sin), v, pool, layer, step)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[T, heads, D] in float32, each pair (i, i + D/2) turned by its angle."""
    low, high = x.float().chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


def write(k: Tensor, v: Tensor, pool: Tensor, layer: int, step: Step) -> None:
    """K and V [T, KV, D] of each token with a `kv_index` that is not negative."""
    index = step.kv_index[: k.shape[0]]
    if bool((index < 0).any()):
        there = index >= 0
        index, k, v = index[there], k[there], v[there]
    page, offset = index // step.geometry.page_size, index % step.geometry.page_size
    heads = blocks(pool, step.geometry)[:, layer]
    heads[page, :, 0, offset] = k.to(heads.dtype)
    heads[page, :, 1, offset] = v.to(heads.dtype)


def blocks(pool: Tensor, geometry: Geometry) -> Tensor:
    """The pool as [page, layer, kv_head, K or V, token, dimension]."""
    shape = (geometry.num_layers, geometry.num_kv_heads, 2, geometry.page_size, geometry.head_dim)
    return pool.view(DTYPES[geometry.dtype]).view(-1, *shape)


def move_pages(source: Tensor, source_ids: np.ndarray, target: Tensor, target_ids: np.ndarray) -> None:
    """See ops.MovePages. Between pools, page by page: a page is one long copy, and a buffer for all of them costs more."""
    if source.data_ptr() == target.data_ptr():
        target.index_copy_(0, torch.tensor(target_ids), source.index_select(0, torch.tensor(source_ids)))
        return
    for source_id, target_id in zip(source_ids.tolist(), target_ids.tolist(), strict=True):
        target[target_id].copy_(source[source_id])


def zero_pages(pool: Tensor, ids: np.ndarray) -> None:
    """Set the pages to zero."""
    pool.index_fill_(0, torch.tensor(ids), 0)

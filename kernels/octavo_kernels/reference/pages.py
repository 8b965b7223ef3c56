"""Writing K and V into pages, and moving pages.

A head's block is K as [token][dimension], then V as [token][dimension].
"""

import torch
from torch import Tensor

from octavo_kernels.ops import Geometry, Step

LAYOUT = "ref.token_dim"


def rope_and_write(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, pool: Tensor, layer: int, step: Step
) -> None:
    """See ops.RopeAndWrite."""
    position = step.position[: q.shape[0]].clamp(min=0)
    cos, sin = cos[position].unsqueeze(1), sin[position].unsqueeze(1)
    rotated = rotate(k, cos, sin)
    q.copy_(rotate(q, cos, sin))
    write(rotated, v, pool, layer, step)


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
    heads[page, :, 0, offset] = k.to(pool.dtype)
    heads[page, :, 1, offset] = v.to(pool.dtype)


def blocks(pool: Tensor, geometry: Geometry) -> Tensor:
    """The pool as [page, layer, kv_head, K or V, token, dimension]."""
    return pool.view(*pool.shape[:3], 2, geometry.page_size, geometry.head_dim)


def move_pages(source: Tensor, source_ids: Tensor, target: Tensor, target_ids: Tensor) -> None:
    """See ops.MovePages. Between pools, page by page: a page is one long copy, and a buffer for all of them costs more."""
    if source.data_ptr() == target.data_ptr():
        target.index_copy_(0, target_ids.long(), source.index_select(0, source_ids))
        return
    for source_id, target_id in zip(source_ids.tolist(), target_ids.tolist(), strict=True):
        target[target_id].copy_(source[source_id])


def zero_pages(pool: Tensor, ids: Tensor) -> None:
    """Set the pages to zero."""
    pool.index_fill_(0, ids.long(), 0)

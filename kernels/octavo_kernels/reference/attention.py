"""Paged attention with online softmax over blocks of pages.

Keys and values are read one block of whole pages at a time (128 positions, aligned to absolute positions), for all
rows of a group at once. No sequence's K or V is ever contiguous beyond such a block.
"""

import torch
from torch import Tensor

from octavo_kernels.ops import Step
from octavo_kernels.reference.groups import Block, Group, Workspace
from octavo_kernels.reference.memory import DTYPES


def attention(
    qkv: Tensor, pool: Tensor, layer: int, step: Step, out: Tensor, *, window: int = 0, softcap: float = 0.0
) -> None:
    """See ops.Attention."""
    work, geometry = step.workspace, step.geometry
    assert isinstance(work, Workspace), "prepare(step) comes before attention"
    q = qkv[:, : out.shape[1]].unflatten(1, (-1, geometry.head_dim))
    halves = pool.view(DTYPES[geometry.dtype]).view(-1, geometry.page_size * geometry.head_dim)
    for group in work.groups:
        result = attend(group, q, halves, layer, geometry.num_kv_heads, work, window, softcap)
        out[group.token[group.is_real]] = result[group.is_real].flatten(1).to(out.dtype)


def attend(
    group: Group, q: Tensor, halves: Tensor, layer: int, kv: int, work: Workspace, window: int, softcap: float
) -> Tensor:
    """[rows, queries, H, D] float32."""
    (rows, width), (_, heads, dim) = group.token.shape, q.shape
    shared = heads // kv
    # [rows, KV, shared * queries, D]: query heads that share a KV head are further queries of it.
    queries = q[group.token].float().view(rows, width, kv, shared, dim).permute(0, 2, 3, 1, 4)
    queries = (queries * dim**-0.5).reshape(rows, kv, shared * width, dim)
    top = queries.new_full((rows, kv, shared * width, 1), -torch.inf)
    total = torch.zeros_like(top)
    mixed = torch.zeros_like(queries)
    for block in group.blocks:
        n = block.num_rows
        keys, values = read(block, halves, layer, kv, dim, work)
        scores = queries[:n] @ keys.transpose(-1, -2)
        if softcap:
            scores = (scores / softcap).tanh_() * softcap
        hide(scores, block.masked, width)
        if window:
            past = out_of_window(block, group.position[:n], window)
            hide(scores, past, width)
            values.masked_fill_(past.all(3).transpose(2, 3), 0)
        fold(scores, values, top[:n], total[:n], mixed[:n])
    result = (mixed / total).view(rows, kv, shared, width, dim)
    return result.permute(0, 3, 1, 2, 4).reshape(rows, width, heads, dim)


def read(block: Block, halves: Tensor, layer: int, kv: int, dim: int, work: Workspace) -> tuple[Tensor, Tensor]:
    """K and V of a block, each float32 [rows, KV, positions, D]. Positions that hold no token have a V of 0."""
    index = (block.index + layer * kv * 2).view(-1)
    keys, values = work.keys[: index.numel()], work.values[: index.numel()]
    torch.index_select(halves, 0, index, out=keys)
    torch.index_select(halves, 0, index + 1, out=values)
    shape = (block.num_rows, kv, -1, dim)
    values = values.view(shape).float()
    if block.dead_values is not None:
        values.masked_fill_(block.dead_values, 0)  # a weight of 0 does not silence a NaN
    return keys.view(shape).float(), values


def hide(scores: Tensor, masked: Tensor | None, width: int) -> None:
    """Set scores [rows, KV, shared * queries, positions] to -inf where `masked` [rows, 1, 1, queries, positions] says so."""
    if masked is not None:
        rows, kv, _, positions = scores.shape
        scores.view(rows, kv, -1, width, positions).masked_fill_(masked, -torch.inf)


def out_of_window(block: Block, position: Tensor, window: int) -> Tensor:
    """[rows, 1, 1, queries, positions]: keys that lie `window` or more before a query."""
    key = torch.arange(block.start, block.start + block.num_positions, device=position.device)
    return (key <= position[:, :, None] - window)[:, None, None]


def fold(scores: Tensor, values: Tensor, top: Tensor, total: Tensor, mixed: Tensor) -> None:
    """Fold one block into the running maximum `top`, the sum `total` and the weighted values `mixed`, in place.

    A query that has seen nothing yet has a maximum of -inf; it is taken for 0, so that its weights are 0 and not NaN.
    """
    new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
    base = new_top.masked_fill(new_top == -torch.inf, 0)
    weights = scores.sub_(base).exp_()
    keep = (top - base).exp_()
    total.mul_(keep).add_(weights.sum(-1, keepdim=True))
    mixed.mul_(keep).add_(weights @ values)
    top.copy_(new_top)

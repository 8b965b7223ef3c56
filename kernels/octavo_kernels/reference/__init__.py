"""Kernels in plain torch: the truth that the fast ones are compared with."""

from functools import partial

from octavo_kernels.ops import Ops
from octavo_kernels.reference import attention, dense, groups, pages, sampling

TILE = 16  # rows of every operation in the invariant mode


def build(invariant: bool) -> Ops:
    """The reference kernels. `invariant`: float32 only, slow, bits independent of batch and chunking.

    The invariant mode runs each operation on tiles of a fixed shape, padded with zeros, so that neither the library's
    choice of a code path nor its split over threads can depend on what else is in the batch.
    """
    return Ops(
        name="reference",
        layout=pages.LAYOUT,
        batch_invariant=invariant,
        needs_zeroed_pages=False,
        prepare=partial(groups.prepare, tile=TILE if invariant else None),
        take_rows=dense.take_rows,
        linear=dense.tiled_linear(TILE) if invariant else dense.linear,
        rms_norm=dense.tiled_rms_norm(TILE) if invariant else dense.rms_norm,
        rope_and_write=pages.rope_and_write,
        attention=attention.attention,
        silu_mul=dense.tiled_silu_mul(TILE) if invariant else dense.silu_mul,
        move_pages=pages.move_pages,
        zero_pages=pages.zero_pages,
        sample=sampling.sample_one_by_one if invariant else sampling.sample,
    )

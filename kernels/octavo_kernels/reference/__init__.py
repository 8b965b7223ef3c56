"""Kernels in plain torch: the truth that the fast ones are compared with."""

from functools import partial

import torch

from octavo_kernels.ops import Ops
from octavo_kernels.prompt import prompt
from octavo_kernels.reference import attention, bias, dense, groups, logprobs, masks, memory, pages, sampling

TILE = 16  # rows of every operation in the invariant mode


def build(invariant: bool, threads: int) -> Ops:
    """The reference kernels; `threads` holds for all of torch. `invariant`: float32 only, slow, bits independent of batch
    and chunking.

    The invariant mode runs each operation on tiles of a fixed shape, padded with zeros, so that neither the library's
    choice of a code path nor its split over threads can depend on what else is in the batch.
    """
    torch.set_num_threads(threads)
    return Ops(
        name="reference",
        layout=pages.LAYOUT,
        weight_layout=memory.WEIGHT_LAYOUT,
        formats=memory.FORMATS,
        dtypes=("float32",) if invariant else ("float32", "bfloat16", "float16"),
        cache_dtypes=("float32", "bfloat16", "float16"),
        batch_invariant=invariant,
        needs_zeroed_pages=False,
        new_buffer=memory.new_buffer,
        share=torch.from_numpy,
        new_pool=memory.new_pool,
        new_host_pool=memory.new_pool,
        memory=None,
        pack=memory.pack,
        unpack=memory.unpack,
        capture=memory.capture,
        may_wait=True,
        prepare=partial(groups.prepare, tile=TILE if invariant else None),
        take_tokens=dense.take_tokens,
        take_rows=dense.take_rows,
        embed=dense.embed,
        linear=dense.tiled_linear(TILE) if invariant else dense.linear,
        gated_linear=dense.tiled_gated_linear(TILE) if invariant else dense.gated_linear,
        rms_norm=dense.tiled_rms_norm(TILE) if invariant else dense.rms_norm,
        rope_and_write=pages.rope_and_write,
        attention=attention.attention,
        silu_mul=dense.tiled_silu_mul(TILE) if invariant else dense.silu_mul,
        bias_logits=bias.bias_logits,
        sample=sampling.sample_one_by_one if invariant else sampling.sample,
        mask_logits=masks.mask_logits,
        logprobs=logprobs.logprobs,
        zero_pages=pages.zero_pages,
        **prompt(pages.move_pages),
    )

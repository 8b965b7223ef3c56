"""`Ops` over Triton kernels."""

from functools import partial

from octavo_kernels.ops import Ops
from octavo_kernels.reference import attention, groups, pages, sampling
from octavo_kernels.triton import memory, weights
from octavo_kernels.triton.dense import Dense
from octavo_kernels.triton.device import Device
from octavo_kernels.triton.graphs import capture
from octavo_kernels.triton.launcher import Launcher
from octavo_kernels.triton.linear import Linear
from octavo_kernels.triton.mirror import Mirror


def open_door(device: Device, *, invariant: bool = False) -> Ops:
    """All functions of the door, on one device. `invariant`: a row's bits are the same in any launch."""
    launcher, mirror = Launcher(device), Mirror(device)
    dense, linear = Dense(launcher), Linear(launcher, invariant=invariant)
    return Ops(
        name="triton",
        layout=pages.LAYOUT,
        weight_layout=weights.WEIGHT_LAYOUT,
        formats=weights.FORMATS,
        dtypes=("bfloat16", "float16", "float32"),
        cache_dtypes=("bfloat16", "float16", "float32"),
        batch_invariant=False,
        needs_zeroed_pages=False,
        new_buffer=partial(memory.new_buffer, device),
        share=mirror.share,
        changed=mirror.changed,
        new_pool=partial(memory.new_pool, device),
        pack=partial(weights.pack, device),
        unpack=partial(weights.unpack, device),
        capture=partial(capture, launcher, mirror),
        prepare=partial(groups.prepare, tile=None),
        take_tokens=dense.take_tokens,
        take_rows=dense.take_rows,
        embed=linear.embed,
        linear=linear.linear,
        gated_linear=linear.gated_linear,
        rms_norm=dense.rms_norm,
        rope_and_write=pages.rope_and_write,
        attention=attention.attention,
        silu_mul=dense.silu_mul,
        sample=sampling.sample,
        move_pages=pages.move_pages,
        zero_pages=pages.zero_pages,
    )

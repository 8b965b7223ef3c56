"""`Ops` over Triton kernels."""

from functools import partial
from typing import Any

from octavo_kernels.ops import Ops
from octavo_kernels.triton import cache, memory, weights
from octavo_kernels.triton.attention import Attention
from octavo_kernels.triton.dense import Dense
from octavo_kernels.triton.device import Device
from octavo_kernels.triton.graphs import capture
from octavo_kernels.triton.launcher import Launcher
from octavo_kernels.triton.linear import Linear
from octavo_kernels.triton.masks import Masks
from octavo_kernels.triton.mirror import Mirror
from octavo_kernels.triton.moves import Moves
from octavo_kernels.triton.pages import Pages
from octavo_kernels.triton.rope import Rope
from octavo_kernels.triton.sampling import Sampler


def open_door(device: Device, *, invariant: bool = False) -> Ops:
    """All functions of the door, on one device. `invariant`: a row's bits are the same in any batch and any chunking."""
    launcher, mirror = Launcher(device), Mirror(device)
    dense, linear, sampler = Dense(launcher), Linear(launcher, invariant=invariant), Sampler(launcher)
    attention = Attention(launcher, is_invariant=invariant)
    return Ops(
        name="triton",
        layout=cache.LAYOUT,
        weight_layout=weights.WEIGHT_LAYOUT,
        formats=weights.FORMATS,
        dtypes=("bfloat16", "float16", "float32"),
        cache_dtypes=cache.CACHE_DTYPES,
        batch_invariant=invariant,
        needs_zeroed_pages=False,
        share=mirror.share,
        changed=mirror.changed,
        copied=mirror.copied,
        fetch=mirror.fetch,
        memory=device.memory,
        **memory.functions(device),
        pack=partial(weights.pack, device),
        unpack=partial(weights.unpack, device),
        capture=partial(capture, launcher, mirror),
        call=launcher.do,
        on_rows=lambda rows, x, act: launcher.do(lambda: act(x[: launcher.most(rows, len(x))])),
        prepare=attention.prepare,
        take_tokens=dense.take_tokens,
        take_rows=dense.take_rows,
        embed=linear.embed,
        linear=linear.linear,
        gated_linear=linear.gated_linear,
        rms_norm=dense.rms_norm,
        rope_and_write=Rope(launcher).rope_and_write,
        attention=attention.attention,
        silu_mul=dense.silu_mul,
        bias_logits=sampler.bias_logits,
        mask_logits=Masks(launcher).mask_logits,
        sample=sampler.sample,
        logprobs=sampler.logprobs,
        **between_steps(device),
    )


def between_steps(device: Device) -> dict[str, Any]:
    """What moves pages."""
    on_device = Pages(device)
    moves = Moves(device, on_device.move)
    return {
        "move_pages": moves.move_pages,
        "fence": moves.fence,
        "swap_seconds": moves.swap_seconds,
        "zero_pages": partial(on_device.zero, device.main),
    }

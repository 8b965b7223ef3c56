"""RoPE, and K and V on their way into pages."""

from dataclasses import dataclass

import triton
from torch import Tensor

from octavo_kernels.ops import Step
from octavo_kernels.triton import cache
from octavo_kernels.triton.launcher import Launcher
from octavo_kernels.triton.source.rope import rope_and_write_kernel

MOST = {"int8": 127.0, "fp8": 448.0}
"""Largest magnitude of bytes in a cache."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the kernel is compiled for."""

    heads: int
    kv_heads: int
    head_dim: int
    page_size: int
    block_elements: int
    block_t: int  # tokens of one program
    format: str
    most: float  # 0: the cache has floats

    @property
    def padded_half(self) -> int:
        """A power of two."""
        return 1 << (self.head_dim // 2 - 1).bit_length()


class Rope:
    """The function of the door."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher

    def rope_and_write(self, qkv: Tensor, cos: Tensor, sin: Tensor, pool: Tensor, layer: int, step: Step) -> None:
        geometry = step.geometry
        kv, format = geometry.num_kv_heads, geometry.dtype
        heads = qkv.shape[1] // geometry.head_dim - 2 * kv
        tokens = self.launcher.most(step.tokens, len(step.position))
        block_t = 8 if tokens <= 256 else 32
        shape = Shape(
            heads=heads,
            kv_heads=kv,
            head_dim=geometry.head_dim,
            page_size=geometry.page_size,
            block_elements=cache.block_elements(geometry),
            block_t=block_t,
            format=format,
            most=MOST.get(format, 0.0),
        )
        elements, scales = cache.views(pool, geometry, "fp8_bits" if format == "fp8" else format)
        self.launcher(
            rope_and_write_kernel,
            (triton.cdiv(tokens, block_t), heads + kv),
            self.launcher.count(step.tokens),
            step.position,
            step.kv_index,
            qkv,
            cos,
            sin,
            elements,
            scales,
            qkv.stride(0),
            cos.stride(0),
            elements.stride(0),
            layer * kv * shape.block_elements,
            SHAPE=shape,
            num_warps=4,
        )

"""How K and V lie in pages: see `source.blocks`."""

import torch
from torch import Tensor

from octavo_kernels.ops import ITEM_BYTES, SCALED, Geometry
from octavo_kernels.triton.target import Target
from octavo_kernels.triton.tensors import DTYPES

LAYOUT = "triton.token_dim"
CACHE_DTYPES = ("bfloat16", "float16", "float32", "int8", "fp8")


def format_of(geometry: Geometry, target: Target) -> str:
    """ "plain" floats, "int8", "fp8", or "fp8_bits" where a GPU knows no fp8."""
    if geometry.dtype not in SCALED:
        return "plain"
    return geometry.dtype if geometry.dtype == "int8" or target.knows_fp8 else "fp8_bits"


def block_elements(geometry: Geometry) -> int:
    """Of one head in a page, with its scales."""
    return geometry.block_bytes // ITEM_BYTES[geometry.dtype]


def views(pool: Tensor, geometry: Geometry, format: str) -> tuple[Tensor, Tensor]:
    """A pool as elements [page, element] and, of a cache of bytes, as bfloat16 scales [page, scale]."""
    elements = pool.view(torch.uint8 if format == "fp8_bits" else DTYPES[geometry.dtype])
    return elements, pool.view(torch.bfloat16) if geometry.dtype in SCALED else elements

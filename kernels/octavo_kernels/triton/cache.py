"""How K and V lie in pages: see `source.blocks`."""

import torch
from torch import Tensor

from octavo_kernels.ops import ITEM_BYTES, SCALED, Geometry
from octavo_kernels.triton.tensors import DTYPES

LAYOUT = "triton.token_dim"
CACHE_DTYPES = ("bfloat16", "float16", "float32", "int8", "fp8")
FIRST_WITH_FP8 = (8, 9)
"""Compute capability of the first GPUs that convert from fp8."""


def format_of(geometry: Geometry, place: torch.device) -> str:
    """ "plain" floats, "int8", "fp8", or "fp8_bits" where a GPU knows no fp8."""
    if geometry.dtype not in SCALED:
        return "plain"
    return geometry.dtype if geometry.dtype == "int8" or knows_fp8(place) else "fp8_bits"


def knows_fp8(place: torch.device) -> bool:
    """Whether kernels may have it as a type."""
    if place.type != "cuda" or torch.version.hip is not None:
        return True
    return torch.cuda.get_device_capability(place) >= FIRST_WITH_FP8


def block_elements(geometry: Geometry) -> int:
    """Of one head in a page, with its scales."""
    return geometry.block_bytes // ITEM_BYTES[geometry.dtype]


def views(pool: Tensor, geometry: Geometry, format: str) -> tuple[Tensor, Tensor]:
    """A pool as elements [page, element] and, of a cache of bytes, as bfloat16 scales [page, scale]."""
    elements = pool.view(torch.uint8 if format == "fp8_bits" else DTYPES[geometry.dtype])
    return elements, pool.view(torch.bfloat16) if geometry.dtype in SCALED else elements

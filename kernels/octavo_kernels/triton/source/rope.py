"""RoPE fused with writing K and V into pages. `SHAPE` is a `rope.Shape`."""

import triton
import triton.language as tl

from octavo_kernels.triton.source.blocks import as_bytes, scale_of


@triton.jit
def read_halves(first, is_one, SHAPE: tl.constexpr):
    """Both halves of a head, float32 [tokens, D/2], of tokens whose heads begin at `first` [tokens]."""
    low = first[:, None] + tl.arange(0, SHAPE.padded_half)[None, :]
    high = low + SHAPE.head_dim // 2
    return tl.load(low, is_one, other=0.0).to(tl.float32), tl.load(high, is_one, other=0.0).to(tl.float32)


@triton.jit
def write_halves(first, low, high, is_one, SHAPE: tl.constexpr):
    """Both halves of a head to where it begins, for each token."""
    place = first[:, None] + tl.arange(0, SHAPE.padded_half)[None, :]
    tl.store(place, low.to(first.dtype.element_ty), is_one)
    tl.store(place + SHAPE.head_dim // 2, high.to(first.dtype.element_ty), is_one)


@triton.jit
def put(first, scale_place, low, high, is_token, is_one, SHAPE: tl.constexpr):
    """K or V as the cache has them."""
    if SHAPE.most > 0:
        scale = scale_of(low, high, SHAPE.most)
        tl.store(scale_place, scale.to(tl.bfloat16), is_token)
        write_halves(first, as_bytes(low, scale, SHAPE), as_bytes(high, scale, SHAPE), is_one, SHAPE)
    else:
        write_halves(first, low, high, is_one, SHAPE)


@triton.jit
def rope_and_write_kernel(
    num_tokens,
    position,
    kv_index,
    qkv,
    cos,
    sin,
    pool,
    scales,
    qkv_stride: tl.int64,
    angle_stride: tl.int64,
    page_stride: tl.int64,
    layer_offset: tl.int64,
    SHAPE: tl.constexpr,
):
    """Some tokens of one head: of queries, or of K and V. Offsets into the pool are in elements of the cache."""
    token, head = tl.program_id(0) * SHAPE.block_t + tl.arange(0, SHAPE.block_t), tl.program_id(1)
    is_token = token < tl.load(num_tokens)
    is_half = (tl.arange(0, SHAPE.padded_half) < SHAPE.head_dim // 2)[None, :]
    is_one = is_token[:, None] & is_half
    angle = tl.load(position + token, is_token, other=0).to(tl.int64) * angle_stride
    angle = angle[:, None] + tl.arange(0, SHAPE.padded_half)[None, :]
    c, s = tl.load(cos + angle, is_one, other=0.0), tl.load(sin + angle, is_one, other=0.0)
    row = qkv + token.to(tl.int64) * qkv_stride
    turned = row + head * SHAPE.head_dim
    low, high = read_halves(turned, is_one, SHAPE)
    low, high = low * c - high * s, high * c + low * s
    if head < SHAPE.heads:
        write_halves(turned, low, high, is_one, SHAPE)
    else:
        index = tl.load(kv_index + token, is_token, other=-1)
        is_token = index >= 0
        is_one = is_token[:, None] & is_half
        block = index // SHAPE.page_size * page_stride + layer_offset + (head - SHAPE.heads) * SHAPE.block_elements
        scale = scales + block // 2 + SHAPE.page_size * SHAPE.head_dim + index % SHAPE.page_size
        first = pool + block + index % SHAPE.page_size * SHAPE.head_dim
        put(first, scale, low, high, is_token, is_one, SHAPE)
        low, high = read_halves(turned + SHAPE.kv_heads * SHAPE.head_dim, is_one, SHAPE)
        first += SHAPE.page_size * SHAPE.head_dim
        put(first, scale + SHAPE.page_size, low, high, is_token, is_one, SHAPE)

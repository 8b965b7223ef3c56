"""Moving whole pages. A page lies in one piece over all layers, so that a program copies BLOCK words of it as they lie.

Words are of 8, 4 or 2 bytes, whatever divides a page.
"""

import triton
import triton.language as tl


@triton.jit
def copy_pages_kernel(source, source_ids, target, target_ids, page_words, BLOCK: tl.constexpr):
    """target[target_ids[i]] = source[source_ids[i]]: BLOCK words of page i. Ids are int64."""
    i, word = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(source_ids + i) * page_words
    words = tl.load(source + first + word, word < page_words, other=0)
    tl.store(target + tl.load(target_ids + i) * page_words + word, words, word < page_words)


@triton.jit
def zero_pages_kernel(pool, ids, page_words, BLOCK: tl.constexpr):
    """pool[ids[i]] = 0: BLOCK words of page i. Ids are int64."""
    i, word = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    nothing = tl.full([BLOCK], 0, pool.dtype.element_ty)
    tl.store(pool + tl.load(ids + i) * page_words + word, nothing, word < page_words)

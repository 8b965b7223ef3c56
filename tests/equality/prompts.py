"""Prompts for equality tests: text of many kinds and lengths, cut to a number of tokens."""

from octavo_scheduler.tokens import Vocabulary

TEXTS = (
    "The page table of an operating system maps virtual addresses to physical frames. ",
    "你好，请介绍下PagedAttention的原理。它把键值缓存分成固定大小的页。",
    "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n\n",
    "Once upon a time there was a librarian who bound every book in sixteen pages. ",
    "Q: What is 17 times 23?\nA: Let us compute it step by step. 17 * 20 = 340, 17 * 3 = 51. ",
    "In 1455 Johannes Gutenberg finished printing his Bible in Mainz; about 180 copies were made. ",
    '{"name": "octavo", "pages": [1, 2, 3], "free": true}\n',
    "¿Dónde está la biblioteca? Está al lado del río, cerca de la plaza mayor. ",
)


def prompts(vocabulary: Vocabulary, lengths: list[int]) -> list[list[int]]:
    """One prompt for each length, each starting at another place of another text."""
    made = []
    for number, length in enumerate(lengths):
        ids = vocabulary.encode(TEXTS[number % len(TEXTS)] * (2 + length // 12))
        start = number % 7
        made.append(ids[start : start + length])
        assert len(made[-1]) == length
    return made

"""Times from bytes and operations, and the page that shows them."""

import pytest

from benchmarks.roofline import GPUS, LLAMA_1B, LLAMA_8B, PAGE, decode_us, page, prefill_us, step_ms


def test_shapes_have_as_many_weights_as_their_names_say() -> None:
    assert LLAMA_1B.weight_bytes / 2 == pytest.approx(1.236e9, rel=0.01)  # the embedding is the head
    assert LLAMA_8B.weight_bytes / 2 == pytest.approx(8.03e9 - 128256 * 4096, rel=0.01)  # its embedding is not read


def test_decode_time_is_that_of_reading_the_pages() -> None:
    h100 = GPUS[1]
    one, sixteen = (decode_us(h100, LLAMA_8B, rows, 8192) for rows in (1, 16))
    assert pytest.approx(160, rel=0.01) == 16 * 8192 * 8 * 128 * 4 / 3.35e12 * 1e6  # at the whole bandwidth
    assert 160 < sixteen < 200
    assert one < sixteen / 10


def test_a_chunk_after_many_tokens_takes_longer_than_one_after_none() -> None:
    a100 = GPUS[0]
    assert prefill_us(a100, LLAMA_8B, 2048, 30720) > 20 * prefill_us(a100, LLAMA_8B, 2048, 0)


def test_a_step_of_one_row_is_bound_by_the_weights() -> None:
    assert step_ms(GPUS[0], LLAMA_8B, 1, 1024) > LLAMA_8B.weight_bytes / 2.04e12 * 1e3


def test_the_page_is_what_the_formulas_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m benchmarks.roofline --write"

"""What a step costs, in counts: bytes on the wire, tokens computed, bytes copied, elements gathered. No timings."""

from pathlib import Path
from typing import Any

import pytest
import torch
from octavo_scheduler.core import Settings
from torch.utils._python_dispatch import TorchDispatchMode

from tests.doubles.table_top import TableTop
from tests.doubles.tiny_model import make_tiny_model
from tests.equality.engine import RunnerWorker


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "m")


def test_a_steady_decode_step_sends_slots_computes_one_token_a_row_and_copies_nothing(tiny: Path) -> None:
    worker = RunnerWorker(tiny, page_size=128, pages=128)
    table = TableTop(w=worker)
    for n in range(32):
        table.submit(f"r{n}", [3 + n] * 129, 40)
    for _ in range(12):
        table.turn()
    counters = worker.runner.counters
    for _ in range(8):
        before, copied = counters.tokens_computed, worker.runner.cache.pages_copied
        table.turn()
        assert counters.tokens_computed == before + 32
        assert worker.runner.cache.pages_copied == copied
        plan = table.plans[-1]
        assert {field.name for field, _ in plan.ListFields()} == {"step", "rows"}
        assert {field.name for field, _ in plan.rows.ListFields()} == {"slot"}
        assert plan.ByteSize() <= 2 * 32 + 16


def test_a_new_page_costs_one_entry_and_never_the_table_again(tiny: Path) -> None:
    table = TableTop(w=RunnerWorker(tiny, page_size=4, pages=256))
    table.submit("r", [7] * 200, 30)
    table.run()
    grown = [len(plan.growth.pages) // 4 for plan in table.plans]
    assert sum(grown) == -(-(200 + 29) // 4), "each page is sent once"
    assert max(grown[1:]) == 1
    assert sum(len(plan.new_slots.tokens) for plan in table.plans) == 200 * 4, "the prompt is sent once"


@pytest.mark.parametrize("depth", [1, 2])
def test_a_swap_moves_exactly_its_pages(tiny: Path, depth: int) -> None:
    worker = RunnerWorker(tiny, page_size=16, pages=7, host_pages=8)
    table = TableTop(Settings(preempt="swap", plans_in_flight=depth, prefix_cache=False), w=worker)
    for name in "ab":
        table.submit(name, [5] * 34, 35)
    table.run()
    page_bytes = worker.runner.hello().geometry.page_bytes
    assert page_bytes == 16 * 2 * 2 * 2 * 16 * 4, "tokens, layers, K and V, heads, head size, float32"
    assert table.num_pages_out == table.num_pages_in == 3
    assert worker.runner.cache.swapped_bytes == (3 + 3) * page_bytes
    assert table.swapped_bytes == (3 + 3) * page_bytes, "and the results say so"


class LargestResult(TorchDispatchMode):
    """Elements of the largest tensor that any operation made (views of its arguments do not count)."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and storage(result) not in {storage(a) for a in args if torch.is_tensor(a)}:
            self.largest = max(self.largest, result.numel())
        return result


def storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def test_attention_gathers_one_block_of_pages_at_a_time(tiny: Path) -> None:
    """A contiguous K of this sequence has 1,024 tokens × 2 heads × 16 elements; a block has 128 tokens."""
    table = TableTop(Settings(max_chunk=8), w=RunnerWorker(tiny, page_size=16, pages=256))
    table.submit("r", [9] * 1024, 4)
    (sequence,) = table.core.requests["r"].sequences
    while sequence.computed < 1000:
        table.turn()
    with LargestResult() as watch:
        table.run()
    assert len(table.tokens["r"]) == 4
    assert 128 * 2 * 16 <= watch.largest <= 2 * 128 * 2 * 16

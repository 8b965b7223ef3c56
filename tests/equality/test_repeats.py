"""A prompt asked time and again: what the prefix cache finds changes no id of a real model."""

import pytest
from octavo_scheduler.core import Settings

from tests.doubles.table_top import TableTop
from tests.doubles.tiny_model import make_tiny_model
from tests.equality.engine import RunnerWorker, generate

PAGE = 16


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> RunnerWorker:
    tiny = make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")
    return RunnerWorker(tiny, page_size=PAGE, pages=64, invariant=True, max_step_tokens=64)


@pytest.mark.parametrize("cache", [True, False])
def test_PC01_PC04_ten_times_the_same_greedy_request_gives_ten_times_the_same_ids(
    worker: RunnerWorker, cache: bool
) -> None:
    prompt = [(13 * n + 4) % 300 for n in range(40)]
    (alone,) = generate(worker, [prompt], 12, Settings(prefix_cache=False))
    table = TableTop(Settings(prefix_cache=cache), w=worker)
    for number in range(10):
        table.submit(str(number), prompt, 12)
        table.run()
        assert table.tokens[str(number)] == alone
        assert table.started[str(number)].cached == (2 * PAGE if cache and number else 0)


@pytest.mark.parametrize("length", [PAGE + 1, 2 * PAGE, 3 * PAGE, 3 * PAGE + 1, 3 * PAGE + 5])
def test_PC05_PC06_a_hit_of_any_length_gives_the_ids_of_a_miss(worker: RunnerWorker, length: int) -> None:
    """One page, all but one token, and a prompt that whole pages hold; then the same two pages with another tail."""
    prompt = [(17 * n + 8) % 300 for n in range(length)]
    other = [*prompt[: 2 * PAGE], *range(20, 27)]
    alone = [generate(worker, [each], 9, Settings(prefix_cache=False))[0] for each in (prompt, prompt, other)]
    table = TableTop(w=worker)
    for number, each in enumerate((prompt, prompt, other)):
        table.submit(str(number), each, 9)
        table.run()
    assert [table.tokens[str(number)] for number in range(3)] == alone
    assert table.started["1"].cached == (length - 1) // PAGE * PAGE
    assert table.started["2"].cached >= min(2 * PAGE, length // PAGE * PAGE)

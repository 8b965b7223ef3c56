"""Token ids equal those of transformers, and are the same under any schedule."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.core.request import RequestSpec, Sampling
from octavo_scheduler.core.settings import PreemptMode
from octavo_scheduler.model import ServedModel, load_model

from tests.doubles.table_top import TableTop
from tests.doubles.tiny_model import make_tiny_model
from tests.equality.engine import POSITIONS, RunnerWorker, generate, preempt_at
from tests.equality.prompts import prompts
from tests.equality.reference import NEAR_TIE, Answer, Reference, compare
from tests.equality.schedule import Schedule
from tests.kernels.implementations import WHOLE, fast_ones
from tests.models import smollm2

pytestmark = pytest.mark.timeout(900)

CHUNKS = (1, 7, 16, 17, 512)
PAGE_SIZES = (4, 16, 32)
LENGTHS = [1, 2, 3, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 79, 80, 81, 95, 96, 97, 98, 99, 100]
LENGTHS += [5, 7, 11, 13, 19, 23, 29, 37, 41, 43, 53, 59, 61, 67, 71, 73]
NEW_TOKENS = 16
LONG_LENGTHS = [517, 1500, 2990]


@pytest.fixture(scope="module")
def model() -> ServedModel:
    return load_model(smollm2())


@pytest.fixture(scope="module")
def reference() -> Reference:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Reference(smollm2())


@pytest.fixture(scope="module")
def expected(model: ServedModel, reference: Reference) -> list[Answer]:
    return [reference.answer(prompt, NEW_TOKENS) for prompt in prompts(model.vocabulary, LENGTHS)]


@pytest.fixture(scope="module", params=fast_ones())
def kernels(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def pages_of_kernels() -> list[Any]:
    """All pairs; those of the slow truth with other pages than the usual ones are for `make equality`."""
    pairs = [(name, size) for name in WHOLE for size in PAGE_SIZES]
    slow = [(name, size) for name, size in pairs if name.startswith("reference") and size != 16]
    marks = dict.fromkeys(slow, pytest.mark.on_demand)
    return [pytest.param(pair, id=f"{pair[1]}-{pair[0]}", marks=marks.get(pair, ())) for pair in pairs]


@pytest.fixture(scope="module", params=pages_of_kernels())
def worker(request: pytest.FixtureRequest) -> RunnerWorker:
    kernels, page_size = request.param
    return RunnerWorker(smollm2(), kernels=kernels, page_size=page_size, pages=9600 // page_size, max_step_tokens=512)


@pytest.mark.model
@pytest.mark.parametrize("chunk", CHUNKS)
def test_greedy_ids_equal_those_of_transformers(
    worker: RunnerWorker, model: ServedModel, expected: list[Answer], chunk: int, figure: Callable[[str], None]
) -> None:
    found = generate(worker, prompts(model.vocabulary, LENGTHS), NEW_TOKENS, Settings(max_chunk=chunk))
    num_ties = compare(expected, found)
    page_size = worker.runner.config.page_size
    figure(
        f"page {page_size}, chunk {chunk}: {num_ties} of {len(found)} answers left transformers at a tie under {NEAR_TIE}"
    )
    assert num_ties <= len(found) // 10


@pytest.mark.model
@pytest.mark.parametrize("chunk", [pytest.param(16, marks=pytest.mark.on_demand), 512])
def test_long_prompts_equal_too(
    model: ServedModel, reference: Reference, kernels: str, chunk: int, figure: Callable[[str], None]
) -> None:
    worker = RunnerWorker(smollm2(), kernels=kernels, page_size=16, pages=400, max_step_tokens=512)
    long = prompts(model.vocabulary, LONG_LENGTHS)
    answers = [reference.answer(prompt, 8) for prompt in long]
    num_ties = compare(answers, generate(worker, long, 8, Settings(max_chunk=chunk)))
    figure(
        f"long prompts, chunk {chunk}: {num_ties} of {len(long)} answers left transformers at a tie under {NEAR_TIE}"
    )


@pytest.mark.model
@pytest.mark.parametrize("mode", ["swap", "drop"])
def test_PS09_the_recipe_changes_no_id_of_the_real_model(model: ServedModel, kernels: str, mode: PreemptMode) -> None:
    """Page 16, prompt 34, 35 new tokens, two requests, 7 usable pages: preemption is certain."""
    settings = {"page_size": 16, "pages": 7, "host_pages": 7, "max_step_tokens": 64}
    worker = RunnerWorker(smollm2(), kernels=kernels, invariant=True, **settings)
    both = prompts(model.vocabulary, [34, 34])
    undisturbed = [generate(worker, [prompt], 35)[0] for prompt in both]
    table = TableTop(Settings(preempt=mode), w=worker)
    for number, prompt in enumerate(both):
        table.submit(str(number), prompt, 35)
    table.run()
    assert [table.tokens["0"], table.tokens["1"]] == undisturbed
    assert table.finished["1"].preemptions == 1
    table.assert_empty()


@pytest.mark.model
@pytest.mark.parametrize("mode", ["swap", "drop"])
def test_PS02_branches_of_the_real_model_say_the_same_in_a_pool_too_small_for_all(
    model: ServedModel, kernels: str, mode: PreemptMode, figure: Callable[[str], None]
) -> None:
    """Three branches of 54 tokens share two pages of 16 and need two each besides; there are 6."""
    (ids,) = prompts(model.vocabulary, [34])
    sampling = Sampling(temperature=1.0, seed=3)
    asked = [RequestSpec(id="r", prompt=tuple(ids), max_tokens=20, n=3, sampling=sampling)]
    settings = {"page_size": 16, "pages": 16, "host_pages": 16, "max_step_tokens": 64}
    worker = RunnerWorker(smollm2(), kernels=kernels, invariant=True, **settings)
    undisturbed = Schedule(worker, 16, Settings(prefix_cache=False)).run(asked)
    crowded = Schedule(worker, 6, Settings(preempt=mode)).run(asked)
    assert crowded.ids == undisturbed.ids
    assert len({tuple(answer) for answer in crowded.ids.values()}) == 3
    assert undisturbed.preemptions("r") == 0
    assert crowded.preemptions("r") > 0
    figure(f"real model, three branches, {mode}: preempted {crowded.preemptions('r')} times, no id differs")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("mode", ["swap", "drop"])
def test_PS01_PS05_a_preemption_at_every_position_changes_no_id(
    tiny: Path, kernels: str, mode: PreemptMode, temperature: float
) -> None:
    settings = {"page_size": 16, "pages": 32, "host_pages": 16, "max_step_tokens": 64}
    worker = RunnerWorker(tiny, kernels=kernels, invariant=True, **settings)
    both = [[(7 * n + 3) % 300 for n in range(48)], [(5 * n + 9) % 300 for n in range(16)]]
    undisturbed = generate(worker, [[1], both[1]], 35, temperature=temperature)[1]
    for position in POSITIONS:
        table = preempt_at(worker, mode, position, both, temperature)
        assert table.finished["1"].preemptions == 1
        assert table.tokens["1"] == undisturbed, f"preempted after {position} tokens"


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("chunk", [1, 7, 17])
def test_in_the_invariant_mode_no_schedule_changes_an_id(tiny: Path, kernels: str, page_size: int, chunk: int) -> None:
    settings = {"page_size": page_size, "pages": 640 // page_size, "max_step_tokens": 64}
    worker = RunnerWorker(tiny, kernels=kernels, invariant=True, **settings)
    many = [[(n * (k + 3) + k) % 300 for n in range(1 + 9 * k)] for k in range(7)]
    alone = [generate(worker, [prompt], 12, temperature=0.8)[0] for prompt in many[:1]]
    together = generate(worker, many, 12, Settings(max_chunk=chunk), temperature=0.8)
    whole = generate(worker, many, 12, temperature=0.8)
    assert together == whole
    assert together[0] == alone[0]


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_PC02_with_the_prefix_cache_and_without_ids_are_the_same(
    tiny: Path, kernels: str, page_size: int, temperature: float
) -> None:
    """A head of 64 tokens and tails of every length up to two pages, some asked at once and some after one another."""
    settings = {"page_size": page_size, "pages": 1280 // page_size, "max_step_tokens": 64}
    worker = RunnerWorker(tiny, kernels=kernels, invariant=True, **settings)
    head = [(11 * n + 5) % 300 for n in range(64)]
    many = [[*head, *((7 * n + k) % 300 for n in range(k))] for k in range(1, 2 * page_size + 1)]
    without = generate(worker, many, 6, Settings(prefix_cache=False), temperature=temperature)
    table = TableTop(w=worker)
    for number, prompt in enumerate(many):
        table.submit(str(number), prompt, 6, seed=number, temperature=temperature)
        if number % 3 == 0:
            table.run()
    table.run()
    assert [table.tokens[str(number)] for number in range(len(many))] == without
    assert sum(started.cached for started in table.started.values()) >= 64 * (len(many) // 3)
    table.assert_empty()

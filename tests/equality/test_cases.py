"""Under no schedule that preempts a request does any id change: a sample of what `make equality CASES=n` runs."""

from collections.abc import Callable, Hashable

import pytest

from tests.equality.cases import BRANCHES, CHUNKS, GRID, MODES, PAGE_SIZES, POSITIONS, SAMPLINGS, Bench, Case, case
from tests.kernels.implementations import fast_ones

pytestmark = pytest.mark.timeout(900)
SAMPLE = 200


@pytest.fixture(scope="module", params=fast_ones())
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("tiny") / "model", request.param)


def test_PS01_PS02_PS04_a_preemption_at_any_position_changes_no_id_nor_log_probability_of_any_branch(
    bench: Bench, figure: Callable[[str], None]
) -> None:
    """Greedy and sampled, with and without biases.

    What comes back does so at the forced position or one later, when a row was in flight.
    """
    num_forks, forced, positions = 0, 0, set()
    for number in range(SAMPLE):
        chosen = case(number)
        outcome = bench.run(chosen)
        assert not bench.differs(chosen, outcome), f"case {number}: {chosen}"
        assert (outcome.num_forks > 0) == (chosen.n > 1)
        num_forks += outcome.num_forks
        positions.update(outcome.resumed_at)
        if outcome.preemptions("junior"):
            forced += any(0 <= length - chosen.position <= 1 for length in outcome.resumed_at)
    figure(f"{forced} of {SAMPLE} schedules preempted where they should, {num_forks} branches forked: no id differs")
    assert forced >= 0.95 * SAMPLE
    assert positions >= set(POSITIONS)


def test_cases_in_a_row_cover_all_settings() -> None:
    cases = [case(number) for number in range(len(GRID))]
    assert len({(c.page_size, c.chunk, c.head > 0, c.mode, c.n, c.sampling) for c in cases}) == len(GRID)
    assert {c.position for c in cases} == set(POSITIONS)
    few = cases[:SAMPLE]
    pairs: list[list[Hashable]] = [
        [(c.page_size, c.chunk) for c in few],
        [(c.head > 0, c.mode) for c in few],
        [(c.n, c.sampling) for c in few],
    ]
    for values in pairs:
        fair = SAMPLE / len(set(values))
        assert all(abs(values.count(value) - fair) <= fair / 3 for value in set(values))
    assert {c.page_size for c in few} == set(PAGE_SIZES)
    assert {c.chunk for c in few} == set(CHUNKS)
    assert {c.mode for c in few} == set(MODES)
    assert {c.n for c in few} == set(BRANCHES)
    assert {c.sampling for c in few} == set(range(len(SAMPLINGS)))


@pytest.mark.parametrize("broken", ["swap_in", "copy"])
def test_a_page_whose_bytes_get_lost_is_noticed(bench: Bench, broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison has teeth: with moves that move nothing, ids differ or the sampler meets what is not a number."""

    def fits(chosen: Case) -> bool:
        return chosen.page_size > 1 and (chosen.mode == "swap" if broken == "swap_in" else chosen.n > 1)

    chosen = [c for c in map(case, range(60)) if fits(c)]
    assert len(chosen) > 10
    for worker in bench.workers.values():
        monkeypatch.setattr(worker.runner.cache, broken, lambda moves: None)
    assert sum(bench.differs(c, bench.run(c)) for c in chosen) > len(chosen) / 2

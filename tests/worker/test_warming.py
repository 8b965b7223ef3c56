"""Before it joins a worker has measured itself, and is as empty as one that has not."""

from collections.abc import Callable

import pytest
from octavo_worker.runner import Counters, Runner
from octavo_worker.warming import PREFILL_TOKENS, SWAP_PAGES, warm_up

from tests.worker.plans import Driver

Make = Callable[..., Runner]


def test_hello_says_how_fast_the_worker_was(make_runner: Make) -> None:
    runner = make_runner(host_pages=4)
    assert (runner.hello().copy_bytes_per_second, runner.hello().prefill_tokens_per_second) == (0, 0)
    warm_up(runner)
    hello = runner.hello()
    assert hello.copy_bytes_per_second == runner.rates.copy_bytes_per_second > 0
    assert hello.prefill_tokens_per_second == runner.rates.prefill_tokens_per_second > 0


def test_without_a_host_tier_there_is_no_copy_rate(make_runner: Make) -> None:
    runner = make_runner(host_pages=0)
    warm_up(runner)
    assert runner.rates.copy_bytes_per_second == 0
    assert runner.rates.prefill_tokens_per_second > 0


def test_a_few_pages_and_one_chunk_are_measured(make_runner: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = make_runner(host_pages=30)
    prefilled, swapped = [], []
    replay, swap_out = runner.decoder.replay, runner.cache.swap_out

    def watched_replay():  # type: ignore[no-untyped-def]
        prefilled.append(runner.step.num_tokens)
        replay()

    def watched_swap(moves):  # type: ignore[no-untyped-def]
        swapped.append(len(moves.source))
        swap_out(moves)

    monkeypatch.setattr(runner.decoder, "replay", watched_replay)
    monkeypatch.setattr(runner.cache, "swap_out", watched_swap)
    warm_up(runner)
    assert prefilled == [1, PREFILL_TOKENS]
    assert [count for count in swapped if count] == [SWAP_PAGES] * 2


@pytest.mark.parametrize(
    "limits",
    [{"pages": 1, "page_size": 4}, {"max_step_tokens": 1}, {"max_context": 2}, {"pages": 1, "page_size": 1}],
)
def test_the_smallest_workers_warm_up_too(make_runner: Make, limits: dict[str, int]) -> None:
    runner = make_runner(**{"pages": 20, "host_pages": 1, **limits})
    warm_up(runner)
    assert runner.rates.prefill_tokens_per_second > 0


def test_a_warm_worker_answers_like_a_cold_one(make_runner: Make) -> None:
    prompt, sampling = list(range(3, 40)), {"temperature": 0.9, "seed": 5}
    cold, warm = make_runner(host_pages=4), make_runner(host_pages=4)
    warm_up(warm)
    assert warm.counters == Counters()
    assert (warm.last_step, warm.cache.swapped_bytes) == (0, 0)
    assert not warm.slots.counts.is_active.any()
    assert Driver(warm).generate(prompt, 12, sampling=sampling) == Driver(cold).generate(prompt, 12, sampling=sampling)

import random

import pytest
from octavo_scheduler.offline.latency import LatencyModel, Load, Step, fit

COST = Load(0.004, 1e-4, 2e-4, 3e-8, 1e-10)


def loads(count: int = 200) -> list[Load]:
    draw = random.Random(1)
    return [
        Load(
            1,
            draw.randrange(500),
            draw.randrange(60),
            draw.randrange(100_000),
            draw.choice([0, 0, draw.randrange(10**8)]),
        )
        for _ in range(count)
    ]


def test_the_costs_behind_exact_times_are_found() -> None:
    model = LatencyModel(COST)
    found = fit([Step(load, model.seconds(load)) for load in loads()])
    assert found.cost == pytest.approx(COST, rel=1e-4)


def test_noise_that_averages_out_leaves_the_total() -> None:
    draw = random.Random(2)
    model = LatencyModel(COST)
    steps = [Step(load, model.seconds(load) * draw.uniform(0.8, 1.2)) for load in loads()]
    found = fit(steps)
    assert sum(found.seconds(step.load) for step in steps) == pytest.approx(
        sum(step.seconds for step in steps), rel=1e-6
    )


def test_no_cost_is_below_zero_even_where_more_work_took_less_time() -> None:
    steps = [Step(Load(1, rows, 0, 0, 0), 1.0 / (1 + rows)) for rows in range(10)]
    found = fit(steps)
    assert min(found.cost) >= 0
    assert found.cost.steps == pytest.approx(sum(step.seconds for step in steps) / len(steps))


def test_loads_that_say_the_same_do_not_break_the_fit() -> None:
    steps = [Step(Load(1, 0, rows, 10 * rows, 0), 0.001 * rows) for rows in range(1, 20)]
    found = fit(steps)
    assert found.seconds(Load(1, 0, 7, 70, 0)) == pytest.approx(0.007, rel=1e-4)


def test_one_step_is_enough_and_none_is_not() -> None:
    assert fit([Step(Load(1, 3, 0, 9, 0), 0.5)]).seconds(Load(1, 3, 0, 9, 0)) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="no step was finished"):
        fit([])

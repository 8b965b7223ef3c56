"""What came between two statuses of a server."""

import pytest
from octavo.v1 import admin_pb2 as pb
from octavo_client.window import Window, quantile


def status(uptime: float, tokens: int = 0, counts: tuple[int, ...] = (0, 0, 0)) -> pb.GetStatusResponse:
    times = pb.Histogram(bounds=[1.0, 2.0], counts=counts)
    return pb.GetStatusResponse(
        uptime_seconds=uptime,
        counters=pb.Counters(generated_tokens=tokens),
        service=pb.Service(first_token_seconds=times),
    )


def tokens(answer: pb.GetStatusResponse) -> float:
    return answer.counters.generated_tokens


def window_of(*statuses: pb.GetStatusResponse) -> Window:
    window = Window(seconds=10)
    for each in statuses:
        window.add(each)
    return window


def test_rates_are_measured_by_the_clock_of_the_server() -> None:
    window = window_of(status(100, 50), status(102, 90), status(106, 98))
    assert window.rate(tokens) == 8
    assert window.rates(tokens) == [20, 2]


def test_one_status_says_nothing_about_rates() -> None:
    window = window_of(status(100, 50))
    assert (window.rate(tokens), window.rates(tokens)) == (0, [])


def test_what_is_older_than_the_window_is_forgotten() -> None:
    window = window_of(*(status(float(second), second * second) for second in range(31)))
    assert window.rate(tokens) == (30 * 30 - 20 * 20) / 10


def test_a_server_that_was_started_anew_begins_a_new_window() -> None:
    window = window_of(status(100, 5000), status(1, 10), status(3, 30))
    assert window.rate(tokens) == 10


def test_quantiles_are_of_what_came_within_the_window() -> None:
    window = window_of(status(0, counts=(100, 0, 0)), status(5, counts=(100, 4, 0)))
    assert window.quantile(lambda s: s.service.first_token_seconds, 0.5) == 1.5
    first = window_of(status(0, counts=(100, 0, 0)))
    assert first.quantile(lambda s: s.service.first_token_seconds, 0.5) == 0.5, "at first, of all that came"


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ((0, 0, 0), 0.5, None),
        ((1, 0, 0), 0.5, 0.5),
        ((1, 1, 0), 0.75, 1.5),
        ((0, 0, 5), 0.5, 2.0),
        ((5, 0, 5), 0.5, 1.0),
        ((2, 2, 0), 1.0, 2.0),
    ],
)
def test_within_a_bucket_values_lie_evenly(counts: tuple[int, ...], share: float, expected: float | None) -> None:
    assert quantile((1.0, 2.0), counts, share) == expected

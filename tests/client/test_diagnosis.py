"""What each rule of `octavo doctor` finds, and what it leaves alone."""

from typing import Any

import pytest
from google.protobuf.message import Message
from octavo.v1 import admin_pb2 as pb
from octavo.v1 import inference_pb2
from octavo_client.diagnosis import RULES, Seen, findings, open_doors

PAGES = {"total": 100, "free": 60, "cached": 20, "held": 20}
DRAINING = pb.WORKER_STATE_DRAINING


def changed(message: Any, values: dict[str, Any]) -> Any:
    for name, value in values.items():
        if isinstance(value, Message):
            getattr(message, name).CopyFrom(value)
        elif isinstance(value, list):
            getattr(message, name)[:] = value
        else:
            setattr(message, name, value)
    return message


def steps(count: int, seconds: float = 0.02) -> pb.Histogram:
    return pb.Histogram(bounds=[10], counts=[count, 0], sum=count * seconds)


def worker(name: str = "w0", **values: Any) -> pb.WorkerStatus:
    """One that is well."""
    well = pb.WorkerStatus(
        worker_id=name,
        state=pb.WORKER_STATE_READY,
        page_size=16,
        device=pb.PageCounts(**PAGES),
        host=pb.PageCounts(total=50, free=50),
        running=4,
        silent_seconds=0.2,
        slot_utilisation=0.96,
        answer_seconds=steps(2000),
    )
    return changed(well, values)  # type: ignore[no-any-return]


def status(
    second: float, *workers: pb.WorkerStatus, live: int = 4, waiting: int = 0, **counts: int
) -> pb.GetStatusResponse:
    """Of a server that generates 100 tokens a second."""
    counters = changed(pb.Counters(ended=int(10 * second), generated_tokens=int(100 * second)), counts)
    return pb.GetStatusResponse(
        uptime_seconds=second, live_requests=live, waiting=waiting, workers=workers or [worker()], counters=counters
    )


def nobody(waiting: int = 0) -> pb.GetStatusResponse:
    answer = status(103, waiting=waiting)
    del answer.workers[:]
    return answer


def ended(second: float, outcome: str, count: int) -> pb.GetStatusResponse:
    answer = status(second)
    answer.service.outcomes.add(outcome=outcome, count=count)
    return answer


def seen(last: pb.GetStatusResponse, first: pb.GetStatusResponse | None = None, **values: Any) -> Seen:
    return Seen(**{"first": first or status(100), "last": last, "is_serving": True, **values})


def pair(seconds: float, *, running: int = 4, count: int = 50) -> Seen:
    """Two workers; one takes `seconds` for a step, the other 0.02."""
    looks = []
    for second, done in ((100, 0), (103, count)):
        w1 = worker("w1", answer_seconds=pb.Histogram(counts=[100 + done, 0], sum=5 + done * seconds), running=running)
        looks.append(status(second, worker(answer_seconds=steps(2000 + done)), w1))
    return seen(looks[1], looks[0])


def engines(*page_sizes: int) -> inference_pb2.GetModelResponse:
    kinds = [inference_pb2.Engine(kernels="cpu", kv_dtype="int8", page_size=size, num_workers=2) for size in page_sizes]
    return inference_pb2.GetModelResponse(engines=kinds)


def page_map(num_pages: int) -> list[pb.WorkerPageMap]:
    device, host = (pb.PageMap(states=[pb.PAGE_STATE_FREE], num_pages=[count]) for count in (num_pages, 50))
    return [pb.WorkerPageMap(worker_id="w0", device=device, host=host)]


def device(**values: int) -> pb.WorkerStatus:
    return worker(device=pb.PageCounts(**{**PAGES, **values}))


FOUND: list[tuple[str, Seen, str]] = [
    ("nobody_works", seen(nobody(waiting=7)), "No worker is here (sequences that wait: 7)"),
    ("nobody_works", seen(status(103, worker(state=DRAINING))), "that wait: 0): w0 is draining"),
    ("scheduler_restarted", seen(status(2.5)), "started anew 2.5 s ago"),
    ("health_contradicts", seen(status(103), is_serving=False), "Health says NOT_SERVING, but workers are ready (1)"),
    (
        "workers_differ",
        seen(status(103), model=engines(16, 32)),
        "2 with cpu kernels, pages of 16 tokens in int8; 2 with",
    ),
    (
        "worker_is_silent",
        seen(status(103, worker(silent_seconds=4.2))),
        "w0 has nothing to do and has said nothing for 4.2 s",
    ),
    ("step_is_late", seen(status(103, worker(plans_in_flight=1, step_lag_seconds=1.5))), "for 1.5 s; 0.020 s is usual"),
    (
        "worker_is_slow",
        pair(0.07),
        "w1 generates about 57 tokens/s, a step of 4 sequences taking 0.070 s; its peers about 200",
    ),
    (
        "pages_are_quarantined",
        seen(status(103, device(free=58, quarantined=2))),
        "2 of 100 device pages of w0 are quarantined",
    ),
    ("pages_do_not_add_up", seen(status(103, device(free=50))), "w0 has 100 device pages, but 90 are free"),
    (
        "pages_do_not_add_up",
        seen(status(103), page_maps=page_map(99)),
        "w0 has 100 device pages, but its page map shows 99",
    ),
    (
        "pages_are_lost",
        seen(status(103, live=0, ended=9), status(100, live=0, ended=9)),
        "w0 holds 20 device and 0 host pages",
    ),
    (
        "queue_grows_beside_free_pages",
        seen(status(103, waiting=9), status(100, waiting=2)),
        "grew from 2 to 9 in 3.0 s, while 80 of 100 device pages are free",
    ),
    (
        "requests_are_refused",
        seen(ended(103, "overloaded", 5), ended(100, "overloaded", 2)),
        "3 refused in 3.0 s",
    ),
    ("requests_fail", seen(ended(103, "failed", 11)), "Of 1030 requests 11 failed since start"),
    (
        "worker_was_lost",
        seen(status(103, workers_lost=2), status(100, workers_lost=1)),
        "were given up in 3.0 s: 1.",
    ),
    (
        "swaps_thrash",
        seen(status(103, swaps=30, drops=6, swapped_out_bytes=7 << 20), status(100, swaps=20)),
        "preempted 16 times in 3.0 s, for 300 tokens generated (7 MiB swapped)",
    ),
    (
        "host_tier_is_full",
        seen(status(103, worker(host=pb.PageCounts(total=50, free=2, held=48)))),
        "48 of 50 host pages of w0 are held",
    ),
    ("pages_are_filled_badly", seen(status(103, worker(slot_utilisation=0.7))), "hold a token, with 16 tokens a page"),
]
LEFT_ALONE: dict[str, Seen] = {
    "all is well": seen(status(103), model=engines(16), page_maps=page_map(100)),
    "one drains": seen(status(103, worker(state=DRAINING), worker("w1"))),
    "nobody is here, and health says so, and one was lost before": seen(
        status(103, workers_lost=1), status(100, workers_lost=1)
    ),
    "it says nothing while it computes": seen(status(103, worker(plans_in_flight=2, silent_seconds=9))),
    "a step as long as all are": seen(status(103, worker(step_lag_seconds=3, answer_seconds=steps(2000, seconds=1)))),
    "a step three times as long": pair(0.06),
    "a step that is long since there are many sequences": pair(0.07, running=9),
    "too few steps to tell": pair(0.5, count=4),
    "pages that the last request still held": seen(status(103, live=0), status(100, live=0)),
    "a queue that shrinks": seen(status(103, waiting=2), status(100, waiting=9)),
    "a queue that has just begun": seen(status(103, waiting=5)),
    "a queue for pages": seen(status(103, device(free=0, held=80), waiting=9), status(100, waiting=2)),
    "refusals of long ago": seen(ended(103, "overloaded", 5), ended(100, "overloaded", 5)),
    "one failure in a hundred": seen(ended(103, "failed", 10)),
    "a preemption now and then": seen(status(103, swaps=15)),
    "no host tier": seen(status(103, worker(host=pb.PageCounts()))),
    "short answers since a moment": seen(status(103, worker(slot_utilisation=0.5, answer_seconds=steps(1000)))),
}


@pytest.mark.parametrize(("rule", "there", "words"), FOUND, ids=[f"{rule}-{words[:20]}" for rule, _, words in FOUND])
def test_a_rule_finds_what_it_is_for_and_no_other_rule_does(rule: str, there: Seen, words: str) -> None:
    (found,) = findings(there)
    assert found.rule == rule
    assert words in found.sentence


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_what_is_well_or_explained_is_left_alone(case: str) -> None:
    assert findings(LEFT_ALONE[case]) == []


def test_every_rule_has_a_case() -> None:
    assert {rule.__name__ for rule in RULES} == {rule for rule, _, _ in FOUND}


def test_doors_that_stand_open_are_named() -> None:
    found = open_doors(address="db:1", is_plain=True, is_open=True)
    assert [each.rule for each in found] == ["no_tls", "no_token"]
    assert all(each.sentence.startswith("db:1 can be reached from elsewhere") for each in found)
    assert open_doors(address="db:1", is_plain=False, is_open=False) == []

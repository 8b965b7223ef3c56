"""The prefix cache: full pages are found again, and nothing but speed depends on it."""

import random

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import Flush, Nack
from octavo_scheduler.core.pages import Content, PagePool
from octavo_scheduler.core.prefix import root_key
from octavo_scheduler.core.worker import Worker

from tests.doubles.paper_worker import PaperWorker, answer
from tests.doubles.table_top import TableTop

PAGE = 4


def one_worker(settings: Settings | None = None, **fields: int) -> TableTop:
    return TableTop(settings, w=PaperWorker(page_size=PAGE, **{"pages": 64, **fields}))


def worker_of(table: TableTop) -> Worker:
    return table.core.workers["w"]


def ask(table: TableTop, name: str, prompt: list[int], max_tokens: int = 3, **fields: object) -> int:
    """Runs one request to its end; how many of its prompt tokens were found."""
    table.submit(name, prompt, max_tokens, **fields)
    table.run()
    assert table.tokens[name] == answer(prompt, max_tokens)
    return table.started[name].cached


@pytest.mark.parametrize(
    ("length", "found"), [(1, 0), (4, 0), (5, 4), (7, 4), (8, 4), (9, 8), (12, 8), (13, 12), (17, 16)]
)
def test_PC05_PC06_full_pages_are_found_and_the_last_token_is_always_computed(length: int, found: int) -> None:
    table = one_worker()
    prompt = list(range(length))
    assert ask(table, "miss", prompt) == 0
    assert ask(table, "hit", prompt) == found
    first_row = next(plan for plan in reversed(table.plans) if plan.new_slots.slot)
    computed = int.from_bytes(first_row.new_slots.num_computed, "little")
    assert computed == found


def test_PC05_another_tail_shares_the_head_only() -> None:
    table = one_worker()
    ask(table, "first", list(range(17)))
    assert ask(table, "second", [*range(8), 90, 91, 92, 93, 94]) == 8
    assert ask(table, "third", [99, *range(1, 17)]) == 0


def test_PC01_PC04_the_answer_of_an_ended_request_is_found_too() -> None:
    table = one_worker()
    prompt = list(range(6))
    ask(table, "turn 1", prompt, 9)
    conversation = prompt + answer(prompt, 9)
    assert ask(table, "turn 2", [*conversation, 1, 2]) == (len(conversation) - 1) // PAGE * PAGE


@pytest.mark.parametrize("salt", ["b", "a ", ""])
def test_another_salt_finds_nothing(salt: str) -> None:
    table = one_worker()
    ask(table, "mine", list(range(12)), salt="a")
    assert ask(table, "theirs", list(range(12)), salt=salt) == 0
    assert ask(table, "mine again", list(range(12)), salt="a") == 8


def test_no_two_lists_of_parts_have_one_root() -> None:
    roots = {root_key(salt, weights) for salt, weights in [("", b""), ("a", b""), ("", b"a"), ("ab", b""), ("a", b"b")]}
    assert len(roots) == 5


def test_sequences_that_run_share_pages_and_each_page_counts_once() -> None:
    table = one_worker()
    ask(table, "first", list(range(13)))
    for name in "abc":
        table.submit(name, list(range(13)), 8)
    table.turn()
    worker = worker_of(table)
    assert len(worker.running) == 3
    assert worker.device.num_extra_refs == 2 * 3
    assert worker.device.num_held == 3 + 3
    assert worker.filled_slots <= worker.device.num_held * PAGE
    table.run()
    assert all(table.tokens[name] == answer(list(range(13)), 8) for name in "abc")
    table.assert_empty()


def test_PC08_a_page_is_found_only_after_the_step_that_wrote_it_is_acknowledged() -> None:
    table = one_worker(Settings(plans_in_flight=2))
    table.submit("a", list(range(9)), 5)
    assert table.plan("w")
    table.submit("b", list(range(9)), 5)
    assert table.plan("w")
    assert worker_of(table).device.num_extra_refs == 0, "the first step is not done yet"
    table.deliver("w")
    table.submit("c", list(range(9)), 5)
    table.run()
    assert table.started["b"].cached == 0
    assert table.started["c"].cached == 8
    table.assert_empty()


def test_PC08_a_page_whose_step_failed_is_never_found() -> None:
    table = one_worker()
    table.submit("a", list(range(9)), 5)
    table.plan("w")
    table.results["w"].clear()
    table.apply(Nack("w", 1))
    table.abort("a")
    assert ask(table, "b", list(range(9))) == 0


def test_PC08_of_two_pages_with_the_same_tokens_one_is_found_and_the_other_is_free_when_given_back() -> None:
    table = one_worker()
    for name in "ab":
        table.submit(name, list(range(9)), 1)
    table.run()
    assert worker_of(table).device.num_cached == 2
    table.assert_empty()


def test_PG09_cached_pages_give_way_when_pages_are_needed_oldest_and_tails_first() -> None:
    table = one_worker(pages=10, host_pages=0)
    ask(table, "old", list(range(100, 117)), 1)
    ask(table, "new", list(range(200, 217)), 1)
    assert worker_of(table).device.num_cached == 8
    ask(table, "needs room", list(range(300, 313)), 1)
    assert ask(table, "old again", list(range(100, 117)), 1) == 8, (
        "the tail of the oldest prefix is gone, its head is not"
    )


def test_preempted_by_drop_a_sequence_finds_its_own_pages_again() -> None:
    table = TableTop(Settings(preempt="drop"), w=PaperWorker(page_size=16, pages=7, host_pages=0))
    for name in "ab":
        table.submit(name, [ord(name)] * 34, 35)
    computed = 0
    while table.turn():
        computed = max(computed, table.core.counters.prompt_tokens)
    assert table.finished["b"].preemptions == 1
    assert all(table.tokens[name] == answer([ord(name)] * 34, 35) for name in "ab")
    resumed = [plan for plan in table.plans if plan.new_slots.slot][-1]
    assert int.from_bytes(resumed.new_slots.num_computed[:4], "little") > 0


def test_after_a_flush_nothing_is_found_and_every_page_is_free() -> None:
    table = one_worker()
    ask(table, "a", list(range(20)))
    table.submit("runs", list(range(50, 70)), 10)
    table.turn()
    table.apply(Flush())
    device = worker_of(table).device
    assert device.num_cached == 0
    assert device.num_free + device.num_held == device.total
    assert ask(table, "a again", list(range(20))) == 0
    table.assert_empty()


def test_without_the_cache_nothing_is_kept() -> None:
    table = one_worker(Settings(prefix_cache=False))
    ask(table, "a", list(range(20)))
    assert worker_of(table).device.num_free == 64
    assert ask(table, "b", list(range(20))) == 0


def test_workers_have_caches_of_their_own_and_a_lost_ones_is_gone() -> None:
    table = one_worker()
    ask(table, "a", list(range(20)))
    table.kill("w")
    table.join("w", PaperWorker(page_size=8, pages=64))
    assert ask(table, "b", list(range(20))) == 0
    assert ask(table, "c", list(range(20))) == 16


def test_a_collision_of_keys_costs_speed_and_never_correctness(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one byte for a digest nearly every page collides with another one."""
    import hashlib
    from types import SimpleNamespace

    from octavo_scheduler.core import prefix

    def short(data: bytes = b"") -> SimpleNamespace:
        digest = hashlib.sha256(data)
        return SimpleNamespace(update=digest.update, digest=lambda: digest.digest()[:1])

    monkeypatch.setattr(prefix, "sha256", short)
    table = one_worker(pages=200)
    draw = random.Random(3)
    for n in range(120):
        ask(table, f"r{n}", [draw.randrange(3) for _ in range(draw.randrange(5, 14))], 4)
    assert worker_of(table).device.num_cached > 20
    table.assert_empty()


def test_a_shared_page_is_fenced_for_whichever_sharer_is_in_flight_last() -> None:
    pool = PagePool(2)
    (page,) = pool.take(1) or []
    pool.publish(page, Content(b"key", (1,)))
    pool.share([page])
    pool.give_back([page], until=5)
    pool.give_back([page])
    assert pool.num_fenced == 1
    pool.lift(5)
    assert pool.num_cached == 1
    assert pool.find(Content(b"key", (1,))) == page


@pytest.mark.parametrize("block", range(4))
def test_with_and_without_the_cache_every_answer_is_the_same(block: int) -> None:
    """Conversations that grow and branch, in pools that are too small for all of them."""
    found = 0
    for seed in range(block * 25, block * 25 + 25):
        draw = random.Random(seed)
        settings = Settings(
            preempt=draw.choice(["swap", "drop"]), max_chunk=draw.choice([None, 3]), plans_in_flight=draw.choice([1, 2])
        )
        fields = {
            "page_size": draw.choice([1, 2, 4]),
            "pages": draw.choice([40, 60]),
            "host_pages": draw.choice([0, 30]),
        }
        table = TableTop(settings, w=PaperWorker(**fields))
        history = [[draw.randrange(5) for _ in range(8)] for _ in range(3)]
        asked: dict[str, list[int]] = {}
        for n in range(40):
            prompt = [*draw.choice(history), draw.randrange(5)][-28:]
            history.append(prompt)
            asked[f"r{n}"] = prompt
            table.submit(f"r{n}", prompt, 6)
            for _ in range(draw.randrange(4)):
                table.turn()
            if draw.random() < 0.1:
                table.abort(draw.choice(list(asked)))
        table.run()
        table.assert_empty()
        for name, prompt in asked.items():
            assert table.tokens[name] == answer(prompt, 6)[: len(table.tokens[name])]
        found += sum(started.cached for started in table.started.values())
    assert found > 1000

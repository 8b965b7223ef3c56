"""Log-probabilities and biases through the core: one for each token, whatever happens on the way."""

from math import inf

import pytest
from octavo_scheduler.core import Settings
from octavo_scheduler.core.events import PAIR_BYTES, Joined, Nack, StepDone
from octavo_scheduler.core.request import ALWAYS, Biases
from octavo_scheduler.core.settings import PreemptMode

from tests.doubles.paper_worker import MOST_PROMPT_SCORES, PaperWorker, answer, column, told
from tests.doubles.table_top import TableTop

PROMPTS = {"a": [1] * 34, "b": [2] * 34}


def assert_told(table: TableTop, name: str, prompt: list[int], num_best: int, branch: int = 0) -> None:
    """Each token of the answer has its log-probabilities, and they are its own."""
    key = table.key(name, branch)
    history = [*prompt, *table.tokens[key]]
    due = [told(history, place, num_best) for place in range(len(prompt), len(history))]
    assert table.logprobs[key] == due


def assert_prompt_told(table: TableTop, name: str, prompt: list[int], num_best: int) -> None:
    assert table.scored[name] == b"".join(told(prompt, place, num_best) for place in range(1, len(prompt)))


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("mode", ["swap", "drop"])
def test_PS04_a_preempted_answer_has_as_many_log_probabilities_as_tokens(mode: PreemptMode, depth: int) -> None:
    table = TableTop(Settings(preempt=mode, plans_in_flight=depth), w=PaperWorker(page_size=16, pages=8, host_pages=8))
    for name, prompt in PROMPTS.items():
        table.submit(name, prompt, 35, logprobs=5)
    table.run()
    assert table.finished["b"].preemptions == 1
    for name, prompt in PROMPTS.items():
        assert table.tokens[name] == answer(prompt, 35)
        assert_told(table, name, prompt, 5)
    table.assert_empty()


@pytest.mark.parametrize("mode", ["swap", "drop"])
@pytest.mark.parametrize("moment", range(2, 40, 3))
def test_PS04_nor_are_there_more_or_fewer_after_a_worker_is_lost_or_refuses_a_plan(
    mode: PreemptMode, moment: int
) -> None:
    table = TableTop(Settings(preempt=mode), w=PaperWorker(page_size=4, pages=14, host_pages=8))
    for name, prompt in PROMPTS.items():
        table.submit(name, prompt[:9], 12, logprobs=2, prompt_logprobs=1)
    for _ in range(moment):
        table.plan("w") or table.deliver("w")
    if moment % 2:
        table.kill("w")
        table.join("v", PaperWorker(page_size=4, pages=14, host_pages=8))
    elif table.results["w"]:
        step = table.results["w"][0].step
        table.results["w"].clear()
        table.apply(Nack("w", step))
    table.run()
    for name, prompt in PROMPTS.items():
        assert table.tokens[name] == answer(prompt[:9], 12)
        assert_told(table, name, prompt[:9], 2)
        assert_prompt_told(table, name, prompt[:9], 1)
    table.assert_empty()


def test_who_asks_for_none_gets_none_and_each_gets_as_many_as_it_asks_for() -> None:
    table = TableTop(w=PaperWorker(pages=64))
    asked = {"none": None, "own": 0, "few": 2, "many": 20}
    for number, (name, count) in enumerate(asked.items()):
        table.submit(name, [number], 6, logprobs=count)
    table.run()
    assert table.logprobs["none"] == [b""] * 6
    for number, (name, count) in list(enumerate(asked.items()))[1:]:
        assert_told(table, name, [number], count or 0)


def test_a_plan_without_such_requests_says_nothing_of_them() -> None:
    table = TableTop(w=PaperWorker())
    table.submit("r", [1, 2, 3], 4)
    table.run()
    for plan in table.plans:
        assert not any((plan.rows.score_slot, plan.rows.score_position, plan.rows.num_best))
        assert not any((plan.new_slots.num_biases, plan.new_slots.bias))


@pytest.mark.parametrize("n", [2, 3])
def test_every_branch_has_its_own_log_probabilities_and_the_prompt_has_them_once(n: int) -> None:
    table = TableTop(w=PaperWorker(pages=64))
    table.submit("r", [1, 2, 3, 4, 5, 6, 7], 6, n=n, logprobs=1, prompt_logprobs=2)
    table.run()
    for branch in range(n):
        assert_told(table, "r", [1, 2, 3, 4, 5, 6, 7], 1, branch)
    assert_prompt_told(table, "r", [1, 2, 3, 4, 5, 6, 7], 2)


def test_known_beginnings_have_no_log_probabilities_and_what_follows_has() -> None:
    table = TableTop(w=PaperWorker(pages=64))
    table.submit("r", [1, 2, 3], 6, n=2, logprobs=1, held=((7, 8), (9,)))
    table.run()
    assert [len(table.logprobs[table.key("r", branch)]) for branch in range(2)] == [4, 5]


@pytest.mark.parametrize("chunk", [None, 1, 3, 7])
@pytest.mark.parametrize("length", [1, 2, MOST_PROMPT_SCORES, MOST_PROMPT_SCORES + 1, MOST_PROMPT_SCORES + 2, 23])
def test_each_prompt_token_is_told_once_in_chunks_that_the_worker_has_room_for(length: int, chunk: int | None) -> None:
    table = TableTop(Settings(max_chunk=chunk), w=PaperWorker(pages=64))
    prompts = {name: [number, *range(length - 1)] for number, name in enumerate("abc")}
    for name, prompt in prompts.items():
        table.submit(name, prompt, 3, prompt_logprobs=1)
    table.run()
    for name, prompt in prompts.items():
        assert_prompt_told(table, name, prompt, 1)
        assert table.tokens[name] == answer(prompt, 3)
    for plan in table.plans:
        assert len(column(plan.rows.score_slot, "<u2")) <= MOST_PROMPT_SCORES + 3


def test_prompt_log_probabilities_take_nothing_from_the_cache_until_they_are_told() -> None:
    table = TableTop(w=PaperWorker(pages=64))
    prompt = list(range(20))
    for name in ("first", "second"):
        table.submit(name, prompt, 2, prompt_logprobs=0)
        table.run()
        assert table.started[name].cached == 0
        assert_prompt_told(table, name, prompt, 0)
    table.submit("third", prompt, 2)
    table.run()
    assert table.started["third"].cached > 0


def test_what_is_told_already_is_not_told_again() -> None:
    table = TableTop(w=PaperWorker(pages=64))
    table.submit("r", [1, 2, 3, 4, 5], 2, prompt_logprobs=0, num_scored=3)
    table.scored["r"] = told([1, 2], 1, 0) + told([1, 2, 3], 2, 0)
    table.run()
    assert_prompt_told(table, "r", [1, 2, 3, 4, 5], 0)


@pytest.mark.parametrize("change", [-PAIR_BYTES, PAIR_BYTES, 1])
def test_a_result_with_more_or_less_than_was_asked_for_cannot_be_right(change: int) -> None:
    table = TableTop(w=PaperWorker())
    table.submit("r", [1, 2, 3], 2, logprobs=1)
    table.plan("w")
    table.results["w"].clear()
    table.apply(StepDone("w", 1, (5,), bytes(2 * PAIR_BYTES + change)))
    assert table.core.workers["w"].num_nacks == 1
    table.run()
    assert_told(table, "r", [1, 2, 3], 1)


def test_a_worker_of_before_gets_no_request_with_options_and_others_go_there() -> None:
    table = TableTop(old=PaperWorker(pages=64, minor=1))
    table.submit("r", [1, 2, 3], 2, logprobs=1)
    assert table.refused["r"].reason == "NO_WORKER"
    table.join("new", PaperWorker(pages=16))
    table.submit("s", [1, 2, 3], 2, logprobs=1)
    table.submit("t", [4, 5, 6], 2)
    table.run()
    assert_told(table, "s", [1, 2, 3], 1)
    assert table.tokens["t"] == answer([4, 5, 6], 2)


FORBIDDEN = Biases(tokens=(5,), values=(-inf,), until=(ALWAYS,), contexts=(0,))


@pytest.mark.parametrize("mode", ["swap", "drop"])
def test_biases_come_with_each_new_slot_and_hold_after_a_preemption(mode: PreemptMode) -> None:
    plain = answer(PROMPTS["b"], 35)
    biases = Biases(
        tokens=(plain[3], plain[7], plain[8]),
        values=(-inf, 0.0, -inf),
        until=(ALWAYS, ALWAYS, 40),
        contexts=(0, -1, 1),
    )
    found = {}
    for pages in (8, 64):
        table = TableTop(Settings(preempt=mode), w=PaperWorker(page_size=16, pages=pages, host_pages=8))
        table.submit("a", PROMPTS["a"], 35)
        table.submit("b", PROMPTS["b"], 35, biases=biases, n=1, logprobs=1)
        table.run()
        assert table.finished["b"].preemptions == (pages == 8)
        assert_told(table, "b", PROMPTS["b"], 1)
        found[pages] = table.tokens["b"]
    assert found[8] == found[64]
    assert plain[3] not in found[64]
    assert found[64][:3] == plain[:3]
    assert table.tokens["a"] == answer(PROMPTS["a"], 35)


def test_the_worker_is_told_at_which_length_a_bias_ends_the_prompt_included() -> None:
    table = TableTop(w=PaperWorker())
    early = Biases(tokens=(5, 6), values=(-inf, 2.5), until=(4, ALWAYS), contexts=(0, 0))
    table.submit("r", [1, 2, 3], 2, biases=early)
    table.plan("w")
    (plan,) = table.plans
    assert column(plan.new_slots.num_biases, "<i4") == [2]
    assert column(plan.new_slots.bias_until, "<i4") == [7, ALWAYS]


def test_an_older_worker_says_so_when_it_joins() -> None:
    table = TableTop(old=PaperWorker(minor=1), new=PaperWorker())
    joined: list[Joined] = [table.core.workers[name].joined for name in ("old", "new")]
    assert [each.max_prompt_scores for each in joined] == [0, MOST_PROMPT_SCORES]

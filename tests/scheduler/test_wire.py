import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from octavo.v1 import step_pb2
from octavo_scheduler.core.plan import Constrained, Growth, NewSlot, StepPlan
from octavo_scheduler.core.policy import Account
from octavo_scheduler.core.request import Request, RequestSpec, Sampling, Sequence
from octavo_scheduler.limits import MAX_WORKER_WORDS
from octavo_scheduler.wire import (
    BadMessage,
    Epoch,
    Greeting,
    Leaving,
    Refused,
    StepReport,
    column,
    decode,
    encode_masks,
    encode_plan,
    uncolumn,
)

from tests.doubles.paper_worker import PaperWorker


def plan_message(plan: StepPlan) -> step_pb2.StepPlan:
    message = step_pb2.SchedulerMessage()
    message.ParseFromString(encode_plan(Epoch(3, 4), plan))
    assert (message.epoch.boot_id, message.epoch.counter) == (3, 4)
    return message.plan


def test_masks_lie_one_after_the_other_and_say_which_rows_they_are_of() -> None:
    plan = StepPlan("w", 9, row_slots=[3, 1, 300], row_tokens=[1, 1, 1], row_samples=[True] * 3)
    plan.constrained = [Constrained(0, sequence(), 0), Constrained(2, sequence(), 0)]
    plan.masks = [bytes([1, 2, 3, 4]), bytes([5, 6, 7, 8])]
    message = plan_message(plan)
    assert list(np.frombuffer(message.rows.masked_row, "<u2")) == [0, 2]
    assert message.rows.mask == bytes([1, 2, 3, 4, 5, 6, 7, 8])


def test_masks_that_are_not_known_follow_in_a_message_of_their_own() -> None:
    one, two = sequence(), sequence()
    plan = StepPlan("w", 9, row_slots=[3, 1], row_tokens=[1, 1], row_samples=[True] * 2)
    plan.constrained = [Constrained(0, one, 4), Constrained(1, two, 7)]
    one.request.masks[0] = 4, b"\x01\x02\x03\x04"
    assert not plan.find_masks()
    assert plan.lacks_masks
    rows = plan_message(plan).rows
    assert list(np.frombuffer(rows.masked_row, "<u2")) == [0, 1]
    assert not rows.mask
    two.request.masks[0] = 7, b"\x05\x06\x07\x08"
    assert plan.find_masks()
    message = step_pb2.SchedulerMessage()
    message.ParseFromString(encode_masks(Epoch(3, 4), plan))
    assert (message.masks.step, message.masks.mask) == (9, bytes(range(1, 9)))


def sequence() -> Sequence:
    request = Request(RequestSpec(id="r", prompt=(4, 5)), 1, 0.0, Account("", 0, 1.0, 1.0))
    return Sequence(request, 0, (0, 1, 0), [4, 5], 2, 8)


def test_a_decode_step_is_one_column_of_slots() -> None:
    plan = StepPlan("w", 9, row_slots=[3, 1, 300], row_tokens=[1, 1, 1], row_samples=[True] * 3)
    message = plan_message(plan)
    assert list(np.frombuffer(message.rows.slot, "<u2")) == [3, 1, 300]
    assert {field.name for field, _ in message.ListFields()} == {"step", "rows"}
    assert {field.name for field, _ in message.rows.ListFields()} == {"slot"}


def test_a_new_slot_carries_history_and_sampling() -> None:
    sampling = Sampling(temperature=0.5, top_k=7, top_p=0.25, min_p=0.125, presence_penalty=-1, seed=(1 << 64) - 1)
    request = Request(RequestSpec(id="r", prompt=(4, 5), sampling=sampling), 1, 0.0, Account("", 0, 1.0, 1.0))
    sequence = Sequence(request, 2, (0, 1, 2), [4, 5, 6], 2, 8)
    message = plan_message(
        StepPlan("w", 1, new_slots=[NewSlot(11, sequence, (4, 5, 6), 2)], growth=[Growth(11, 0, [8, 9])])
    )
    new = message.new_slots
    read = {
        name: np.frombuffer(getattr(new, name), dtype).tolist()
        for name, dtype in [
            ("slot", "<u2"), ("num_tokens", "<i4"), ("num_prompt", "<i4"), ("num_computed", "<i4"), ("tokens", "<i4"),
            ("temperature", "<f4"), ("top_p", "<f4"), ("min_p", "<f4"), ("top_k", "<i4"), ("repetition_penalty", "<f4"),
            ("presence_penalty", "<f4"), ("frequency_penalty", "<f4"), ("seed", "<u8"), ("branch", "<u2"),
        ]
    }  # fmt: skip
    assert read == {
        "slot": [11], "num_tokens": [3], "num_prompt": [2], "num_computed": [2], "tokens": [4, 5, 6],
        "temperature": [0.5], "top_p": [0.25], "min_p": [0.125], "top_k": [7], "repetition_penalty": [1.0],
        "presence_penalty": [-1.0], "frequency_penalty": [0.0], "seed": [(1 << 64) - 1], "branch": [2],
    }  # fmt: skip
    assert np.frombuffer(message.growth.pages, "<i4").tolist() == [8, 9]


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_columns_come_back_as_they_went(values: list[int]) -> None:
    assert list(uncolumn("i", column("i", values))) == values
    assert column("i", values) == np.array(values, dtype="<i4").tobytes()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_bad_message(frame: bytes) -> None:
    try:
        decode(frame, "w")
    except BadMessage:
        return


@pytest.mark.parametrize(
    "field", ["worker_id", "device_pages", "max_slots", "max_step_tokens", "max_context", "vocab_size", "geometry"]
)
def test_a_hello_that_lacks_a_field_is_bad(field: str) -> None:
    hello = PaperWorker().hello()
    hello.ClearField(field)
    with pytest.raises(BadMessage, match="lacks"):
        decode(step_pb2.WorkerMessage(hello=hello).SerializeToString(), "")


def test_a_result_names_the_worker_of_its_connection() -> None:
    frame = step_pb2.WorkerMessage(result=step_pb2.StepResult(step=5, token=column("i", [7, 8]))).SerializeToString()
    _, body = decode(frame, "w3")
    assert isinstance(body, StepReport)
    assert (body.done.worker, body.done.step, body.done.tokens) == ("w3", 5, (7, 8))


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -1.0, 0.0])
def test_a_speed_that_makes_no_sense_counts_as_not_measured(rate: float) -> None:
    hello = PaperWorker().hello("w")
    hello.copy_bytes_per_second = hello.prefill_tokens_per_second = rate
    _, greeting = decode(step_pb2.WorkerMessage(hello=hello).SerializeToString(), "")
    assert isinstance(greeting, Greeting)
    assert greeting.joined.copy_bytes_per_second == greeting.joined.prefill_tokens_per_second == 0.0


@pytest.mark.parametrize("words", ["\x1b[2J", "two\nlines", "x" * 100_000])
def test_what_a_worker_says_for_the_log_is_short_and_can_be_printed(words: str) -> None:
    goodbye = step_pb2.WorkerMessage(goodbye=step_pb2.Goodbye(message=words))
    nack = step_pb2.WorkerMessage(nack=step_pb2.Nack(step=1, message=words))
    left, refused = (decode(message.SerializeToString(), "w")[1] for message in (goodbye, nack))
    assert isinstance(left, Leaving)
    assert isinstance(refused, Refused)
    for said in (left.message, refused.reason):
        assert said.isprintable()
        assert len(said) < MAX_WORKER_WORDS + 100


def test_a_worker_whose_name_cannot_be_printed_is_not_let_in() -> None:
    hello = step_pb2.WorkerMessage(hello=PaperWorker().hello("w\n2026 ERROR all is lost"))
    with pytest.raises(BadMessage, match="cannot be printed"):
        decode(hello.SerializeToString(), "")

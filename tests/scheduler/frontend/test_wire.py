"""What a front process and its scheduler say to each other: everything arrives, and nothing arrives that is wrong."""

import random
from dataclasses import fields, replace
from math import inf, nan
from typing import Any

import pytest
from octavo.v1 import front_pb2
from octavo_scheduler.commands import Abort, FrontCommand, Masks, Submit
from octavo_scheduler.core.events import Committed, Finished, Masked, Output, Refused, Scored, Started
from octavo_scheduler.core.request import Biases, FinishReason, RequestSpec, Sampling
from octavo_scheduler.frontend.wire import (
    News,
    Said,
    decode_news,
    decode_said,
    encode_news,
    encode_said,
    stay_of,
)
from octavo_scheduler.wire import BadMessage

VOCABULARY = 900
PLAIN = RequestSpec(id="f0.1-a", prompt=(1, 2, 3))
BIASES = Biases(tokens=(5, 6), values=(-inf, 1.5), until=(7, (1 << 31) - 1), contexts=(-1, 0))
FULL = RequestSpec(
    id="f0.1-b",
    prompt=tuple(range(VOCABULARY)),
    n=3,
    max_tokens=12,
    stop_token_ids=frozenset({2, 899}),
    sampling=Sampling(
        temperature=0.1,
        top_p=0.2,
        min_p=0.3,
        top_k=4,
        repetition_penalty=1.1,
        presence_penalty=-0.5,
        frequency_penalty=0.5,
        seed=(1 << 64) - 1,
        biases=BIASES,
    ),
    priority=-3,
    tenant="ten\u00e4nt",
    salt="salt",
    deadline=12345.000001,
    queue_deadline=0.25,
    held=((1, 2), (), (3,)),
    ended=frozenset({2}),
    logprobs=0,
    prompt_logprobs=20,
    num_scored=2,
    is_constrained=True,
)
MASKS = (Masked("f0.1-b", 0, 2, b"\x01\x02"), Masked("f0.1-b", 1, 0, None))
COMMANDS: list[FrontCommand] = [
    Submit(PLAIN, "mine"),
    Submit(FULL, "", MASKS),
    Abort("f0.1-a"),
    Abort("f0.1-b", 0, 2),
    Masks((MASKS[0],)),
    Masks((MASKS[1],)),
]
OUTPUTS: list[Output] = [
    Started("f0.1-a", 0.125, 16),
    Scored("f0.1-b", 1, b"12345678"),
    Committed("f0.1-a", 0, 5, 7),
    Committed("f0.1-b", 2, 6, 8, b"12345678"),
    Committed("f0.1-a", 0, 6, 9),
    Finished("f0.1-a", 0, FinishReason.STOP, 7, 1, 9),
    *(Finished("f0.1-b", 1, reason, 0, 0) for reason in FinishReason),
    Refused("f0.1-c", "QUEUE_FULL", "no", 1.5),
    Refused("f0.1-d", "TOO_LONG", "no"),
]


def said(*commands: FrontCommand) -> bytes:
    return encode_said(Said(stay="f0.1", commands=commands))


def read(frame: bytes) -> Said:
    return decode_said(frame, VOCABULARY)


def test_every_field_of_a_request_differs_from_its_default_here() -> None:
    """So a new one is not forgotten on the way."""
    for record in (FULL, FULL.sampling, FULL.sampling.biases):
        assert [each.name for each in fields(record) if getattr(record, each.name) == each.default] == []


def test_commands_arrive_as_they_were_and_in_their_order() -> None:
    assert read(said(*COMMANDS)).commands == COMMANDS


def test_masks_that_are_posted_together_arrive_one_by_one() -> None:
    assert read(said(Masks(MASKS))).commands == [Masks((mask,)) for mask in MASKS]


def test_names_and_first_words_arrive() -> None:
    one, two = b"0123456789abcdef", b"fedcba9876543210"
    heard = read(encode_said(Said(stay="f3.0", is_listening=True, freed=[one], claimed=[two, one])))
    assert (heard.stay, heard.is_listening, heard.freed, heard.claimed) == ("f3.0", True, [one], [two, one])


def test_outputs_arrive_as_they_were_and_tokens_before_ends() -> None:
    heard = decode_news(encode_news(News(OUTPUTS, [(b"name", 3)])))
    assert list(heard.outputs) == OUTPUTS
    assert list(heard.owners) == [(b"name", 3)]


def test_news_of_nothing_is_nothing() -> None:
    assert decode_news(encode_news(News())) == News([], [])


def test_an_id_says_whose_it_is() -> None:
    assert [stay_of(id) for id in ("f12.3-abc", "0123abc", "f1.0-")] == ["f12.3", "", "f1.0"]


def changed(**wrong: Any) -> Submit:
    return Submit(replace(FULL, **wrong), "")


def drawn(**wrong: Any) -> Submit:
    return changed(sampling=replace(FULL.sampling, **wrong))


WRONG: dict[str, FrontCommand] = {
    "a request of another front": changed(id="f0.2-b"),
    "one of the scheduler's own": changed(id="b"),
    "no prompt": changed(prompt=()),
    "a token that is none": changed(prompt=(1, VOCABULARY)),
    "a negative token": changed(prompt=(1, -1)),
    "a stop that is none": changed(stop_token_ids=frozenset({VOCABULARY})),
    "no branch": changed(n=0, held=(), ended=frozenset()),
    "too many branches": changed(n=17, held=()),
    "beginnings of other branches": changed(held=((1,),)),
    "a beginning that is none": changed(held=((1,), (VOCABULARY,), ())),
    "an end of a branch that is none": changed(ended=frozenset({3})),
    "ends of all branches": changed(ended=frozenset({0, 1, 2})),
    "an answer without room": changed(max_tokens=0),
    "a deadline that is no number": changed(deadline=nan),
    "a temperature that is no number": drawn(temperature=nan),
    "an infinite penalty": drawn(presence_penalty=inf),
    "columns of other lengths": drawn(biases=replace(BIASES, values=(1.0,))),
    "a bias that is no number": drawn(biases=replace(BIASES, values=(nan, 1.0))),
    "a mask of another request": Submit(PLAIN, "", (Masked("f0.1-b", 0, 0, b""),)),
    "a mask of a branch that is none": Submit(PLAIN, "", (Masked("f0.1-a", 1, 0, b""),)),
    "the end of somebody else's request": Abort("f1.0-a"),
    "the end of a branch that cannot be": Abort("f0.1-a", 0, 16),
    "somebody else's mask": Masks((Masked("f1.0-a", 0, 0, b""),)),
}


@pytest.mark.parametrize("command", WRONG.values(), ids=WRONG)
def test_what_would_make_the_core_stumble_is_refused_whole(command: FrontCommand) -> None:
    with pytest.raises(BadMessage):
        read(said(Submit(PLAIN, "mine"), command))


def news(**wrong: Any) -> bytes:
    message = front_pb2.FrontNews.FromString(encode_news(News(OUTPUTS)))
    for name, value in wrong.items():
        setattr(message, name, value)
    return message.SerializeToString()


@pytest.mark.parametrize(
    "wrong",
    [
        {"protocol": 2},
        {"tokens": b"1234"},
        {"tokens": b"123"},
        {"token_requests": b"\xff" * 12},
        {"token_branches": b""},
        {"token_logprob_sizes": b"1234"},
        {"token_logprobs": b""},
    ],
    ids=str,
)
def test_columns_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadMessage):
        decode_news(news(**wrong))


def test_a_reason_that_nobody_knows_is_refused() -> None:
    message = front_pb2.FrontNews(protocol=1, finished=[front_pb2.FrontFinished(request="f0.1-a")])
    with pytest.raises(BadMessage):
        decode_news(message.SerializeToString())


@pytest.mark.parametrize(
    "message",
    [
        front_pb2.FrontMessage(protocol=2, stay="f0.1"),
        front_pb2.FrontMessage(stay="f0.1"),
        front_pb2.FrontMessage(protocol=1),
        front_pb2.FrontMessage(protocol=1, stay="f0.1", claimed_names=[b"short"]),
        front_pb2.FrontMessage(protocol=1, stay="f0.1", freed_names=[b"short"]),
        front_pb2.FrontMessage(protocol=1, stay="f0.1", commands=[front_pb2.FrontCommand()]),
    ],
    ids=["another version", "no version", "no stay", "a claim", "a name", "no command"],
)
def test_messages_of_nobody_are_refused(message: front_pb2.FrontMessage) -> None:
    with pytest.raises(BadMessage):
        read(message.SerializeToString())


def test_broken_bytes_are_refused_or_make_a_whole_message_and_nothing_else() -> None:
    frames, draw, refused = [said(*COMMANDS), encode_news(News(OUTPUTS))], random.Random(7), 0
    for place, frame in enumerate(frames):
        for _ in range(1500):
            broken = bytearray(frame)
            for _ in range(draw.randint(1, 4)):
                broken[draw.randrange(len(broken))] = draw.randrange(256)
            if draw.random() < 0.3:
                del broken[draw.randrange(len(broken)) :]
            try:
                read(bytes(broken)) if place == 0 else decode_news(bytes(broken))
            except BadMessage:
                refused += 1
    assert 0 < refused < 3000

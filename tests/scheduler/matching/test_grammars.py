"""Constraints compiled and followed, in this process."""

import json
from collections.abc import Sequence

import pytest
from octavo_scheduler.matching.constraint import Constraint, one_of
from octavo_scheduler.matching.grammars import Grammars
from octavo_scheduler.model import ServedModel

PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
SCHEMA = Constraint("json_schema", json.dumps(PERSON))


@pytest.fixture
def grammars(model: ServedModel) -> Grammars:
    return Grammars(model.vocabulary.tokenizer.to_str(), model.vocab_size, sorted(model.end_token_ids))


def begin(grammars: Grammars, constraint: Constraint, tokens: Sequence[int] = (), key: int = 0) -> set[int] | str:
    """The tokens that may come after these, or why that is wrong."""
    return only(grammars.answer({"begin": [[key, *constraint, list(tokens)]]}))


def only(answer: tuple[dict[str, list[tuple[int, str]]], bytes]) -> set[int] | str:
    head, body = answer
    if head["errors"]:
        return head["errors"][0][1]
    bits = int.from_bytes(body, "little")
    return {token for token in range(8 * len(body)) if bits >> token & 1}


def texts(model: ServedModel, tokens: set[int] | str) -> set[str]:
    assert isinstance(tokens, set), tokens
    return {model.vocabulary.decode([token], skip_special_tokens=False) for token in tokens}


def test_a_mask_has_a_bit_for_each_token_in_whole_words(grammars: Grammars, model: ServedModel) -> None:
    _, body = grammars.answer({"begin": [[0, *SCHEMA, []]]})
    assert len(body) == -(-model.vocab_size // 32) * 4


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (SCHEMA, '{"age": 30}'),
        (Constraint("regex", r"[a-z]+ é[0-9]{2}"), "the é12"),
        (Constraint("grammar", 'start: "a" b+\nb: /[0-9]/ "x"'), "a1x2x"),
        (one_of(["yes", "no", "may be (a|b)? \\é\n"]), "may be (a|b)? \\é\n"),
    ],
)
def test_the_end_may_come_where_the_text_is_whole_and_nowhere_before(
    grammars: Grammars, model: ServedModel, constraint: Constraint, text: str
) -> None:
    tokens, ends = model.vocabulary.encode(text), set(model.end_token_ids)
    for end in range(len(tokens)):
        allowed = begin(grammars, constraint, tokens[:end])
        assert isinstance(allowed, set)
        assert tokens[end] in allowed
        if constraint.kind != "grammar":
            assert not allowed & ends
    allowed = begin(grammars, constraint, tokens)
    assert isinstance(allowed, set)
    assert ends <= allowed


def test_where_only_the_end_can_come_nothing_else_is_allowed(grammars: Grammars, model: ServedModel) -> None:
    assert begin(grammars, one_of(["yes", "no"]), model.vocabulary.encode("no")) == set(model.end_token_ids)


def test_a_choice_means_its_letters_and_nothing_more(grammars: Grammars, model: ServedModel) -> None:
    assert texts(model, begin(grammars, one_of(["a.c", "[x"]))) == {"a", "["}
    assert texts(model, begin(grammars, one_of(["a.c", "[x"]), model.vocabulary.encode("a"))) == {"."}


def test_an_answer_is_followed_token_by_token(grammars: Grammars, model: ServedModel) -> None:
    tokens = model.vocabulary.encode('{"age": 30}')
    at_once = [begin(grammars, SCHEMA, tokens[:end], key=1 + end) for end in range(len(tokens) + 1)]
    begin(grammars, SCHEMA)
    assert [only(grammars.answer({"step": [[0, [token]]]})) for token in tokens] == at_once[1:]


@pytest.mark.parametrize(
    ("constraint", "sentence"),
    [
        (Constraint("json_schema", "nope"), "it is no JSON"),
        (Constraint("json_schema", "[" * 10_000), "it is nested too deeply"),
        (Constraint("json_schema", '{"type": "objectx"}'), "objectx"),
        (Constraint("json_schema", "false"), "Unsatisfiable schema"),
        (Constraint("json_schema", '{"type": "string", "pattern": "("}'), "unclosed group"),
        (Constraint("regex", "("), "unclosed group"),
        (Constraint("regex", "[a-z&&0-9]+"), ""),
        (Constraint("grammar", "start: nothing"), "unknown name"),
        (Constraint("grammar", "nonsense"), ""),
    ],
)
def test_SO01_SO02_what_makes_no_grammar_is_said_in_one_line(
    grammars: Grammars, constraint: Constraint, sentence: str
) -> None:
    said = begin(grammars, constraint)
    assert isinstance(said, str)
    assert sentence in said
    assert said.isprintable()
    assert isinstance(begin(grammars, SCHEMA), set)  # a bad grammar before a good one, and after it
    assert begin(grammars, constraint) == said


def test_an_answer_that_is_not_of_the_grammar_is_said_to_be_none(grammars: Grammars, model: ServedModel) -> None:
    tokens = model.vocabulary.encode('{"age": x')
    assert begin(grammars, SCHEMA, tokens) == f"it does not allow token {len(tokens) - 1} of what was answered"


def test_what_one_key_does_wrong_harms_no_other(grammars: Grammars, model: ServedModel) -> None:
    good = [0, *SCHEMA, []]
    head, body = grammars.answer({"begin": [good, [1, "regex", "(", []], [2, *SCHEMA, []]]})
    assert head["masks"] == [0, 2]
    assert [key for key, _ in head["errors"]] == [1]
    assert body[: len(body) // 2] == body[len(body) // 2 :]

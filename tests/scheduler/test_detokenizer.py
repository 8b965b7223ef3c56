"""Text from tokens that begin and end anywhere: what other servers got wrong."""

import pytest
from octavo_scheduler.answer import Answer, BranchEnd, Piece
from octavo_scheduler.core.events import Committed, Finished, Started
from octavo_scheduler.core.request import FinishReason
from octavo_scheduler.model import ServedModel, load_model
from octavo_scheduler.tokens import Detokenizer, Vocabulary
from tokenizers import Tokenizer, decoders, models

from tests.models import smollm2
from tests.scheduler.scripted import end, of_bytes, of_texts, parsed, streamed, texts, tokens

REPLACEMENT = "\ufffd"


def pushed(model: ServedModel, ids: list[int], prompt: tuple[int, ...] = ()) -> list[str]:
    detokenizer = Detokenizer(model.vocabulary, prompt)
    return [*map(detokenizer.push, ids), detokenizer.flush()]


def astride(text: str, width: int = 3) -> tuple[ServedModel, list[int]]:
    """A vocabulary whose tokens cut every character of the text: each has the end of one and the beginning of the next."""
    data = text.encode()
    return of_bytes(data[:1], *(data[at : at + width] for at in range(1, len(data), width)))


@pytest.mark.parametrize("length", range(1, 40))
def test_DT01_characters_are_shown_whole_however_many_tokens_in_a_row_begin_and_end_inside_one(length: int) -> None:
    text = ("삼겹살을먹었다" * 6)[:length]
    model, ids = astride(text)
    shown = pushed(model, ids)
    assert "".join(shown) == text == model.vocabulary.decode(ids)
    assert shown[:length] == ["", *text][:length], "each as soon as its last byte is there"


def test_DT02_a_batch_a_stream_and_a_whole_answer_have_the_same_text() -> None:
    words = ["🙂🌶", "👩‍👧"]
    models, ids = zip(*(of_bytes(*(bytes([byte]) for byte in word.encode())) for word in words), strict=True)
    alone = [streamed(model, parsed(model), mine) for model, mine in zip(models, ids, strict=True)]
    whole = [streamed(model, parsed(model), mine, at_once=100) for model, mine in zip(models, ids, strict=True)]
    answers = [Answer(model, parsed(model)) for model in models]
    together: list[list[str]] = [[], []]
    for place in range(max(map(len, ids))):
        for answer, mine, shown in zip(answers, ids, together, strict=True):
            if place < len(mine):
                shown += texts(answer.take([Committed("r", 0, place, mine[place])]))
    assert ["".join(texts(events)) for events in alone] == words
    assert ["".join(texts(events)) for events in whole] == words
    assert ["".join(shown) for shown in together] == words


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((b"\xe4\xb8", b" x", b"\xad"), "\ufffd x\ufffd"),
        ((b"\xe4\xb8", b"\xad x", b"\xe4", b" "), "中 x\ufffd "),
        ((b"\xff", b"\xe4\xb8", b"\xad", b"\xf0\x9f"), "\ufffd中\ufffd"),
        ((b" \xe4", b" \xe4", b" \xe4"), " \ufffd \ufffd \ufffd"),
    ],
)
def test_DT04_only_bytes_that_are_no_character_are_replaced_and_nothing_is_raised(
    parts: tuple[bytes, ...], text: str
) -> None:
    model, ids = of_bytes(*parts)
    assert "".join(pushed(model, ids)) == text


@pytest.mark.parametrize("num_bytes", [1, 2, 3])
@pytest.mark.parametrize("before", [b"Hello world ", b"", "x🌶".encode()])
def test_DT05_a_character_that_the_prompt_began_is_shown_once_and_nothing_of_the_prompt(
    num_bytes: int, before: bytes
) -> None:
    model, (first, *rest, hot) = of_bytes(before or b"a", *(bytes([byte]) for byte in "🌶".encode()), b" hot")
    prompt = [first, *rest[:num_bytes]] if before else rest[:num_bytes]
    events = streamed(model, parsed(model, prompt), [*rest[num_bytes:], hot])
    assert "".join(texts(events)) == "🌶 hot"
    assert "".join(texts(streamed(model, parsed(model, prompt), [hot]))) == " hot", "the prompt's own bytes stay there"


@pytest.mark.parametrize("width", [2, 3, 4, 5])
@pytest.mark.parametrize("num_prompt", range(1, 24))
def test_DT05_a_prompt_whose_every_token_ends_inside_a_character_is_gone_on_with(width: int, num_prompt: int) -> None:
    text = "\U0001f336\uc0bc\uacb9\U0001f642" * 8
    model, ids = astride(text, width)
    prompt, rest = tuple(ids[:num_prompt]), ids[num_prompt:]
    known = text.encode()[: 1 + width * (num_prompt - 1)].decode(errors="ignore")
    assert known + "".join(pushed(model, rest, prompt)) == text


def test_DT05_bytes_of_the_prompt_that_are_no_text_stay_there() -> None:
    model, ids = of_bytes(*[b"\xff"] * 20, b"\xf0", b"\x9f", b"\x99", b"\x82", b"!")
    assert "".join(pushed(model, ids[-2:], tuple(ids[:-2]))) == "\U0001f642!"
    assert "".join(pushed(model, ids[-1:], tuple(ids[:-2]))) == "!"


@pytest.mark.model
def test_DT06_chinese_answers_are_what_the_tokenizer_decodes() -> None:
    vocabulary = load_model(smollm2()).vocabulary
    for text in ("今天天气如何？", "今天天气很好，适合出去散步。", "客单价"):
        ids = vocabulary.encode(text)
        detokenizer = Detokenizer(vocabulary)
        assert "".join(map(detokenizer.push, ids)) == vocabulary.decode(ids) == text
        assert detokenizer.flush() == ""


def with_bytes(*pieces: str) -> ServedModel:
    """As a Llama's: pieces after the 256 bytes, and one byte that is no text spoils all bytes beside it."""
    names = [*(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    tokenizer = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return ServedModel("bytes", Vocabulary(tokenizer), len(names), 64, frozenset(), None, {})


def test_DT09_text_that_the_tokens_after_it_would_change_stays_and_the_answer_goes_on() -> None:
    model = with_bytes("\u2581a", "b")
    ids = [*"你".encode(), 0xFF, *"好".encode(), 256, 257]
    assert model.vocabulary.decode(ids[:3]) == "你"
    assert not model.vocabulary.decode(ids[:4]).startswith("你"), "its decoder takes back what it said"
    shown = "".join(pushed(model, ids))
    assert shown.startswith("你" + REPLACEMENT)
    assert shown.endswith(" ab")
    assert "".join(pushed(model, [*"你".encode(), *"好".encode()[:2]])) == "你" + 2 * REPLACEMENT


def test_DT10_a_token_that_no_vocabulary_has_is_no_text_and_raises_nothing() -> None:
    model = of_texts("a", "b")
    assert pushed(model, [0, 3, 2**31 - 1, 1]) == ["a", "", "", "b", ""]


def test_DT12_text_comes_from_all_tokens_and_not_from_each_by_itself() -> None:
    model, ids = of_bytes(b"\xe5\xae", "客".encode()[2:] + "单".encode(), "价".encode())
    assert [REPLACEMENT in model.vocabulary.decode([token]) for token in ids] == [True, True, False]
    assert texts(streamed(model, parsed(model), ids)) == ["", "客单", "价"]


@pytest.mark.parametrize("max_tokens", [1, 2, 3])
def test_DT13_an_answer_that_its_limit_cuts_inside_a_character_ends_well_with_a_replacement_and_all_ids(
    max_tokens: int,
) -> None:
    model, _ = of_bytes(*(bytes([byte]) for byte in "🙂".encode()))
    answer = Answer(model, parsed(model, max_tokens=max_tokens))
    events = answer.take([Started("r", 0.0, 0), *(Committed("r", 0, n, n) for n in range(max_tokens))])
    events += answer.take([Finished("r", 0, FinishReason.LENGTH, max_tokens, 0)])
    assert "".join(texts(events)) == REPLACEMENT
    assert tokens(events) == list(range(max_tokens))
    assert end(events).branches == (BranchEnd(FinishReason.LENGTH, None, None),)
    assert [event.tokens for event in events if isinstance(event, Piece)][-1] == (), "it is certain at the end only"


@pytest.mark.model
@pytest.mark.filterwarnings("ignore")
def test_DT14_spaces_beside_control_tokens_and_apostrophes_are_those_of_transformers() -> None:
    from transformers import AutoTokenizer

    path, vocabulary = smollm2(), load_model(smollm2()).vocabulary
    theirs = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    texts = [
        "Test:<|im_start|>This is a test<|im_end|>\n<|im_start|>",
        "<|im_start|> a <|im_end|> b",
        "it 's it's it' s",
        " don t don't don 't",
        "a , b . c ! d ?",
    ]
    for text in texts:
        ids = vocabulary.encode(text)
        assert ids == theirs.encode(text, add_special_tokens=False)
        detokenizer = Detokenizer(vocabulary, skip_special_tokens=False)
        shown = "".join(map(detokenizer.push, ids)) + detokenizer.flush()
        assert shown == theirs.decode(ids, clean_up_tokenization_spaces=False) == text

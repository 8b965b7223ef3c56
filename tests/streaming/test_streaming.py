"""A share of `make streaming-check`, and that it notices what other servers got wrong."""

from collections.abc import Callable, Sequence

import pytest
from octavo_scheduler import answer
from octavo_scheduler.stops import StopScanner
from octavo_scheduler.tokens import Detokenizer, Vocabulary

from tests.streaming.cases import Findings, boundaries, drawn, judge
from tests.streaming.scripts import SCRIPTS
from tests.streaming.vocabularies import kinds

pytestmark = pytest.mark.model
SPLITS = 800
NAMES = ("byte-level of SmolLM2", "byte-level across words", "SentencePiece", "Unigram", "WordPiece")


def of(name: str, splits: int, texts: int) -> Findings:
    found, kind = Findings(), kinds()[name]
    for number in range(splits):
        judge(drawn(kind, number), found)
    for number, script in enumerate(SCRIPTS[:texts]):
        for case in boundaries(kind, script, number):
            judge(case, found)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_DT08_streamed_text_is_that_of_all_tokens_however_a_text_is_split(
    name: str, figure: Callable[[str], None]
) -> None:
    found = of(name, SPLITS, texts=0)
    assert (found.num_wrong, found.problems) == (0, [])
    assert found.splits == SPLITS
    assert SPLITS / 4 < found.stopped < SPLITS * 3 / 4
    figure(f"streaming: {name}: {found.splits} splits of {len(SCRIPTS)} scripts, {found.stopped} stopped, 0 different")


@pytest.mark.parametrize("name", NAMES)
def test_a_stop_string_is_found_and_kept_back_in_whatever_portions_its_tokens_come(name: str) -> None:
    found = of(name, 0, texts=8)
    assert (found.num_wrong, found.problems) == (0, [])
    assert found.stopped == found.splits > 0


class TokenByToken(Detokenizer):
    """Decodes each token by itself."""

    def push(self, token: int) -> str:
        return self._vocabulary.decode([token])


class WithoutPrompt(Detokenizer):
    """Takes an answer for a text of its own."""

    def __init__(self, vocabulary: Vocabulary, prompt: Sequence[int] = (), *, skip_special_tokens: bool = True) -> None:
        super().__init__(vocabulary, skip_special_tokens=skip_special_tokens)


class Eager(StopScanner):
    """Shows what may be the beginning of a stop string."""

    def _possible_start(self, text: str) -> int:
        return 0


class Repeating(StopScanner):
    """Shows a stop string once more where it is to be left in."""

    def push(self, text: str, *, is_early: bool = False) -> tuple[str, str | None]:
        shown, stop = super().push(text, is_early=is_early)
        return (shown + stop if stop and self._include else shown), stop


@pytest.mark.parametrize("detokenizer", [TokenByToken, WithoutPrompt])
def test_text_that_is_not_that_of_all_tokens_is_noticed(
    monkeypatch: pytest.MonkeyPatch, detokenizer: type[Detokenizer]
) -> None:
    monkeypatch.setattr(answer, "Detokenizer", detokenizer)
    found = of("byte-level across words", 300, texts=0)
    assert found.different > 10
    assert found.stray_replacement > 10


@pytest.mark.parametrize("scanner", [Eager, Repeating])
def test_a_stop_string_that_leaks_or_comes_twice_is_noticed(
    monkeypatch: pytest.MonkeyPatch, scanner: type[StopScanner]
) -> None:
    monkeypatch.setattr(answer, "StopScanner", scanner)
    found = of("SentencePiece", 300, texts=3)
    assert found.different > 10
    assert (found.stop_leaks if scanner is Eager else found.stop_duplicates) > 10

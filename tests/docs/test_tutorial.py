"""The commands of docs/tutorial/first-steps.md, as somebody types them who has installed."""

import os
import re
import sys

import pytest

from tests.docs.pages import ROOT
from tests.docs.typed import OFFLINE, PATIENCE, shell_blocks, typed

pytestmark = pytest.mark.timeout(PATIENCE + 60)

STEPS = ("serve", "complete", "look inside", "again", "two workers", "kill")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "LICENSE").symlink_to(ROOT / "LICENSE")
    install, *rest = shell_blocks(ROOT / "docs" / "tutorial" / "first-steps.md")
    assert install == "make install\n"
    return typed(dict(zip(STEPS, rest, strict=True)), folder, OFFLINE, os.environ)


def test_an_answer_leaves_a_full_page_in_the_cache(printed: dict[str, str]) -> None:
    assert "Paris" in printed["complete"]
    assert "1 cached" in printed["look inside"]


def test_a_long_prompt_is_found_when_it_is_asked_again(printed: dict[str, str]) -> None:
    queries, hits = (
        int(re.findall(rf'"{name}": "(\d+)"', printed["again"])[0]) for name in ("prefix_queries", "prefix_hits")
    )
    assert hits % 16 == 0
    assert 0 <= queries // 2 - hits < 32, "all of the second but what is no full page, and the first answer's prompt"


def test_a_story_goes_on_when_its_worker_is_killed(printed: dict[str, str]) -> None:
    stories, _, workers = printed["kill"].partition("SmolLM2")
    assert len(stories.split()) > 100
    assert re.findall(r"^ (one|two) +ready", workers, re.MULTILINE) == ["two"]

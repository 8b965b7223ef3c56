"""What `make mutants` relies on: mistakes have their place, rules make programs, a child notices a mistake."""

import ast

import pytest

from benchmarks.mutants.__main__ import run
from benchmarks.mutants.rules import RULES, Mutant, sample, sites
from benchmarks.mutants.written import explained, written


def test_every_mistake_that_somebody_thought_of_still_has_its_place() -> None:
    mutants = written()
    assert len(mutants) >= 60
    assert all(mutant.source != mutant.path.read_text() for mutant in mutants)


def test_every_rule_applies_somewhere() -> None:
    assert {site.rule for site in sites()} == set(RULES)


def test_mutants_by_rule_are_programs_that_differ_from_the_original() -> None:
    for mutant in sample(20):
        original = ast.unparse(ast.parse(mutant.path.read_text()))
        assert ast.unparse(ast.parse(mutant.source)) != original
        assert mutant.diff


def test_each_explanation_gives_a_reason() -> None:
    assert all(len(reason) > 20 for reason in explained().values())


@pytest.mark.parametrize("name", ["a page is freed twice", "an old epoch is accepted"])
def test_a_mistake_is_noticed_and_the_real_files_stay_as_they_are(name: str) -> None:
    mutant: Mutant = next(each for each in written() if each.name.endswith(name))
    before = mutant.path.read_text()
    assert run(mutant, 100)["killed"]
    assert mutant.path.read_text() == before

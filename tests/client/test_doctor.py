"""octavo doctor, asked about a real scheduler with a paper worker."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from octavo_client.cli import main
from octavo_scheduler.model import ServedModel

from tests.client.test_operator_verbs import Octavo, model, octavo, service
from tests.doubles.paper_service import PaperService, paper_service
from tests.doubles.paper_worker import PaperWorker

__all__ = ["model", "octavo", "service"]

SOON = ("--seconds", "0.05")


async def test_of_a_server_that_is_well_it_says_so(octavo: Octavo, service: PaperService) -> None:
    service.is_open.set()
    await service.ask("a", [1, 2, 3])
    code, out, _ = await octavo("doctor", *SOON)
    assert code == 0, out
    well = "tiny is well: workers ready 1, pages held 0 of 16, requests alive 0, sequences waiting 0, tokens/s 0.0.\n"
    assert out == well


async def test_what_is_wrong_is_a_sentence_each_and_the_exit_code(octavo: Octavo, service: PaperService) -> None:
    await service.client.drain_worker("w0")
    code, out, _ = await octavo("doctor", *SOON)
    assert code == 1
    assert out.startswith("No worker takes new work (sequences that wait: 0): w0 is draining.")
    code, out, _ = await octavo("doctor", "--json", *SOON)
    told = json.loads(out)
    assert (code, told["healthy"]) == (1, False)
    assert [each["rule"] for each in told["findings"]] == ["nobody_works"]


async def test_plain_text_on_an_address_that_others_may_reach_is_found(
    model: ServedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who dials 0.0.0.0 gets to the loopback, but by a name that could be anybody's."""
    async with paper_service(model, tmp_path, PaperWorker(), "--listen", "127.0.0.1:0") as service:
        elsewhere = service.scheduler.address.replace("127.0.0.1", "0.0.0.0")
        code = await asyncio.to_thread(main, ["doctor", "--address", elsewhere, "--timeout", "20", *SOON])
    assert code == 1
    plain, no_answer = capsys.readouterr().out.splitlines()
    assert plain == f"{elsewhere} can be reached from elsewhere and speaks plain text: put TLS there."
    assert no_answer.startswith(f"No server answers at {elsewhere}: ")


def test_where_nobody_answers_that_is_the_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--address", "unix:/nowhere/octavo.sock"]) == 1
    assert capsys.readouterr().out.startswith("No server answers at unix:/nowhere/octavo.sock: ")


def test_two_looks_must_be_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--seconds", "0"]) == 2
    assert "must be more than 0 seconds apart" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_given_a_log_it_becomes_the_doctor_of_logs(flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[str] = []

    def execv(_path: str, words: list[str]) -> NoReturn:
        became.extend(words)
        raise SystemExit

    monkeypatch.setattr(os, "execv", execv)
    with pytest.raises(SystemExit):
        main(["doctor", *flags, "run.log"])
    assert became == [sys.executable, "-m", "octavo_scheduler.offline.doctor", "run.log", *flags]

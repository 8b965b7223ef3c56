import asyncio
import importlib.metadata
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from octavo_client.cli import main
from octavo_client.local import LocalServer

from tests.client.programs import JOINED, SCHEDULER, WORKER
from tests.doubles.inference_server import InferenceServer
from tests.patience import PATIENCE
from tests.processes import launched


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"octavo {importlib.metadata.version('octavo')}\n"


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    for verb in (
        "serve",
        "prepare",
        "scheduler",
        "worker",
        "keys",
        "record",
        "replay",
        "doctor",
        "complete",
        "chat",
        "status",
        "explain",
        "pages",
        "pin",
        "demo",
    ):
        assert re.search(rf"^    {verb}\s", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "required: VERB"),
        (["fly"], "invalid choice: 'fly'"),
        (["complete"], "required: PROMPT"),
        (["complete", "a", "--max-tokens", "many"], "invalid int value: 'many'"),
        (["serve", "m", "n"], "unrecognized arguments: n"),
        (["serve", "m", "--frobnicate", "1"], "unrecognized arguments: --frobnicate"),
        (["demo", "stray"], "unrecognized arguments: stray"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_names_the_word(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["complete", "a", "--seed", "-1"], 2, "octavo: seed must be from 0"),
        (["complete", "a", "--token-file", "/no/token"], 2, "octavo: The token file /no/token cannot be read"),
        (["serve", "m", "--listen", "0.0.0.0:1"], 2, "octavo: 0.0.0.0:1 is not an address of this machine only"),
        (["serve", "m", "--workers", "0"], 2, "octavo: The number of workers must be at least 1"),
        (["status", "--address", "unix:/nowhere/a.sock"], 1, "octavo: "),
    ],
)
def test_a_failure_is_one_sentence_on_stderr(
    words: list[str], code: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == code
    err = capsys.readouterr().err
    assert err.startswith(complaint)
    assert err.count("\n") == 1


def test_complete_streams_the_answer_to_stdout(local_server: LocalServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["complete", "good day", "--address", local_server.address]) == 0
    assert capsys.readouterr().out == "GOOD DAY \n"


def test_complete_writes_several_answers_whole_and_numbered(
    local_server: LocalServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["complete", "good day", "--n", "2", "--address", local_server.address]) == 0
    assert capsys.readouterr().out == "[0] GOOD DAY \n[1] DAY \n"


def test_complete_reads_a_prompt_from_stdin(
    local_server: LocalServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("from stdin"))
    assert main(["complete", "-", "--address", local_server.address]) == 0
    assert capsys.readouterr().out == "FROM STDIN \n"


def test_an_error_of_the_server_is_one_sentence_and_exit_code_1(
    local_server: LocalServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["complete", "fail INTERNAL it broke", "--address", local_server.address]) == 1
    assert capsys.readouterr().err == "octavo: it broke\n"


async def test_only_the_flags_that_were_given_are_sent(server: InferenceServer) -> None:
    words = ["complete", "a", "--address", server.address, "--top-p", "0.5", "--stop", "x", "--stop", "y"]
    assert await asyncio.to_thread(main, words) == 0
    sampling, stopping = server.requests[0].options.sampling, server.requests[0].options.stopping
    assert sampling.top_p == 0.5
    assert sampling.temperature == 0, "the command line is greedy unless told otherwise"
    assert [name for name in ("top_k", "min_p", "seed") if sampling.HasField(name)] == []
    assert not stopping.HasField("max_tokens")
    assert list(stopping.stop) == ["x", "y"]


async def test_chat_keeps_the_history_until_it_is_cleared(
    server: InferenceServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["hello", "", "fail INTERNAL lost", "bye", "/clear", "again", "/quit", "never sent"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    assert await asyncio.to_thread(main, ["chat", "--system", "Be kind.", "--address", server.address]) == 0
    conversations = [[message.content for message in request.messages] for request in server.requests]
    assert conversations == [
        ["Be kind.", "hello"],
        ["Be kind.", "hello", "HELLO ", "fail INTERNAL lost"],
        ["Be kind.", "hello", "HELLO ", "bye"],
        ["Be kind.", "again"],
    ]
    captured = capsys.readouterr()
    assert "BYE " in captured.out
    assert "octavo: lost" in captured.err


def test_ctrl_c_stops_the_answer_and_the_chat_goes_on(local_server: LocalServer) -> None:
    command = [sys.executable, "-m", "octavo_client", "chat", "--address", local_server.address]
    pipe = subprocess.PIPE
    with launched(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=1) as chat:
        assert chat.stdin is not None
        assert chat.stdout is not None
        chat.stdin.write("hang\n")
        said = ""
        while not said.endswith("HANG "):
            said += chat.stdout.read(1)
        chat.send_signal(signal.SIGINT)
        out, _ = chat.communicate("hello\n/quit\n", timeout=PATIENCE)
    assert out == " [stopped]\n> HELLO \n> "
    assert chat.returncode == 0


def test_ctrl_c_pressed_twice_ends_a_completion_without_a_traceback(local_server: LocalServer) -> None:
    command = [sys.executable, "-m", "octavo_client", "complete", "hang", "--address", local_server.address]
    with launched(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as complete:
        assert complete.stdout is not None
        assert complete.stdout.read(4) == "HANG"
        complete.send_signal(signal.SIGINT)
        complete.send_signal(signal.SIGINT)
        _, err = complete.communicate(timeout=PATIENCE)
    assert (complete.returncode, err) == (130, "")


def test_status_shows_the_workers_and_json_has_all_of_it(
    local_server: LocalServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["status", "--address", local_server.address]) == 0
    out = capsys.readouterr().out
    assert re.search(r"worker-0 +ready +double +0 +0 +10/100 +0 +40 +0/0 +97\.0%", out)
    assert main(["status", "--json", "--address", local_server.address]) == 0
    assert json.loads(capsys.readouterr().out)["workers"][0]["device"]["peak_held"] == 40


@pytest.mark.parametrize(
    ("verb", "module"),
    [
        ("scheduler", "octavo_scheduler"),
        ("worker", "octavo_worker"),
        ("keys", "octavo_scheduler.keys"),
        ("record", "octavo_scheduler.record_program"),
        ("replay", "octavo_scheduler.offline.replay"),
    ],
)
def test_programs_get_all_their_words_untouched(verb: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[str] = []

    def execv(_path: str, words: list[str]) -> NoReturn:
        became.extend(words)
        raise SystemExit

    monkeypatch.setattr(os, "execv", execv)
    with pytest.raises(SystemExit):
        main([verb, "--help", "--model", "m"])
    assert became == [sys.executable, "-m", module, "--help", "--model", "m"]


SERVE = """
import sys
from octavo_client import cli
from octavo_client.local import Programs
from octavo_client.verbs import serve
args = cli._parser().parse_args(sys.argv[1:])
sys.exit(serve.serve(args, Programs({scheduler!r}, {worker!r})))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_prints_one_ready_line_and_ends_in_order_at_a_signal(number: signal.Signals) -> None:
    script = SERVE.format(scheduler=SCHEDULER, worker=WORKER)
    words = ["serve", "model", "--listen", "127.0.0.1:0", "--workers", "2", "--quiet"]
    with launched([sys.executable, "-c", script, *words], stdout=subprocess.PIPE) as serve:
        assert serve.stdout is not None
        ready = serve.stdout.readline()
        address = ready.split(" on ")[1].split()[0]
        assert ready.startswith(f"octavo: serving double on {address} with 2 workers")
        assert main(["status", "--address", address]) == 0
        serve.send_signal(number)
        assert serve.stdout.read() == ""
    assert serve.returncode == 0


def test_serve_reports_a_lost_worker_and_ends_with_the_last_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "worker-0")
    os.mkfifo(tmp_path / "worker-1")
    waits_for_us = (
        "import pathlib, sys",
        JOINED,
        "name = sys.argv[sys.argv.index('--worker-id') + 1]",
        "(pathlib.Path(sys.argv[1]) / name).read_text()",
        "sys.exit('octavo worker: out of memory')",
    )
    worker = (sys.executable, "-c", "\n".join(waits_for_us), str(tmp_path))
    script = SERVE.format(scheduler=SCHEDULER, worker=worker)
    words = ["serve", "model", "--quiet", "--workers", "2", "--listen", "127.0.0.1:0"]
    pipe = subprocess.PIPE
    with launched([sys.executable, "-c", script, *words], stdout=pipe, stderr=pipe) as serve:
        assert serve.stdout is not None
        assert serve.stderr is not None
        assert serve.stdout.readline().startswith("octavo: serving double")
        (tmp_path / "worker-1").write_text("")
        lost = "The worker-1 ended with exit code 1: octavo worker: out of memory"
        assert serve.stderr.readline() == f"octavo: {lost} (1 of 2 workers left)\n"
        (tmp_path / "worker-0").write_text("")
        assert "octavo_client.errors.StartFailed: The worker-0 ended with exit code 1" in serve.stderr.read()
    assert serve.returncode == 1

import os
import re
import select
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from octavo_client.errors import ConfigError, StartFailed
from octavo_client.local import LocalServer, Programs
from octavo_client.sync import Client

from tests.client.programs import JOINED, SCHEDULER, WORKER
from tests.patience import PATIENCE

NEVER_SERVING = (*SCHEDULER, "--not-serving")


def python(*lines: str) -> tuple[str, ...]:
    return (sys.executable, "-c", "\n".join(lines))


def wait_for_end(pid: int) -> bool:
    """Says whether the process ends within 30 seconds; it need not be a child of ours."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], PATIENCE)[0])
    finally:
        os.close(descriptor)


def test_it_serves_on_a_socket_only_this_user_can_reach_and_leaves_nothing(programs: Programs) -> None:
    with LocalServer("model", workers=2, programs=programs) as server:
        folder = Path(server.address.removeprefix("unix:")).parent
        assert folder.stat().st_mode & 0o777 == 0o700
        assert len(server.address) < 100
        assert server.model_name == "double"
        assert [child.name for child in server.children] == ["scheduler", "worker-0", "worker-1"]
        pids = [child.pid for child in server.children]
        with Client(server.address) as client:
            assert client.generate("one").outputs[0].text == "ONE "
    assert not folder.exists()
    assert all(wait_for_end(pid) for pid in pids)
    server.close()  # a second time does nothing


def test_a_port_picked_by_the_system_is_read_from_the_ready_line(programs: Programs) -> None:
    with LocalServer("model", listen="127.0.0.1:0", programs=programs) as server:
        assert re.fullmatch(r"127\.0\.0\.1:[1-9]\d*", server.address)


def test_the_programs_get_their_flags(tmp_path: Path) -> None:
    record = "import sys; open(sys.argv[1], 'w').write(' '.join(sys.argv[2:])); sys.exit(3)"
    scheduler = (sys.executable, "-c", record, str(tmp_path / "scheduler"))
    worker = (*python("import sys, os", "os.read(int(sys.argv[-1]), 1)"),)
    server = LocalServer("m.gguf", scheduler_flags=["--preempt", "drop"], programs=Programs(scheduler, worker))
    with pytest.raises(StartFailed):
        server.start()
    words = (tmp_path / "scheduler").read_text()
    assert re.fullmatch(
        r"--model m\.gguf --listen unix:\S+/grpc\.sock --workers ipc://\S+/link\.sock --preempt drop --lifeline \d+",
        words,
    )


def test_a_worker_that_fails_is_quoted_with_its_last_lines_and_the_rest_is_ended() -> None:
    worker = python(
        "import sys",
        "print('loading 10 %\\rloading 20 %', file=sys.stderr)",
        "print('octavo worker: no such model: m.gguf', file=sys.stderr)",
        "sys.exit(2)",
    )
    server = LocalServer("m.gguf", programs=Programs(NEVER_SERVING, worker))
    with pytest.raises(StartFailed) as caught:
        server.start()
    assert str(caught.value) == "The worker-0 ended with exit code 2: octavo worker: no such model: m.gguf"
    assert caught.value.lines == ("loading 20 %", "octavo worker: no such model: m.gguf")
    assert server.children == ()


def test_a_scheduler_that_ends_without_a_word_is_named() -> None:
    silent = Programs(python("raise SystemExit(1)"), WORKER)
    with pytest.raises(StartFailed, match=r"^The scheduler ended with exit code 1: it printed nothing$"):
        LocalServer("model", programs=silent).start()


def test_verbose_children_write_to_our_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    loud = Programs(python("raise SystemExit('what I have to say')"), WORKER)
    with pytest.raises(StartFailed, match=r"ended with exit code 1 .see above.$"):
        LocalServer("model", verbose=True, programs=loud).start()
    assert "what I have to say" in capfd.readouterr().err


def test_a_second_worker_that_fails_is_not_passed_over() -> None:
    second_fails = python(
        "import os, sys",
        "if 'worker-1' in sys.argv: sys.exit('other weights')",
        JOINED,
        "os.read(int(sys.argv[-1]), 1)",
    )
    with pytest.raises(StartFailed, match="worker-1 ended with exit code 1: other weights"):
        LocalServer("model", workers=2, programs=Programs(SCHEDULER, second_fails)).start()


def test_a_program_that_is_not_there_is_a_start_that_failed() -> None:
    with pytest.raises(StartFailed, match=r"cannot be started: .*/no/such/program"):
        LocalServer("model", programs=Programs(("/no/such/program",), WORKER)).start()


def test_waiting_ends_at_the_timeout_or_when_asked_to_stop() -> None:
    never = Programs(NEVER_SERVING, WORKER)
    with pytest.raises(StartFailed, match=r"Not all workers were ready within 0\.3 seconds"):
        LocalServer("model", start_timeout=0.3, programs=never).start()
    stop = threading.Event()
    stop.set()
    server = LocalServer("model", programs=never)
    server.start(stop)
    server.close()


def test_wrong_settings_are_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        LocalServer("model", workers=0)
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0:50051 is not an address of this machine only"):
        LocalServer("model", listen="0.0.0.0:50051")


def test_a_child_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo_client.local.SECONDS_TO_END", 0.2)
    deaf = ("import signal", "signal.signal(signal.SIGTERM, signal.SIG_IGN)", JOINED, "signal.pause()")
    stubborn = python(*deaf)
    server = LocalServer("model", programs=Programs(SCHEDULER, stubborn))
    server.start()
    pid = server.children[1].pid
    assert server.children[1].exit_code() is None
    server.close()
    assert wait_for_end(pid)


PARENT = textwrap.dedent("""
    import signal
    from octavo_client.local import LocalServer, Programs
    server = LocalServer("model", workers=2, programs=Programs({scheduler!r}, {worker!r}))
    server.start()
    print(*(child.pid for child in server.children), flush=True)
    {then}
""")


@pytest.mark.parametrize("ending", ["SIGKILL", "exit", "exception"])
def test_the_children_end_when_the_parent_does_by_any_cause(ending: str, tmp_path: Path) -> None:
    then = {"SIGKILL": "signal.pause()", "exit": "", "exception": "raise RuntimeError"}[ending]
    script = PARENT.format(scheduler=SCHEDULER, worker=WORKER, then=then)
    environment = os.environ | {"TMPDIR": str(tmp_path)}  # SIGKILL leaves the runtime folder behind
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        if ending == "SIGKILL":
            parent.send_signal(signal.SIGKILL)
    assert len(pids) == 3
    assert all(wait_for_end(pid) for pid in pids)
    assert (list(tmp_path.iterdir()) == []) is (ending != "SIGKILL")

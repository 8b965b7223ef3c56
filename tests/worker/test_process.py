"""`python -m octavo_worker` as a process: its line, its ends, and its sentences."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.worker.router import Router
from tests.worker.test_custom_ops import PACKAGE


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Router]:
    made = Router(tmp_path / "step.ipc")
    yield made
    made.close()


def spawn(*flags: object, pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "octavo_worker", "--threads", "1", *map(str, flags)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=pass_fds, env=os.environ
    )


def test_a_worker_says_that_it_joined_and_sigterm_ends_it_in_order(router: Router, tiny: Path) -> None:
    process = spawn("--model", tiny, "--scheduler", router.address, "--worker-id", "w7", "--pages", 12)
    router.welcome()
    router.receive("heartbeat")
    process.send_signal(signal.SIGTERM)
    router.receive("goodbye")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert out.startswith(f"octavo worker: w7 joined {router.address}, 12 pages of 16 tokens (")
    assert out.endswith(" GiB)\n")
    assert err == ""


def test_a_worker_without_cpu_kernels_says_so_in_one_line_and_runs(
    router: Router, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCTAVO_CPU_LIBRARY", str(tmp_path / "not-there.so"))
    process = spawn("--model", tiny, "--scheduler", router.address, "--pages", 12)
    router.welcome()
    router.receive("heartbeat")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert err.count("\n") == 1
    assert "runs on `reference`" in err
    assert "python -m octavo_kernels.cpu.compile" in err


def test_a_worker_serves_with_ops_of_a_package_and_says_so(
    router: Router, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((*sys.path, str(PACKAGE))))
    process = spawn("--model", tiny, "--scheduler", router.address, "--pages", 12, "--ops", "plain")
    assert router.welcome().kernels.endswith("+plain")
    router.receive("heartbeat")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_the_end_of_the_lifeline_ends_the_worker(router: Router, tiny: Path) -> None:
    read, write = os.pipe()
    process = spawn("--model", tiny, "--scheduler", router.address, "--pages", 12, "--lifeline", read, pass_fds=(read,))
    os.close(read)
    router.welcome()
    router.receive("heartbeat")
    os.close(write)
    router.receive("goodbye")
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--scheduler", "ipc://x"], "the following arguments are required: --model"),
        (["--model", "TINY", "--scheduler", "nowhere"], "--scheduler is ipc://PATH or tcp://HOST:PORT"),
        (["--model", "TINY", "--scheduler", "tcp://192.0.2.1:5"], "the link is not encrypted; give --curve-key"),
        (["--model", "/does/not/exist", "--scheduler", "ipc://x"], "model path /does/not/exist does not exist"),
        (["--model", "TINY", "--scheduler", "ipc://x", "--kernels", "abacus"], "these do: "),
        (["--model", "TINY", "--scheduler", "ipc://x", "--swap-space", "lots"], "'lots' is not a size"),
        (["--model", "TINY", "--scheduler", "ipc://x", "--lifeline", "99"], "--lifeline 99 is no open file"),
    ],
)
def test_bad_input_ends_with_two_and_one_sentence(flags: list[str], sentence: str, tiny: Path) -> None:
    process = spawn(*(str(tiny) if flag == "TINY" else flag for flag in flags))
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert out == ""
    assert err.startswith("octavo worker: ")
    assert sentence in err
    assert err.count("\n") == 1


def test_unpickling_is_refused_in_a_worker() -> None:
    code = (
        "import io, pickle, sys\n"
        "from octavo.audit import refuse_unpickling\n"
        "data = pickle.dumps(print)\n"
        "refuse_unpickling()\n"
        "pickle.loads(data)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert "unpickling is refused in this process" in done.stderr

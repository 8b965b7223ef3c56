import subprocess
import sys

from tests.patience import PATIENCE

IMPORT_ALL = """
import sys
import octavo_client, octavo_client.cli
print(*{"torch", "zmq", "transformers", "octavo_scheduler", "octavo_worker", "octavo_kernels"} & set(sys.modules))
"""


def test_the_client_pulls_in_neither_torch_nor_the_other_packages() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_program_that_forgets_to_close_its_client_ends_quietly() -> None:
    script = "from octavo_client import Client; Client('unix:/nowhere/a.sock')"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stderr) == (0, "")

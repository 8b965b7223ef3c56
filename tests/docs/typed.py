"""The commands of a page, typed in their order into one bash."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.docs.pages import blocks

MARK = "--- the next block ---"
ALONE = ("unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Nothing that is started here outlives the shell."""
OFFLINE = (*ALONE, "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
"""And the ports are free whoever else runs, since the loopback is its own; nothing can be fetched."""
PATIENCE = 1200  # seconds


def shell_blocks(page: Path, section: str = "") -> list[str]:
    """The blocks that a shell is to read, of the whole page or of the section with this heading."""
    text = page.read_text()
    if section:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [block.text for block in blocks(page) if block.language == "sh" and block.text in text]


def typed(
    script: Mapping[str, str], folder: Path, alone: Sequence[str], environment: Mapping[str, str]
) -> dict[str, str]:
    """What each block of the script printed, by its name. The first command that fails ends it all."""
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("processes of one's own take unshare and ip, and the right to use them")
    words = f"\necho '{MARK}'\n".join(["set -eo pipefail", *script.values()])
    done = subprocess.run(
        [*alone, "bash", "-c", words], cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    logs = [f"{log.name}: {log.read_text()[-2000:]}" for log in (*folder.glob("*.log"), *folder.glob("*/*.log"))]
    assert done.returncode == 0, "\n".join([done.stdout, done.stderr, *logs])
    return dict(zip(script, done.stdout.split(f"{MARK}\n")[1:], strict=True))

"""The commands of README.md, typed in their order into one bash, as a newcomer would."""

import json
import os
import shutil
import sys

import pytest

from tests.docs.typed import ALONE, OFFLINE, PATIENCE, shell_blocks, typed
from tests.foreign.environments import node_environment, python_environment
from tests.foreign.test_openai import OPENAI, SMG
from tests.layout.tree import ROOT

pytestmark = pytest.mark.timeout(PATIENCE + 60)

STEPS = ("demo", "server", "openai", "node", "second worker", "page map", "metric", "end")
INSTALLS = ("python3 -m venv", "smg-env/bin/pip install", "npm ")


def steps() -> dict[str, str]:
    """The blocks of the section, each as it stands there."""
    return dict(zip(STEPS, shell_blocks(ROOT / "README.md", "Run it"), strict=True))


def without_installing(block: str) -> str:
    return "".join(line for line in block.splitlines(keepends=True) if not line.startswith(INSTALLS))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What was printed where all that is installed stands ready."""
    folder = tmp_path_factory.mktemp("readme")
    for name in ("deploy", "tests"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "smg-env").symlink_to(python_environment("smg", SMG, OPENAI).parent)
    script = {name: without_installing(block) for name, block in steps().items() if name != "demo"}
    if not shutil.which("prometheus"):
        del script["metric"]
    return typed(script, folder, OFFLINE, {**os.environ, "NODE_PATH": str(node_environment())})


@pytest.fixture(scope="module")
def cloned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What was printed where nothing stands ready: every word as it is, but for the name of the repository."""
    script = steps()
    script["demo"] = script["demo"].replace("REPOSITORY", str(ROOT))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OCTAVO", "MAKE"))}
    return typed(script, tmp_path_factory.mktemp("clone"), ALONE, clean)


def check(step: str, words: str) -> None:
    """Raises unless the step showed what it is there for."""
    match step:
        case "demo":
            assert json.loads(words.splitlines()[-1])["complete"] == 5
        case "server" | "openai" | "node":
            assert "Paris" in words
        case "second worker" | "page map":
            assert "one" in words
            assert "two" in words
        case "metric":
            (series,) = json.loads(words)["data"]["result"]
            assert int(series["value"][1]) >= 20
        case "end":
            assert words == ""


@pytest.mark.parametrize("step", [step for step in STEPS if step != "demo"])
def test_the_commands_of_the_readme_do_what_it_says_where_all_is_installed(
    step: str, installed: dict[str, str]
) -> None:
    if step not in installed:
        pytest.skip("prometheus is not installed")
    check(step, installed[step])


@pytest.mark.on_demand
@pytest.mark.parametrize("step", STEPS)
def test_the_commands_of_the_readme_lead_from_nothing_to_everything(step: str, cloned: dict[str, str]) -> None:
    check(step, cloned[step])

"""The documentation as a site."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_it_is_built_without_a_warning_and_every_page_is_in_it(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix("") for page in (ROOT / "docs").rglob("*.md")}
    assert [page for page in pages if not (site / page / "index.html").exists() and page != Path("index")] == []


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("command-line", ["octavo serve", "--kv-cache-memory", "--curve-allow", "octavo replay"]),
        ("api", ["GenerateStream", "Same seed, same answer", "optional float", "one of <em>content</em>"]),
        ("other-apis", ["VllmEngine", "SubscribeKvEvents", "GRPCInferenceService", "triton_final_response"]),
        ("step-protocol", ["StepPlan", "heartbeat_seconds"]),
    ],
)
def test_the_reference_says_what_code_and_schema_say(site: Path, page: str, words: list[str]) -> None:
    text = (site / "reference" / page / "index.html").read_text()
    assert [word for word in words if word not in text] == []

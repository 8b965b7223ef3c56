"""Which packages are installed for whom, and when."""

from pathlib import Path

import pytest

from benchmarks.peers import install
from benchmarks.peers.install import ENVIRONMENTS, NotThere, ensure, others


def test_torch_and_what_shows_pictures_is_left_out_and_markers_stay() -> None:
    asked = [
        "torch==2.13.0+cpu; platform_machine == 'x86_64'",
        "torchvision",
        "numba==0.65.0",
        "triton; extra == 'gpu'",
    ]
    assert others([*asked, "six>=1.16; python_version > '3.11'"]) == [
        "numba==0.65.0",
        "six>=1.16; python_version > '3.11'",
    ]


def test_every_peer_is_pinned() -> None:
    assert all("==" in package for packages in ENVIRONMENTS.values() for package in packages)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What pip is asked to install; nothing is."""
    made: list[list[str]] = []
    monkeypatch.setattr(install, "HOME", tmp_path)
    monkeypatch.setattr(install, "create", lambda folder, **_: folder.mkdir(parents=True, exist_ok=True))
    monkeypatch.setattr(install, "call", lambda command, problem: made.append(command))
    return made


def test_an_environment_is_installed_once(calls: list[list[str]]) -> None:
    ensure("openvino")
    ensure("openvino")
    assert [command[-3:] for command in calls] == [ENVIRONMENTS["openvino"]]


def test_other_packages_make_another_environment(calls: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    ensure("openvino")
    monkeypatch.setitem(ENVIRONMENTS, "openvino", ["openvino-genai==2027.1"])
    ensure("openvino")
    assert [command[-1] for command in calls][1:] == ["openvino-genai==2027.1"]


def test_one_that_could_not_be_installed_is_tried_again(
    calls: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: list[str], problem: str) -> None:
        raise NotThere(problem)

    with monkeypatch.context() as broken:
        broken.setattr(install, "call", fail)
        with pytest.raises(NotThere, match=r"^openvino cannot be installed"):
            ensure("openvino")
    ensure("openvino")
    assert len(calls) == 1

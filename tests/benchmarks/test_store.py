"""What is kept of a run that was interrupted."""

from pathlib import Path

from benchmarks.store import PROBLEM, Store, digest


def test_what_was_measured_is_not_measured_again_by_the_next_run(tmp_path: Path) -> None:
    assert Store(tmp_path / "s").get("a", lambda: {"rate": 1.0}) == {"rate": 1.0}
    assert Store(tmp_path / "s").get("a", lambda: {"rate": 2.0}) == {"rate": 1.0}


def test_what_went_wrong_is_tried_again(tmp_path: Path) -> None:
    Store(tmp_path / "s").get("a", lambda: {PROBLEM: "no room"})
    assert Store(tmp_path / "s").get("a", lambda: {"rate": 2.0}) == {"rate": 2.0}
    assert Store(tmp_path / "s").entries == {"a": {"rate": 2.0}}


def test_a_finished_run_leaves_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.get("a", lambda: {"rate": 1.0})
    store.remove()
    assert Store(tmp_path / "s").entries == {}


def test_other_settings_have_another_digest() -> None:
    assert digest("--weights=int8") == digest("--weights=int8") != digest("--weights=int4")


def test_results_hold_while_other_folders_change() -> None:
    assert digest(folders=["kernels"]) == digest(folders=["kernels"]) != digest(folders=["kernels", "tests/kernels"])

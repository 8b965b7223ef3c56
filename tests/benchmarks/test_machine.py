"""Reading /proc, and whose ticks are whose."""

import subprocess
import sys

from benchmarks.machine import Ticks, Watch, busy_ticks, family_ticks, machine, process_ticks


def test_busy_is_all_that_is_neither_idle_nor_guest_time_counted_twice() -> None:
    assert busy_ticks("cpu  100 20 30 4000 500 6 7 8 90 10") == 100 + 20 + 30 + 6 + 7 + 8


def test_a_process_counts_its_ended_children_whatever_it_is_called() -> None:
    line = "42 (a) b (c) S 7 42 42 0 -1 4194304 100 0 0 0 11 22 33 44 20 0 1 0 5 6 7"
    assert process_ticks(line) == Ticks(42, 7, 11 + 22 + 33 + 44)


def test_a_family_is_a_process_with_all_descendants() -> None:
    processes = [
        Ticks(1, 0, 1),
        Ticks(10, 1, 2),
        Ticks(11, 10, 4),
        Ticks(12, 11, 8),
        Ticks(20, 1, 16),
        Ticks(21, 20, 32),
    ]
    assert family_ticks(processes, 10) == 2 + 4 + 8


def test_a_family_whose_root_is_gone_is_counted_by_those_that_name_it() -> None:
    assert family_ticks([Ticks(11, 10, 4), Ticks(12, 11, 8), Ticks(20, 1, 16)], 10) == 12


def test_what_a_child_of_ours_computes_is_not_taken_for_somebody_elses() -> None:
    watch = Watch()
    before = watch.counts()
    subprocess.run([sys.executable, "-c", "sum(range(20_000_000))"], check=True)
    after = watch.counts()
    assert before is not None
    assert after is not None
    assert after.ours - before.ours >= 5, "hundredths of a second"
    share = watch.others_share()
    assert share is not None
    assert 0 <= share <= 1


def test_figures_are_quoted_with_a_processor_and_its_cores() -> None:
    named = machine()
    assert isinstance(named["cores"], int)
    assert named["cores"] >= 1
    assert isinstance(named["processor"], str)

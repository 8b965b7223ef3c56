"""The script for machines with a GPU: on paper all of it runs; without a GPU nothing does."""

import os
import subprocess
import sys

import pytest
import torch

from benchmarks.gpu.attention import shares
from benchmarks.roofline import LLAMA_8B


def run(*flags: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "benchmarks.gpu", *flags]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_runs_nothing() -> None:
    assert run() == "there is no GPU here: nothing was run\n"


def test_on_paper_every_part_gives_a_figure() -> None:
    lines = run("--paper").splitlines()[2:]
    kinds = {line.split()[0] for line in lines}
    assert kinds >= {"decode_us", "prefill_us", "step_ms", "decode_tokens_s", "load_computed_tokens_s", "swap_gb_s"}


def test_shares_are_those_of_the_makers_figures() -> None:
    us = 64 * 4096 * 8 * 128 * 4 / 3.35e12 * 1e6  # all of an H100's bandwidth
    found = shares(LLAMA_8B, 3.35e12, 989e12, {f"decode_us {LLAMA_8B.name} 64 4096": 2 * us + 2.5})
    assert found == {"of_bandwidth": pytest.approx(0.5)}

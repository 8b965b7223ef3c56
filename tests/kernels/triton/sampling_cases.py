"""Random samples of all kinds, and how far a draw is from the rule."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from octavo_kernels.ops import Ops, Sampling
from octavo_kernels.reference import sampling as reference

from tests.kernels.implementations import build
from tests.kernels.sampling_rule import Floats, columns_of, draw, rule, tensors_of

VOCABULARIES = (1, 2, 31, 1000, 1024, 1025, 4097, 9001, 49152, 131072, 262144)
LARGE = 10_000
NUM_SMALL, NUM_LARGE = 1500, 60
HISTORY = 50


@dataclass(frozen=True)
class Case:
    """Some samples from rows of so many logits, everything else drawn from the seed."""

    vocabulary: int
    seed: int


def all_cases() -> Iterator[Case]:
    """Thousands of samples."""
    for vocabulary in VOCABULARIES:
        yield from (Case(vocabulary, seed) for seed in range(NUM_LARGE if vocabulary > LARGE else NUM_SMALL // 8))


def check(case: Case, ops: Ops | None = None) -> float:
    """The error of the worst sample: 0 if it is the rule's, else how near the rule came to it, as a share of all mass."""
    random = np.random.default_rng((case.vocabulary, case.seed))
    logits, rows = logits_of(case, random), rows_of(case, random)
    sampling = sampling_of(case, len(rows), random)
    tokens = draw(ops or build("triton"), logits, sampling, rows=rows)
    penalised = torch.from_numpy(logits[rows].copy())
    reference.penalise(penalised, torch.arange(len(rows)), tensors_of(sampling))
    return max(error(token, penalised.numpy()[slot], sampling, slot) for slot, token in enumerate(tokens))


def error(token: int, logits: Floats, sampling: Sampling, slot: int) -> float:
    """Of one draw, from logits after penalties."""
    if sampling.history[slot, sampling.length[slot]] != token:
        return 1
    if sampling.temperature[slot] == 0:
        return float(token != logits.argmax())
    with np.errstate(over="ignore"):
        ruling = rule(logits, sampling, slot)
    return 0 if token == ruling.token else ruling.margin


def rows_of(case: Case, random: np.random.Generator) -> list[int]:
    """Of each sample; several may share one."""
    rows: list[int] = random.integers(0, 3, 2 if case.vocabulary > LARGE else 4).tolist()
    return rows


def logits_of(case: Case, random: np.random.Generator) -> Floats:
    """Three rows: flat to steep, with many ties or none, zeros of both signs, much of it forbidden or nothing."""
    shape = (3, case.vocabulary)
    logits = random.standard_normal(shape, np.float32) * np.float32(random.choice([0.01, 0.5, 3, 20, 1e4]))
    logits = logits.round(int(random.choice([9, 9, 1, 0]))) + np.float32(random.choice([0, 0, -300, 1e4]))
    forbidden = random.random(shape) < random.choice([0, 0, 0.5, 0.999])
    forbidden[:, random.integers(case.vocabulary)] = False
    logits[forbidden] = -np.inf
    if random.random() < 0.1:
        logits[1] = np.where(random.random(case.vocabulary) < 0.5, 0.0, -0.0)
    return logits


def sampling_of(case: Case, slots: int, random: np.random.Generator) -> Sampling:
    """Each slot as it likes."""
    vocabulary = case.vocabulary
    history = random.integers(0, min(vocabulary, 30), (slots, HISTORY))
    length = random.integers(0, HISTORY, slots)
    history[np.arange(HISTORY) >= length[:, None]] = 2**31 - 1
    return columns_of(
        slots,
        temperature=random.choice([0, 1e-45, 1e-30, 0.3, 0.8, 1, 1, 2, 1e30], slots),
        top_k=random.choice([0, 0, 0, 1, 3, 50, 700, 3000, vocabulary, vocabulary + 1], slots),
        top_p=random.choice([1, 1, 1, 0.95, 0.5, 1e-9, 0.99999], slots),
        min_p=random.choice([0, 0, 0, 0.02, 0.5, 1, 1e-30], slots),
        repetition_penalty=random.choice([1, 1, 1, 1.3, 0.5], slots),
        presence_penalty=random.choice([0, 0, 0, 0.5, -1], slots),
        frequency_penalty=random.choice([0, 0, 0, 0.1, -0.1], slots),
        seed=random.integers(-(2**63), 2**63 - 1, slots),
        branch=random.integers(0, 16, slots),
        num_prompt=length // 3,
        length=length,
        history=history,
    )

"""Sampling state made by hand."""

from typing import Any

import torch
from octavo_kernels.ops import Geometry, Ops, Sampling, Step
from torch import Tensor

from tests.kernels.steps import empty_step, int32

GEOMETRY = Geometry(16, 1, 1, 8, "float32")


def sampling_of(slots: int, **columns: object) -> Sampling:
    """Greedy and without any filter, except for the columns given (a value for all slots, or one each)."""
    defaults: dict[str, tuple[object, torch.dtype]] = {
        "temperature": (0, torch.float32),
        "top_p": (1, torch.float32),
        "min_p": (0, torch.float32),
        "top_k": (0, torch.int32),
        "repetition_penalty": (1, torch.float32),
        "presence_penalty": (0, torch.float32),
        "frequency_penalty": (0, torch.float32),
        "seed": (0, torch.int64),
        "branch": (0, torch.int32),
        "num_prompt": (0, torch.int32),
        "length": (0, torch.int32),
    }
    values = {
        name: torch.as_tensor(columns.get(name, value), dtype=dtype).expand(slots).contiguous()
        for name, (value, dtype) in defaults.items()
    }
    history = torch.as_tensor(columns.get("history", torch.zeros(slots, 4)), dtype=torch.int32)
    biases: dict[str, Any] = {name: columns[name] for name in ("num_biases", "biases") if name in columns}
    return Sampling(history=history, **values, **biases)


def sample(ops: Ops, logits: Tensor, sampling: Sampling, slots: list[int] | None = None) -> list[int]:
    """One token for each row of logits, row i drawn for slots[i] (i when not given)."""
    slots = list(range(len(logits))) if slots is None else slots
    step, out = step_of(slots), torch.zeros(len(slots), dtype=torch.int32)
    ops.sample(logits, sampling, step, out)
    drawn: list[int] = out.tolist()
    return drawn


def step_of(slots: list[int]) -> Step:
    """Sample i is drawn from row i, for slots[i]."""
    step = empty_step(GEOMETRY)
    step.sample_row, step.sample_slot = int32(*range(len(slots))), int32(*slots)
    step.count(tokens=0, rows=0, head_rows=len(slots), samples=len(slots))
    return step

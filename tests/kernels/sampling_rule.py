"""The sampling rule written down in numpy, with weights in float64, and sampling state made by hand without torch."""

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from octavo_kernels.ops import Geometry, Ops, Sampling, Step
from octavo_kernels.reference.philox import uniform

Floats = NDArray[np.float32]
COLUMNS = {
    "temperature": (0, np.float32),
    "top_p": (1, np.float32),
    "min_p": (0, np.float32),
    "top_k": (0, np.int32),
    "repetition_penalty": (1, np.float32),
    "presence_penalty": (0, np.float32),
    "frequency_penalty": (0, np.float32),
    "seed": (0, np.int64),
    "branch": (0, np.int32),
    "num_prompt": (0, np.int32),
    "length": (0, np.int32),
}


def columns_of(slots: int, **given: object) -> Sampling:
    """Greedy and without any filter, except for the columns given (a value for all slots, or one each)."""
    columns = {
        name: np.broadcast_to(np.asarray(given.get(name, value), dtype), (slots,)).copy()
        for name, (value, dtype) in COLUMNS.items()
    }
    return Sampling(history=np.asarray(given.get("history", np.zeros((slots, 1))), np.int32), **columns)


def tensors_of(sampling: Sampling) -> Sampling:
    """The same memory for the reference."""
    return Sampling(**{each.name: torch.from_numpy(getattr(sampling, each.name)) for each in fields(sampling)})


def step_of_samples(rows: list[int], slots: list[int]) -> Step:
    """Sample i is drawn from logits row rows[i] for slots[i]."""
    none = np.zeros(1, np.int32)
    at = {"sample_row": np.asarray(rows, np.int32), "sample_slot": np.asarray(slots, np.int32)}
    names = ("token", "position", "kv_index", "row_slot", "row_start", "row_length", "table", "head_token")
    step = Step(geometry=Geometry(16, 1, 1, 8, "float32"), **dict.fromkeys(names, none), **at)
    step.count(tokens=0, rows=0, head_rows=len(set(rows)), samples=len(rows))
    return step


def draw(
    ops: Ops, logits: Floats, sampling: Sampling, rows: list[int] | None = None, slots: list[int] | None = None
) -> list[int]:
    """One token for each of `rows` (all when not given), drawn for `slots` (0, 1, 2 ... when not given)."""
    rows = list(range(len(logits))) if rows is None else rows
    slots = list(range(len(rows))) if slots is None else slots
    width = logits.shape[1]
    buffer, out = ops.new_buffer((len(logits), width + 3), "float32"), np.full(len(rows) + 1, -7, np.int32)
    memory, step = np.asarray(buffer), step_of_samples(rows, slots)
    memory[:], memory[:, :width] = np.inf, logits  # what lies behind a row is not looked at
    if ops.name == "cpu":
        ops.sample(buffer[:, :width], sampling, step, out)
    else:
        step.sample_row, step.sample_slot = torch.from_numpy(step.sample_row), torch.from_numpy(step.sample_slot)
        ops.sample(buffer[:, :width], tensors_of(sampling), step, torch.from_numpy(out))
    assert out[-1] == -7
    assert np.array_equal(memory[:, :width], logits, equal_nan=True), "logits stay as they are"
    tokens: list[int] = out[:-1].tolist()
    return tokens


@dataclass(frozen=True)
class Ruling:
    """What is to be drawn, and how near, relative to all mass, any of the decisions came to the other way."""

    token: int
    margin: float


def rule(logits: Floats, sampling: Sampling, slot: int) -> Ruling:
    """One draw with a temperature, from logits after penalties."""
    distance = (logits.max() - logits) / sampling.temperature[slot]
    ranking = np.lexsort((np.arange(len(logits)), distance))
    weight = np.exp(-distance[ranking].astype(np.float64))
    upto, kept, margin = weight.cumsum(), len(weight), 1.0

    def nearest(values: NDArray[np.float64], to: float) -> float:
        return float(np.abs(values - to).min() / upto[-1])

    if sampling.top_k[slot] > 0:
        kept = min(kept, int(sampling.top_k[slot]))
    if sampling.top_p[slot] < 1:
        goal = float(sampling.top_p[slot]) * upto[kept - 1]
        margin = min(margin, nearest(upto[:kept], goal))
        kept = min(kept, int((upto < goal).sum()) + 1)
    if sampling.min_p[slot] > 0:
        margin = min(margin, nearest(weight[:kept], float(sampling.min_p[slot])))
        kept = max(1, int((weight[:kept] >= float(sampling.min_p[slot])).sum()))
    goal = uniform_of(sampling, slot) * upto[kept - 1]
    margin = min(margin, nearest(upto[:kept], goal))
    return Ruling(int(ranking[min(int((upto <= goal).sum()), kept - 1)]), margin)


def uniform_of(sampling: Sampling, slot: int) -> float:
    """The number in [0, 1) that decides a slot's next draw."""
    length, branch, seed = (torch.tensor(int(x[slot])) for x in (sampling.length, sampling.branch, sampling.seed))
    return float(uniform(length[None], branch[None], 0, seed[None])[0])

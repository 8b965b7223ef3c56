"""Every kernel, launched dry by the real wrappers at the shapes of real models."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from octavo_kernels.ops import Geometry, Masks, Ops, Sampling, Step
from octavo_kernels.triton.door import open_door

from benchmarks.gpu.bench import shared_step
from benchmarks.static_gpu.dry import Dry, Launch

ROWS, CONTEXT, SLOTS = 8, 4096, 16
HEADS = {"D64": (32, 8, 64), "D128": (32, 8, 128)}
"""Query heads, KV heads and head_dim of Llama-3.2-1B and Llama-3.1-8B."""
CACHES = ("bfloat16", "int8", "fp8")
MULTIPLIED = (16, 64, 2048)
"""Rows of linear layers: batches that decode, a chunk."""


@dataclass(frozen=True, slots=True)
class Named:
    """A launch and what it stands for."""

    name: str
    launch: Launch


class Session:
    """Collects what operations launch."""

    def __init__(self) -> None:
        self.device = Dry()
        self.ops: Ops = open_door(self.device)
        self.found: dict[tuple[object, ...], Named] = {}

    def note(self, label: str, body: Callable[[], None]) -> None:
        """Run `body` dry; of launches that compile to the same only the first is kept."""
        self.device.main.launches.clear()
        body()
        for launch in self.device.main.launches:
            kernel = launch.kernel.__name__.removesuffix("_kernel")
            self.found.setdefault(key_of(launch), Named(f"{kernel} {label}".strip(), launch))


def key_of(launch: Launch) -> tuple[object, ...]:
    """What a kernel is compiled for."""
    arguments = tuple(specialised(argument) for argument in launch.arguments)
    return (
        launch.kernel.__name__,
        arguments,
        tuple(sorted((name, repr(value)) for name, value in launch.options.items())),
    )


def specialised(argument: object) -> object:
    """As Triton sees it: a type, and whether a number is one or a multiple of 16."""
    if isinstance(argument, torch.Tensor):
        return argument.dtype
    if isinstance(argument, int):
        return "one" if argument == 1 else argument % 16 == 0
    return type(argument)


def launches() -> list[Named]:
    """All of them."""
    session = Session()
    for part in (rows_of_activations, attention, linear_layers, sampling, pages):
        part(session)
    return list(session.found.values())


def count(value: int) -> np.ndarray:
    return np.array([value], np.int32)


def rows_of_activations(session: Session) -> None:
    ops, hidden = session.ops, 4096
    x, residual = (ops.new_buffer((ROWS, hidden), dtype) for dtype in ("bfloat16", "float32"))
    weight = ops.new_buffer((hidden,), "float32")
    gate_up = ops.new_buffer((ROWS, 2 * hidden), "bfloat16")
    index = ops.new_buffer((ROWS,), "int32")
    session.note("first", lambda: ops.rms_norm(count(ROWS), None, residual, weight, 1e-5, x))
    session.note("", lambda: ops.rms_norm(count(ROWS), x, residual, weight, 1e-5, x))
    session.note("", lambda: ops.silu_mul(count(ROWS), gate_up, x))
    session.note("", lambda: ops.take_rows(count(ROWS), residual, index, residual))
    step = a_step(session, "D64", "bfloat16", 1)
    session.note("", lambda: ops.take_tokens(a_sampling(ops), step))
    table = np.zeros(64, np.int32)
    ops.share(table)
    ops.changed(table, 0, 64)
    session.note("", lambda: ops.copied(table, np.zeros(1, np.int64), np.ones(1, np.int64)))


def a_step(session: Session, heads: str, cache: str, query: int) -> Step:
    """Rows of a step, in arrays that the device has."""
    _, kv, dim = HEADS[heads]
    geometry = Geometry(16, 1, kv, dim, cache)
    table = np.zeros((ROWS, CONTEXT // 16), np.int32)
    return shared_step(session.ops, geometry, ROWS, query, CONTEXT, table)


def attention(session: Session) -> None:
    for heads, (num_heads, kv, dim) in HEADS.items():
        for cache in CACHES:
            if cache not in session.ops.cache_dtypes:
                continue
            for query in (1, 64):
                attend(session, heads, cache, query, num_heads * dim, (num_heads + 2 * kv) * dim)


def attend(session: Session, heads: str, cache: str, query: int, width: int, total: int) -> None:
    """Attention and KV write of a kind of step; once more with a window and a cap."""
    ops, step = session.ops, a_step(session, heads, cache, query)
    qkv, out = (ops.new_buffer((ROWS * query, size), "bfloat16") for size in (total, width))
    pool = ops.new_pool(step.geometry, 4)
    cos = ops.new_buffer((CONTEXT, step.geometry.head_dim // 2), "float32")
    label = f"{heads}, pages {cache}"
    session.note(label, lambda: ops.rope_and_write(qkv, cos, cos, pool, 0, step))
    session.note(label, lambda: ops.capture(step, lambda: ops.attention(qkv, pool, 0, step, out))())
    if cache == "bfloat16":
        session.note(f"{label}, window, cap", lambda: ops.attention(qkv, pool, 0, step, out, window=1024, softcap=50.0))


def linear_layers(session: Session) -> None:
    ops = session.ops
    for format in ops.formats:
        if format in ("float32", "float16"):
            continue
        matrix = np.zeros((4096, 4096), np.float32)
        weight = ops.pack(matrix, None, format)
        for rows in MULTIPLIED:
            x, out = (ops.new_buffer((rows, 4096), "bfloat16") for _ in range(2))
            label = f"{format}, {rows} rows"
            session.note(label, lambda: ops.linear(count(rows), x, weight, out))  # noqa: B023
            session.note(f"gated {label}", lambda: ops.gated_linear(count(rows), x, weight, weight, out))  # noqa: B023
        index, row = ops.new_buffer((ROWS,), "int32"), ops.new_buffer((ROWS, 4096), "float32")
        session.note(format, lambda: ops.embed(count(ROWS), weight, index, row))  # noqa: B023


def a_sampling(ops: Ops) -> Sampling:
    """Columns of some slots."""
    kinds: dict[str, Any] = {
        **dict.fromkeys(("temperature", "top_p", "min_p"), np.float32),
        **dict.fromkeys(("repetition_penalty", "presence_penalty", "frequency_penalty"), np.float32),
        **dict.fromkeys(("top_k", "branch", "num_prompt", "length"), np.int32),
        "seed": np.int64,
    }
    columns = {name: ops.share(np.zeros(SLOTS, dtype)) for name, dtype in kinds.items()}
    columns |= {
        "num_biases": ops.share(np.zeros(SLOTS, np.int32)),
        "biases": ops.share(np.zeros((SLOTS, 64), np.int32)),
    }
    return Sampling(history=ops.share(np.zeros((SLOTS, CONTEXT), np.int32)), **columns)


def sampling(session: Session) -> None:
    ops = session.ops
    step, drawn = a_step(session, "D64", "bfloat16", 1), ops.share(np.zeros(ROWS, np.int32))
    logits = ops.new_buffer((ROWS, 128256), "float32")
    session.note("", lambda: ops.sample(logits, a_sampling(ops), step, drawn))
    values, ids = (ops.new_buffer((ROWS, 21), dtype) for dtype in ("float32", "int32"))
    session.note("", lambda: ops.logprobs(logits, a_sampling(ops), step, values, ids))
    session.note("", lambda: ops.bias_logits(logits, a_sampling(ops), step, logits))
    masks = Masks(*(ops.share(np.zeros(shape, np.int32)) for shape in (ROWS, (ROWS, 128256 // 32), 1)))
    session.note("", lambda: ops.mask_logits(logits, masks, step))


def pages(session: Session) -> None:
    ops = session.ops
    pool = ops.new_pool(Geometry(16, 2, 2, 64, "bfloat16"), 8)
    ids = np.arange(1, 4)
    session.note("apart", lambda: ops.move_pages(pool, ids, pool, ids + 4))
    session.note("overlapping", lambda: ops.move_pages(pool, ids, pool, ids + 1))
    session.note("", lambda: ops.zero_pages(pool, ids))

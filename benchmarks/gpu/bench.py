"""What the measurements share: a device, its kernels, and clocks that count inside graphs."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from octavo_kernels.ops import Array, Geometry, Ops, Step
from octavo_kernels.triton.device import Device
from octavo_kernels.triton.door import open_door

from benchmarks.roofline import Model

REPEATS = 10


@dataclass(frozen=True, slots=True)
class Bench:
    """A device and the door to its kernels."""

    device: Device
    ops: Ops

    @classmethod
    def on(cls, device: Device) -> "Bench":
        return cls(device, open_door(device))

    def fits(self, num_bytes: float) -> bool:
        """Whether there is room for so much, and a tenth of the memory to spare."""
        memory = self.device.memory()
        return num_bytes < memory.free - 0.1 * memory.total

    def seconds(self, step: Step, body: Callable[[], None]) -> float:
        """Of one run of `body`, as a graph, once it is warm; the best of three rounds."""
        replay = self.ops.capture(step, body)
        for _ in range(3):  # compiled, captured, replayed
            replay()
        rounds = []
        for _ in range(3):
            before = self.device.main.mark()
            for _ in range(REPEATS):
                replay()
            after = self.device.main.mark()
            after.wait()
            rounds.append(after.seconds_since(before) / REPEATS)
        return min(rounds)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of equal sizes over a pool of random K and V, and room for queries and results."""

    step: Step
    pool: Array
    qkv: Array
    out: Array


def random_batch(bench: Bench, model: Model, *, rows: int, query: int, context: int, page_size: int = 16) -> Batch:
    """`rows` rows of `query` tokens each, the last of `context` ones; their pages lie in random order."""
    ops = bench.ops
    geometry = Geometry(page_size, model.layers, model.kv_heads, model.head_dim, "bfloat16")
    each = -(-context // page_size)
    order = np.random.default_rng(0).permutation(rows * each) + 1
    pool = ops.new_pool(geometry, rows * each)
    bench.device.main.do(lambda: pool.random_(0, 60))  # bytes of which bfloat16 makes small numbers
    step = shared_step(ops, geometry, rows, query, context, order.reshape(rows, each).astype(np.int32))
    width = (model.heads + 2 * model.kv_heads) * model.head_dim
    qkv = ops.new_buffer((rows * query, width), "bfloat16")
    bench.device.main.do(lambda: qkv.normal_())
    return Batch(step, pool, qkv, ops.new_buffer((rows * query, model.heads * model.head_dim), "bfloat16"))


def shared_step(ops: Ops, geometry: Geometry, rows: int, query: int, context: int, table: np.ndarray) -> Step:
    """The step of such rows."""

    def ints(values: object) -> Array:
        return ops.share(np.ascontiguousarray(values, np.int32))

    position = np.tile(np.arange(context - query, context), rows)
    size = geometry.page_size
    page = table[np.repeat(np.arange(rows), query), position // size].astype(np.int64)
    return Step(
        geometry=geometry,
        token=ints(np.zeros(rows * query)),
        position=ints(position),
        kv_index=ops.share(page * size + position % size),
        row_slot=ints(np.arange(rows)),
        row_start=ints(np.arange(rows + 1) * query),
        row_length=ints(np.full(rows, context)),
        table=ints(table),
        head_token=ints(np.arange(rows)),
        sample_row=ints(np.arange(rows)),
        sample_slot=ints(np.arange(rows)),
        tokens=ints([rows * query]),
        rows=ints([rows]),
        head_rows=ints([rows]),
        samples=ints([rows]),
        longest=ints([query]),
        **{name: ints(np.arange(rows)) for name in ("bias_row", "bias_slot", "score_row", "score_slot")},
        **{name: ints([rows]) for name in ("biased", "scores")},
        score_position=ints(np.full(rows, context - 1)),
    )

"""Attention against the bandwidth of the memory and the peak of the matrix units."""

from collections.abc import Iterator

from benchmarks.gpu.bench import Bench, random_batch
from benchmarks.roofline import DECODES, LAUNCH_US, PREFILLS, Model


def decode_times(
    bench: Bench, model: Model, shapes: tuple[tuple[int, int], ...] = DECODES
) -> Iterator[tuple[str, float]]:
    """("decode_us model rows context", µs a layer) for those that fit the memory."""
    for rows, context in shapes:
        if bench.fits(model.layers * model.kv_bytes(rows * context)):
            yield (
                f"decode_us {model.name} {rows} {context}",
                layer_us(bench, model, rows=rows, query=1, context=context),
            )


def prefill_times(
    bench: Bench, model: Model, shapes: tuple[tuple[int, int], ...] = PREFILLS
) -> Iterator[tuple[str, float]]:
    """("prefill_us model chunk before", µs a layer)."""
    for chunk, before in shapes:
        if bench.fits(model.layers * model.kv_bytes(before + chunk)):
            us = layer_us(bench, model, rows=1, query=chunk, context=before + chunk)
            yield f"prefill_us {model.name} {chunk} {before}", us


def layer_us(bench: Bench, model: Model, *, rows: int, query: int, context: int) -> float:
    """µs of attention a layer: all layers one after the other, so that none finds its pages in a cache."""
    batch = random_batch(bench, model, rows=rows, query=query, context=context)

    def body() -> None:
        bench.ops.prepare(batch.step)
        for layer in range(model.layers):
            bench.ops.attention(batch.qkv, batch.pool, layer, batch.step, batch.out)

    return bench.seconds(batch.step, body) / model.layers * 1e6


def shares(model: Model, bandwidth: float, matrix: float, figures: dict[str, float]) -> dict[str, float]:
    """What decode reaches of the bandwidth (bytes a second), chunks of the matrix peak, at the largest shapes measured."""
    found: dict[str, float] = {}
    for name, us in figures.items():
        kind, model_name, first, second = name.split()
        if model_name != model.name:
            continue
        if kind == "decode_us":
            moved = model.kv_bytes(int(first) * int(second)) / ((us - LAUNCH_US) * 1e-6)
            found["of_bandwidth"] = max(found.get("of_bandwidth", 0.0), moved / bandwidth)
        elif kind == "prefill_us":
            chunk, before = int(first), int(second)
            seen = chunk * before + chunk * (chunk + 1) // 2
            speed = 4 * seen * model.heads * model.head_dim / (us * 1e-6)
            found["of_matrix"] = max(found.get("of_matrix", 0.0), speed / matrix)
    return found

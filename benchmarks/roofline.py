"""What the GPU kernels should need, from bytes and operations: docs/gpu-roofline.md.

    python -m benchmarks.roofline           print the page
    python -m benchmarks.roofline --write   write it into docs/

A kernel takes the longer of the time to move its bytes and the time to do its operations, at the shares of the maker's
figures that public kernels of the same kind reach, and a launch. Where `make gpu-check` has left its figures, they stand
beside.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.table import markdown

ROOT = Path(__file__).resolve().parents[1]
PAGE, MEASURED = ROOT / "docs" / "gpu-roofline.md", ROOT / "benchmarks" / "gpu" / "measured.json"
LAUNCH_US = 2.5
"""Between two kernels of a graph, the start and the end of a grid included."""
OF_BANDWIDTH, OF_MATRIX = 0.88, 0.5
"""Shares of the maker's figures that are asked of long reads, and of attention over a chunk."""
OF_MATRIX_LINEAR = 0.7


@dataclass(frozen=True, slots=True)
class Gpu:
    """As its maker says: bytes a second, bfloat16 operations a second without sparsity."""

    name: str
    bandwidth: float
    matrix: float


GPUS = (Gpu("A100 80GB", 2.04e12, 312e12), Gpu("H100 SXM", 3.35e12, 989e12), Gpu("H200", 4.8e12, 989e12))


@dataclass(frozen=True, slots=True)
class Model:
    """Shape of a decoder; weights and pages in bfloat16."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int

    @property
    def layer_weights(self) -> int:
        """Elements of a layer's matrices."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.intermediate

    @property
    def weight_bytes(self) -> int:
        """That a step reads: all layers and the head."""
        return 2 * (self.layers * self.layer_weights + self.hidden * self.vocab)

    def kv_bytes(self, tokens: int) -> int:
        """K and V of one layer."""
        return 2 * 2 * tokens * self.kv_heads * self.head_dim


LLAMA_1B = Model("Llama-3.2-1B", 16, 2048, 32, 8, 64, 8192, 128256)
LLAMA_8B = Model("Llama-3.1-8B", 32, 4096, 32, 8, 128, 14336, 128256)
DECODES = ((1, 1024), (1, 8192), (16, 1024), (16, 8192), (64, 1024), (64, 4096), (256, 1024))
PREFILLS = ((2048, 0), (8192, 0), (2048, 30720))


def decode_us(gpu: Gpu, model: Model, rows: int, context: int) -> float:
    """Attention of one layer, each row reading its context; two launches, the second joins the splits."""
    return model.kv_bytes(rows * context) / (gpu.bandwidth * OF_BANDWIDTH) * 1e6 + 2 * LAUNCH_US


def prefill_us(gpu: Gpu, model: Model, chunk: int, before: int) -> float:
    """Causal attention of one layer over a chunk of one prompt that has `before` tokens in pages."""
    seen = chunk * before + chunk * (chunk + 1) // 2
    operations = 4 * seen * model.heads * model.head_dim
    moved = model.kv_bytes(before + chunk)
    return max(operations / (gpu.matrix * OF_MATRIX), moved / (gpu.bandwidth * OF_BANDWIDTH)) * 1e6 + LAUNCH_US


def step_ms(gpu: Gpu, model: Model, rows: int, context: int) -> float:
    """A step of decoding rows: every weight once, attention, and eight launches a layer."""
    operations = 2 * rows * (model.weight_bytes // 2)
    matrices = max(model.weight_bytes / (gpu.bandwidth * OF_BANDWIDTH), operations / (gpu.matrix * OF_MATRIX_LINEAR))
    return matrices * 1e3 + model.layers * (decode_us(gpu, model, rows, context) + 6 * LAUNCH_US) / 1e3


def measured(kind: str, model: Model, first: int, second: int) -> str:
    """What `make gpu-check` found, and on what; a dash before it ran anywhere."""
    if not MEASURED.exists():
        return "–"
    found = json.loads(MEASURED.read_text())
    value = found.get(f"{kind} {model.name} {first} {second}")
    return "–" if value is None else f"{value:.3g} ({found['gpu']})"


def rows_of(kind: str, function: object, shapes: tuple[tuple[int, int], ...]) -> list[list[str]]:
    """A line for each model and shape."""
    assert callable(function)
    return [
        [model.name, str(a), str(b)]
        + [f"{function(gpu, model, a, b):.3g}" for gpu in GPUS]
        + [measured(kind, model, a, b)]
        for model in (LLAMA_1B, LLAMA_8B)
        for a, b in shapes
    ]


def page() -> str:
    """All of docs/gpu-roofline.md."""
    gpus = [gpu.name for gpu in GPUS]
    decode = markdown(["model", "rows", "context", *gpus, "measured"], rows_of("decode_us", decode_us, DECODES))
    prefill = markdown(
        ["model", "chunk", "tokens before", *gpus, "measured"], rows_of("prefill_us", prefill_us, PREFILLS)
    )
    steps = markdown(["model", "rows", "context", *gpus, "measured"], rows_of("step_ms", step_ms, DECODES))
    return TEXT.format(
        decode=decode,
        prefill=prefill,
        steps=steps,
        bandwidth=round(OF_BANDWIDTH * 100),
        matrix=round(OF_MATRIX * 100),
        linear=round(OF_MATRIX_LINEAR * 100),
        launch=LAUNCH_US,
    )


TEXT = """# What the GPU kernels should need

None of these figures was measured unless its last column says so: they follow from bytes and operations, and are what the
Triton kernels will be held to on the day they meet a GPU. `python -m benchmarks.roofline --write` makes this page,
`make gpu-check` fills the last column.

A kernel needs the longer of two times: its bytes at {bandwidth} % of the memory's bandwidth, its operations at {matrix} %
(attention over a chunk) or {linear} % (linear layers) of the bfloat16 peak; and {launch} µs a launch inside a graph.

## Decode attention, µs a layer

Reads K and V of every row once: `4 × rows × context × kv_heads × head_dim` bytes in bfloat16, half of it with int8 or fp8
pages.

{decode}

## Attention over a chunk of a prompt, µs a layer

`4 × heads × head_dim` operations for each pair of a query and a key that it sees.

{prefill}

## A step of decoding rows, ms

Every weight once, attention, and the launches.

{steps}

## Public figures of other kernels of these kinds

| kernel | figure | source |
|---|---|---|
| FlashAttention-3, H100, fp16, forward | up to 740 TFLOP/s, 75 % of the peak | arXiv 2407.08608 |
| FlashAttention-3, H100, D 128, lengths 512 to 16,384 | 430 to 621 TFLOP/s | pytorch/benchmark, pull request 2391 |
| Triton's tutorial kernel, the same shapes | 329 to 477 TFLOP/s, 33 to 48 % of the peak | the same |
| FlashMLA, H800, paged decode with blocks of 64 | up to 3,000 GB/s (90 % of 3.35 TB/s), 580 TFLOP/s | its README |
| Triton's paged attention of a serving engine, against the platform's best | from 19.7 % to 105.9 % | arXiv 2511.11581 |
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/gpu-roofline.md")
    if parser.parse_args().write:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")


if __name__ == "__main__":
    main()

"""What is launched depends on the room of a step, never on what is in it: a captured graph fits every step of its room."""

from typing import Any

import pytest
import torch
from octavo_kernels.ops import Geometry, Step
from octavo_kernels.triton.attention import Attention, Workspace
from octavo_kernels.triton.launcher import Launcher
from octavo_kernels.triton.paper import Paper
from octavo_kernels.triton.room import Room
from octavo_kernels.triton.rope import Rope

from tests.kernels.steps import int32

GEOMETRY = Geometry(16, 2, 2, 32, "int8")
TOKENS, ROWS, SLOTS, PAGES, HEADS = 64, 16, 16, 1024, 6


class Recorder(Paper):
    """A device that runs nothing and keeps what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[tuple[Any, ...]] = []
        self.main.launch = self.keep  # type: ignore[method-assign]

    def keep(self, kernel, grid, *arguments, **options) -> None:
        given = [(x.data_ptr(), x.dtype, x.shape) if torch.is_tensor(x) else x for x in arguments]
        self.launches.append((kernel.__name__, grid, given, options))


@pytest.fixture
def step() -> Step:
    """With room for many tokens and rows; everything that changes is shared."""
    return Step(
        geometry=GEOMETRY,
        token=torch.zeros(TOKENS, dtype=torch.int32),
        position=torch.zeros(TOKENS, dtype=torch.int32),
        kv_index=torch.zeros(TOKENS, dtype=torch.int64),
        row_slot=torch.zeros(ROWS, dtype=torch.int32),
        row_start=torch.zeros(ROWS + 1, dtype=torch.int32),
        row_length=torch.zeros(ROWS, dtype=torch.int32),
        table=torch.zeros(SLOTS, PAGES, dtype=torch.int32),
        head_token=torch.zeros(ROWS, dtype=torch.int32),
        sample_row=torch.zeros(ROWS, dtype=torch.int32),
        sample_slot=torch.zeros(ROWS, dtype=torch.int32),
        tokens=int32(0),
        rows=int32(0),
        head_rows=int32(0),
        samples=int32(0),
        longest=int32(0),
        biased=int32(0),
        scores=int32(0),
    )


def launches(step: Step, room: Room) -> list[tuple[Any, ...]]:
    """Of RoPE, writing and attention."""
    device = Recorder()
    launcher, width = Launcher(device), (HEADS + 2 * GEOMETRY.num_kv_heads) * GEOMETRY.head_dim
    qkv, out = buffer(TOKENS, width), buffer(TOKENS, HEADS * GEOMETRY.head_dim)
    cos, pool = buffer(16, 16), torch.zeros(4, GEOMETRY.page_bytes, dtype=torch.uint8)
    with launcher.sized(step, room):
        Rope(launcher).rope_and_write(qkv, cos, cos, pool, 1, step)
        Attention(launcher).attention(qkv, pool, 1, step, out)
    return device.launches


def buffer(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


def fill(step: Step, lengths: list[int], queries: list[int]) -> None:
    rows = len(lengths)
    step.row_length[:rows] = int32(*lengths)
    step.row_start[1 : rows + 1] = int32(*queries).cumsum(0)
    step.count(tokens=sum(queries), rows=rows, head_rows=rows, samples=rows, longest=max(queries))


def keys(step: Step, room: Room) -> list[tuple[Any, ...]]:
    """Names, grids and constants; and of arguments what Triton compiles for, their addresses apart."""
    return [
        (name, grid, [x[1:] if isinstance(x, tuple) else x for x in given], options)
        for name, grid, given, options in launches(step, room)
    ]


def test_grids_and_keys_are_the_same_whatever_the_lengths(step: Step) -> None:
    room = Room(tokens=32, rows=8, samples=8, query=16)
    fill(step, [7, 16_000], [1, 16])
    before = keys(step, room)
    fill(step, [300, 2, 90, 9_000, 33], [9, 2, 1, 1, 16])
    assert keys(step, room) == before
    assert [name for name, *_ in before] == [
        "rope_and_write_kernel",
        "decode_kernel",
        "combine_kernel",
        "extend_kernel",
    ]


def test_steps_that_only_decode_launch_no_other_attention(step: Step) -> None:
    names = [name for name, *_ in launches(step, Room(tokens=8, rows=8, samples=8, query=1))]
    assert names == ["rope_and_write_kernel", "decode_kernel", "combine_kernel"]


def test_few_rows_are_split_over_many_programs_and_many_rows_are_not(step: Step) -> None:
    def grid(rows: int) -> tuple[int, ...]:
        _, grid, *_ = launches(step, Room(tokens=rows, rows=rows, samples=rows, query=1))[1]
        return tuple(grid)

    assert grid(1) == (1, 2, 16)
    assert grid(16) == (16, 2, 1)


def test_the_workspace_of_a_step_is_made_once(step: Step) -> None:
    room = Room(tokens=8, rows=8, samples=8, query=1)
    launches(step, room)
    work = step.workspace
    launches(step, Room(tokens=64, rows=16, samples=16, query=64))
    assert step.workspace is work
    assert isinstance(work, Workspace)
    assert work.mixes.shape == (ROWS, 2, 32, 3, 32)

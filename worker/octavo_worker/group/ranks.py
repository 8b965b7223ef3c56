"""What ranks exchange, over torch.distributed: orders of rank 0, sums and gathered logits, and that all are done.

Nothing is pickled: an order is bytes in a uint8 tensor, behind its length. gloo carries orders always, and results between
CPUs; NCCL carries them between GPUs. On CPUs sums are made here, in order of rank: the order in which gloo adds up depends
on how many rows there are, and a row must have the same bits in any batch.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from octavo_kernels.ops import Array, Ops
from torch import Tensor

from octavo_worker.errors import GroupLost
from octavo_worker.group.seat import Seat
from octavo_worker.group.shard import Shard

MEET = timedelta(minutes=10)  # until all ranks have started
ANY_TIME = timedelta(days=3650)  # until the next order, or until the slowest rank has loaded its weights
EXCHANGE = timedelta(seconds=60)  # until the slowest rank has come as far in a step
LENGTH_BYTES, ROOM = 8, 4096
"""Of an order's length, and of the message that holds it with the order itself, or as much of it as has room."""
LOOPBACK = "lo"


class Ranks:
    """The group that this process is a rank of. Raises GroupLost wherever another rank is gone or too slow."""

    devices: Any = None  # the group in which devices exchange, where arrays are not in main memory

    def __init__(self, seat: Seat, device: str = "cpu") -> None:
        self.shard = Shard(seat.rank, seat.size)
        self.memory = torch.empty(0)
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ[name] = LOOPBACK  # nothing else is listened on
        torch.set_num_threads(1)  # sums are short, and the cores are for the kernels
        with self.or_lost():
            dist.init_process_group(
                "gloo", store=meeting_point(seat), rank=seat.rank, world_size=seat.size, timeout=ANY_TIME
            )
            self.step = dist.new_group(timeout=EXCHANGE, backend="gloo")
            if device != "cpu":
                torch.cuda.set_device(device)
                self.devices = dist.new_group(timeout=EXCHANGE, backend="nccl")

    @contextmanager
    def or_lost(self) -> Iterator[None]:
        """torch says RuntimeError, and much else, when a connection breaks or nothing comes."""
        try:
            yield
        except RuntimeError as error:
            words = re.sub(r"^\[.*?\] ", "", str(error)).partition("\n")[0].partition(". ")[0]  # no place in the source
            raise GroupLost(f"rank {self.shard.rank} has lost its group: {words}") from error

    def tell(self, order: bytes) -> None:
        """Rank 0: hand an order to all others. It does not wait for them."""
        data = np.frombuffer(len(order).to_bytes(LENGTH_BYTES, "little") + order, np.uint8)
        self.broadcast(np.pad(data[:ROOM], (0, max(0, ROOM - len(data)))))
        if len(data) > ROOM:
            self.broadcast(data[ROOM:].copy())

    def hear(self) -> bytes:
        """The others: the next order, however long it takes."""
        data = self.broadcast(np.zeros(ROOM, np.uint8)).tobytes()
        size = int.from_bytes(data[:LENGTH_BYTES], "little")
        rest = max(0, size + LENGTH_BYTES - ROOM)
        order = data[LENGTH_BYTES:] + (self.broadcast(np.zeros(rest, np.uint8)).tobytes() if rest else b"")
        return order[:size]

    def broadcast(self, data: np.ndarray) -> np.ndarray:
        with self.or_lost():
            dist.broadcast(torch.from_numpy(data), src=0)
        return data

    def least(self, *counts: int) -> tuple[int, ...]:
        """Of each count the smallest that any rank has. All ranks ask at once."""
        found = torch.tensor(counts)
        with self.or_lost():
            dist.all_reduce(found, dist.ReduceOp.MIN)
        return tuple(found.tolist())

    def agree(self, *values: int) -> None:
        """Wait until all ranks are here. Raises GroupLost unless they came with the same values, each an int64."""
        own = torch.tensor(values)
        if any(
            not torch.equal(own, other) for other in self.gathered(own, torch.empty(self.shard.size, len(own)).long())
        ):
            raise GroupLost(f"rank {self.shard.rank} did something else than another rank of its group")

    def joined(self, ops: Ops) -> Ops:
        """The kernels of one rank, and how it exchanges results with the others."""
        ops = replace(ops, ranks=self.shard.size)
        if self.devices is not None:
            return between_devices(ops, self.devices)
        return replace(
            ops,
            all_reduce=lambda rows, x: ops.call(partial(self.all_reduce, rows, x)),
            all_gather=lambda rows, x, out: ops.call(partial(self.all_gather, rows, x, out)),
        )

    def all_reduce(self, rows: Array, x: Array) -> None:
        """Of float32 rows."""
        own = on_host(x)[: int(rows[0])]
        if len(own):
            first, *others = self.gathered(own, self.room(own))
            own.copy_(first)
            for term in others:
                own.add_(term)

    def all_gather(self, rows: Array, x: Array, out: Array) -> None:
        """Of float32 rows."""
        own = on_host(x)[: int(rows[0])]
        if len(own):
            put_side_by_side(self.gathered(own, self.room(own)), on_host(out)[: len(own)])

    def gathered(self, own: Tensor, room: Tensor) -> list[Tensor]:
        """Every rank's, in order of rank; in `room` [ranks, *shape of `own`]."""
        parts = list(room)
        with self.or_lost():
            dist.all_gather(parts, own.contiguous(), group=self.step)
        return parts

    def room(self, own: Tensor) -> Tensor:
        """Memory for all ranks' rows, used again by the next exchange."""
        size = self.shard.size * own.numel()
        if len(self.memory) < size:
            self.memory = torch.empty(size)
        return self.memory[:size].view(self.shard.size, *own.shape)

    def leave(self) -> None:
        """All ranks at once."""
        dist.destroy_process_group()


def meeting_point(seat: Seat) -> Any:
    """Where ranks tell each other how they are reached: a store of keys."""
    listener = seat.listener.detach() if seat.listener else None
    store = dist.TCPStore(  # type: ignore[attr-defined]
        seat.host, seat.port, seat.size, listener is not None, MEET, wait_for_workers=False, master_listen_fd=listener
    )
    return dist.PrefixStore(f"octavo/{seat.attempt}", store)  # type: ignore[attr-defined]


def between_devices(ops: Ops, devices: Any) -> Ops:
    """Exchanges that a graph captures: of as many rows as the graph has room for. With more than two ranks the order in
    which terms are added is not ours, and depends on how many rows there are."""

    def all_reduce(rows: Array, x: Tensor) -> None:
        ops.on_rows(rows, x, lambda own: dist.all_reduce(own, group=devices))

    def all_gather(rows: Array, x: Tensor, out: Tensor) -> None:
        def gather(own: Tensor) -> None:
            parts = list(own.new_empty(ops.ranks, *own.shape))
            dist.all_gather(parts, own, group=devices)
            put_side_by_side(parts, out[: len(own)])

        ops.on_rows(rows, x, gather)

    is_invariant = ops.batch_invariant and ops.ranks == 2
    return replace(ops, all_reduce=all_reduce, all_gather=all_gather, batch_invariant=is_invariant)


def put_side_by_side(parts: list[Tensor], out: Tensor) -> None:
    """The columns that each rank has of `out`; parts are as wide as the widest."""
    width = out.shape[1]
    for rank, part in enumerate(parts):
        start, stop = rank * width // len(parts), (rank + 1) * width // len(parts)
        out[:, start:stop] = part[:, : stop - start]


def on_host(array: Array) -> Tensor:
    """The same memory as a tensor."""
    return array if isinstance(array, Tensor) else torch.from_numpy(array)

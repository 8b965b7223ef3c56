"""Multiplying by weights."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as f

from octavo_kernels.ops import Array, Weight
from octavo_kernels.triton.dense import Dense
from octavo_kernels.triton.launcher import Launcher
from octavo_kernels.triton.weights import matrix_of


class Linear:
    """The functions of the door that multiply."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self.dense = Dense(launcher)

    def embed(self, rows: Array, source: Weight, index: Tensor, out: Tensor) -> None:
        self.dense.take_rows(rows, matrix_of(source).data, index, out)

    def linear(self, rows: Array, x: Tensor, weight: Weight, out: Tensor) -> None:
        n, matrix = self.num_rows(rows, x), matrix_of(weight)

        def multiply() -> None:
            bias = None if matrix.bias is None else matrix.bias.to(x.dtype)
            out[:n].copy_(f.linear(x[:n], matrix.data.to(x.dtype), bias))

        self.launcher.do(multiply)

    def gated_linear(self, rows: Array, x: Tensor, gate: Weight, up: Weight, out: Tensor) -> None:
        n = self.num_rows(rows, x)

        def multiply() -> None:
            wide = [f.linear(x[:n], matrix_of(w).data.to(x.dtype)) for w in (gate, up)]
            out[:n].copy_(torch.nn.functional.silu(wide[0]) * wide[1])

        self.launcher.do(multiply)

    def num_rows(self, rows: Array, x: Tensor) -> int:
        return int(rows[0]) if isinstance(rows, np.ndarray) else self.launcher.most(rows, x.shape[0])

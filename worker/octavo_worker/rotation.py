"""Rotating a decoder's residual stream, so that no channel of it is much larger than the others.

The idea is that of QuaRot (Ashkboos et al., 2024, arXiv 2404.00456) and SliceGPT (arXiv 2401.15024): RMSNorm without a
weight commutes with an orthogonal Q, norm(x Q) = norm(x) Q. So the weight g of a norm goes into the matrices behind it;
W, whatever reads the residual, becomes W diag(g) Q, and whatever writes to it becomes Q^T W. In exact arithmetic the
decoder computes what it did before, at the same cost; but a channel that outweighs all others is spread over all of them,
and a row of activations that shares one scale loses far less when it is rounded to 8 bits.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

LARGEST = 64
"""Side of the largest Hadamard matrix that is multiplied by at once."""
ROWS = 256
"""Rows that are turned at once, so that they stay in the cache."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """Q = diag(signs) (F1 ⊗ F2 ⊗ ...) [width, width], orthogonal and the same for each width.

    It is never made as a whole: the product with small factors takes far fewer steps.
    """

    signs: Floats  # [width]: 1 or -1
    factors: tuple[Floats, ...]  # orthogonal, [side, side]; the sides' product is the width

    def reading(self, matrix: Floats, norm: Floats | None = None) -> Floats:
        """matrix diag(norm) Q, for a matrix [outputs, width] whose input is the residual behind a norm [width]."""
        gain = self.signs if norm is None else norm * self.signs
        out = np.empty(matrix.shape, np.float32)
        for start in range(0, len(matrix), ROWS):
            rows = slice(start, start + ROWS)
            out[rows] = self.turned(np.multiply(matrix[rows], gain, order="C"))
        return out

    def writing(self, matrix: Floats) -> Floats:
        """Q^T matrix, for a matrix [width, inputs] or a bias [width] that is added to the residual."""
        columns = matrix.reshape(len(self.signs), -1)
        return self.reading(columns.T).T.reshape(matrix.shape)

    def turned(self, x: Floats) -> Floats:
        """x (F1 ⊗ F2 ⊗ ...), for x [rows, width].

        Row by row: BLAS runs products so small on one thread. So the bits do not depend on how many there are, and nothing
        waits for a core that is taken (with large products a load of 1.9 s took up to 9 s beside other programs).
        """
        shape, before, after = x.shape, 1, x.shape[1]
        for factor in self.factors:
            side = len(factor)
            after //= side
            x = factor.T @ x.reshape(-1, side, after) if after > 1 else x.reshape(-1, before, side) @ factor
            before *= side
        return x.reshape(shape)


def rotation(width: int) -> Rotation:
    """The one of this width: Hadamard for the powers of two in it, a cosine transform for the odd rest, and fixed signs."""
    odd, sides = width, list[int]()
    while odd % 2 == 0:
        odd //= 2
    rest = width // odd
    while rest > 1:
        sides.insert(0, min(rest, LARGEST))
        rest //= sides[0]
    bits = np.unpackbits(np.frombuffer(hashlib.shake_128(b"octavo rotation").digest(-(-width // 8)), np.uint8))
    signs = np.where(bits[:width], np.float32(-1), np.float32(1))
    return Rotation(signs, (cosine(odd), *map(hadamard, sides)))


def hadamard(side: int) -> Floats:
    """Sylvester's Hadamard matrix of a power of two, divided by the root of its side."""
    whole = np.ones((1, 1), np.float32)
    while len(whole) < side:
        whole = np.block([[whole, whole], [whole, -whole]])
    return np.asarray(whole / np.sqrt(side), np.float32)


def cosine(side: int) -> Floats:
    """The orthonormal DCT-II: column k of row j is sqrt(2 / side) cos(pi (j + 1/2) k / side); column 0 is sqrt(1 / side)."""
    row, column = np.arange(side)[:, None] + 0.5, np.arange(side)
    whole = np.sqrt(2 / side) * np.cos(np.pi * row * column / side)
    whole[:, 0] = np.sqrt(1 / side)
    return np.asarray(whole, np.float32)

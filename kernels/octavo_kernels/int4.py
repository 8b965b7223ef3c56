"""Matrices in 4 bits as AWQ and GPTQ store them in checkpoints, read into one form that loses nothing.

Both keep eight values in an int32, and value = (q - zero) * scale of the input's group. Their matrices are transposed.
"""

from dataclasses import dataclass

import numpy as np

BITS = 4
IN_A_WORD = 32 // BITS
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight neighbouring outputs each 4 bits of a word are, from the lowest."""


@dataclass(frozen=True, slots=True)
class Int4:
    """A matrix [outputs, inputs]."""

    q: np.ndarray  # uint8 [outputs, inputs], below 16
    scale: np.ndarray  # float16 [groups, outputs]
    zero: np.ndarray  # uint8 [groups, outputs], below 16
    group_of: np.ndarray  # int32 [inputs]

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix."""
        outputs, inputs = self.q.shape
        return outputs, inputs

    @property
    def format(self) -> str:
        """That of a weight which holds the very same values."""
        return "int4"

    def floats(self) -> np.ndarray:
        """The matrix in float32."""
        scale, zero = (each[self.group_of].T for each in (self.scale.astype(np.float32), self.zero))
        return np.asarray((self.q.astype(np.float32) - zero) * scale)

    def rows(self, start: int, stop: int) -> "Int4":
        """Some outputs."""
        part = slice(start, stop)
        return Int4(self.q[part], self.scale[:, part], self.zero[:, part], self.group_of)

    def columns(self, start: int, stop: int) -> "Int4 | np.ndarray":
        """Some inputs; in float32, if groups are cut or inputs are not in their order."""
        if (start, stop) == (0, self.q.shape[1]):
            return self
        size = self.q.shape[1] // len(self.scale)
        if start % size or stop % size or (np.diff(self.group_of) < 0).any():
            return self.floats()[:, start:stop]
        part = slice(start // size, stop // size)
        return Int4(self.q[:, start:stop], self.scale[part], self.zero[part], self.group_of[start:stop] - part.start)


def below(parts: "list[Int4]") -> Int4:
    """Matrices one below the other. They have the same groups."""
    first = parts[0]
    scale, zero = (np.concatenate([getattr(each, name) for each in parts], 1) for name in ("scale", "zero"))
    return Int4(np.concatenate([each.q for each in parts]), scale, zero, first.group_of)


def from_awq(qweight: np.ndarray, qzeros: np.ndarray, scales: np.ndarray) -> Int4:
    """int32 [inputs, outputs / 8], int32 [groups, outputs / 8], [groups, outputs]. ValueError if they do not fit together.

    This is the layout that AWQ calls "gemm".
    """
    order = np.argsort(AWQ_ORDER)
    q, zero = (unpacked(words).reshape(len(words), -1, IN_A_WORD)[..., order] for words in (qweight, qzeros))
    q, zero = q.reshape(len(q), -1), zero.reshape(len(zero), -1)
    return checked(q.T, scales, zero, even_groups(len(q), len(scales)))


def from_gptq(
    qweight: np.ndarray, qzeros: np.ndarray, scales: np.ndarray, g_idx: np.ndarray | None = None, *, is_v2: bool = False
) -> Int4:
    """int32 [inputs / 8, outputs], int32 [groups, outputs / 8], [groups, outputs], int32 [inputs]. ValueError likewise.

    Zero points are kept less one, but in the second version of the format. `g_idx` says each input's group; with
    `desc_act` they are in no order.
    """
    q, zero = unpacked(qweight.T), unpacked(qzeros)
    zero = zero if is_v2 else (zero + 1) & 15
    group_of = even_groups(q.shape[1], len(scales)) if g_idx is None else g_idx.astype(np.int32)
    return checked(q, scales, zero, group_of)


def unpacked(words: np.ndarray) -> np.ndarray:
    """uint8 [..., 8 n] of int32 [..., n], from the lowest bits to the highest."""
    shifts = np.arange(IN_A_WORD, dtype=np.uint32) * BITS
    values = (np.ascontiguousarray(words).view(np.uint32)[..., None] >> shifts) & 15
    return values.astype(np.uint8).reshape(*words.shape[:-1], -1)


def even_groups(inputs: int, groups: int) -> np.ndarray:
    """The group of each input, where neighbours share one."""
    if groups < 1 or inputs % groups:
        raise ValueError(f"{inputs} inputs are not {groups} groups of one size")
    return np.repeat(np.arange(groups, dtype=np.int32), inputs // groups)


def checked(q: np.ndarray, scales: np.ndarray, zero: np.ndarray, group_of: np.ndarray) -> Int4:
    """Raises ValueError unless shapes agree and all groups are of one size."""
    (outputs, inputs), groups = q.shape, len(scales)
    shapes = {"scales": scales.shape, "qzeros": zero.shape}
    for name, shape in shapes.items():
        if shape != (groups, outputs):
            raise ValueError(f"{name} are of {list(shape)}, not of {groups} groups and {outputs} outputs")
    if group_of.shape != (inputs,) or not 0 <= group_of.min() <= group_of.max() < groups:
        raise ValueError(f"g_idx does not name one of {groups} groups for each of {inputs} inputs")
    if (np.bincount(group_of, minlength=groups) * groups != inputs).any():
        raise ValueError(f"{inputs} inputs are not {groups} groups of one size")
    return Int4(np.ascontiguousarray(q), scales.astype(np.float16), zero, group_of)

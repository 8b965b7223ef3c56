"""The C library as Python sees it: source/octavo.h in ctypes."""

import ctypes
import os
from ctypes import POINTER, c_char_p, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path

PATH = Path(__file__).parent / "liboctavo_cpu.so"
ANOTHER = "OCTAVO_CPU_LIBRARY"
"""Environment variable with the path of a library to load instead, such as one compiled with sanitizers."""
MAX_VOCABULARY = 1 << 18
"""Of `sample`: what fits the memory that each thread has to itself."""
TYPES = {"float32": 0, "bfloat16": 1, "float16": 2, "int8": 3, "int4": 4, "int8_groups": 5}
OPERATIONS = (
    "take_tokens",
    "take_rows",
    "embed",
    "rms_norm",
    "linear",
    "gated_linear",
    "rope_and_write",
    "attention",
    "silu_mul",
    "bias_logits",
    "mask_logits",
    "sample",
    "logprobs",
    "move_pages",
    "zero_pages",
    "pack",
)


class Matrix(ctypes.Structure):
    _fields_ = (("data", c_void_p), ("stride", c_int64), ("width", c_int32), ("type", c_int32))


class PackedWeight(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("scale", c_void_p),
        ("low", c_void_p),
        ("sum", c_void_p),
        ("bias", c_void_p),
        ("outputs", c_int32),
        ("inputs", c_int32),
        ("type", c_int32),
    )


class PageGeometry(ctypes.Structure):
    _fields_ = (
        ("block_bytes", c_int64),
        ("page_size", c_int32),
        ("num_layers", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("type", c_int32),
    )


STEP_ARRAYS = (
    *("tokens", "rows", "head_rows", "samples", "token", "position", "kv_index"),
    *("row_slot", "row_start", "row_length", "table"),
)
STEP_TAIL = (
    *("head_token", "sample_row", "sample_slot", "biased", "bias_row", "bias_slot"),
    *("scores", "score_row", "score_slot", "score_position"),
)


class StepArrays(ctypes.Structure):
    _fields_ = (
        *((name, c_void_p) for name in STEP_ARRAYS),
        ("table_width", c_int64),
        *((name, c_void_p) for name in STEP_TAIL),
    )


SAMPLING_ARRAYS = (
    *("temperature", "top_p", "min_p", "top_k", "repetition_penalty", "presence_penalty", "frequency_penalty"),
    *("seed", "branch", "num_prompt", "length", "history", "num_biases", "biases"),
)


class SamplingArrays(ctypes.Structure):
    _fields_ = (
        *((name, c_void_p) for name in SAMPLING_ARRAYS),
        ("history_width", c_int64),
        ("most_biases", c_int64),
    )


class TakeTokens(ctypes.Structure):
    _fields_ = (("sampling", POINTER(SamplingArrays)), ("step", POINTER(StepArrays)))


class TakeRows(ctypes.Structure):
    _fields_ = (("rows", c_void_p), ("source", Matrix), ("index", c_void_p), ("out", Matrix))


class Embed(ctypes.Structure):
    _fields_ = (("rows", c_void_p), ("source", POINTER(PackedWeight)), ("index", c_void_p), ("out", Matrix))


class RmsNorm(ctypes.Structure):
    _fields_ = (
        ("rows", c_void_p),
        ("x", Matrix),
        ("residual", Matrix),
        ("weight", c_void_p),
        ("out", Matrix),
        ("eps", c_float),
    )


class Linear(ctypes.Structure):
    _fields_ = (
        ("rows", c_void_p),
        ("x", Matrix),
        ("weight", POINTER(PackedWeight)),
        ("out", Matrix),
        ("scratch", c_void_p),
    )


class GatedLinear(ctypes.Structure):
    _fields_ = (
        ("rows", c_void_p),
        ("x", Matrix),
        ("gate", POINTER(PackedWeight)),
        ("up", POINTER(PackedWeight)),
        ("out", Matrix),
        ("scratch", c_void_p),
    )


class RopeAndWrite(ctypes.Structure):
    _fields_ = (
        ("qkv", Matrix),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("pool", c_void_p),
        ("geometry", POINTER(PageGeometry)),
        ("step", POINTER(StepArrays)),
        ("heads", c_int32),
        ("layer", c_int32),
    )


class Attention(ctypes.Structure):
    _fields_ = (
        ("qkv", Matrix),
        ("pool", c_void_p),
        ("geometry", POINTER(PageGeometry)),
        ("step", POINTER(StepArrays)),
        ("out", Matrix),
        ("heads", c_int32),
        ("layer", c_int32),
        ("window", c_int32),
        ("softcap", c_float),
    )


class SiluMul(ctypes.Structure):
    _fields_ = (("rows", c_void_p), ("gate_up", Matrix), ("out", Matrix))


class BiasLogits(ctypes.Structure):
    _fields_ = (
        ("logits", Matrix),
        ("sampling", POINTER(SamplingArrays)),
        ("step", POINTER(StepArrays)),
        ("out", Matrix),
    )


class MaskLogits(ctypes.Structure):
    _fields_ = (
        ("logits", Matrix),
        ("rows", c_void_p),
        ("row", c_void_p),
        ("bits", c_void_p),
        ("words", c_int64),
    )


class Sample(ctypes.Structure):
    _fields_ = (
        ("logits", Matrix),
        ("sampling", POINTER(SamplingArrays)),
        ("step", POINTER(StepArrays)),
        ("out", c_void_p),
    )


class Logprobs(ctypes.Structure):
    _fields_ = (
        ("logits", Matrix),
        ("sampling", POINTER(SamplingArrays)),
        ("step", POINTER(StepArrays)),
        ("values", c_void_p),
        ("ids", c_void_p),
        ("num_best", c_int32),
    )


class MovePages(ctypes.Structure):
    _fields_ = (
        ("source", c_void_p),
        ("source_ids", c_void_p),
        ("target", c_void_p),
        ("target_ids", c_void_p),
        ("staging", c_void_p),
        ("count", c_int64),
        ("page_bytes", c_int64),
    )


class ZeroPages(ctypes.Structure):
    _fields_ = (("pool", c_void_p), ("ids", c_void_p), ("count", c_int64), ("page_bytes", c_int64))


SOURCES = {"float32": 0, "Q4_0": 1, "Q4_1": 2, "Q8_0": 3}


class Pack(ctypes.Structure):
    _fields_ = (("rows", c_void_p), ("weight", POINTER(PackedWeight)), ("source", c_int32))


class Entry(ctypes.Structure):
    _fields_ = (("operation", c_int64), ("arguments", c_void_p))


@cache
def load() -> ctypes.CDLL:
    """The library. Raises OSError where it was not built."""
    library = ctypes.CDLL(os.environ.get(ANOTHER) or str(PATH))
    library.octavo_variants.restype = c_char_p
    library.octavo_team_new.argtypes, library.octavo_team_new.restype = (c_int32, c_char_p), c_void_p
    library.octavo_team_free.argtypes, library.octavo_team_free.restype = (c_void_p,), None
    library.octavo_run.argtypes, library.octavo_run.restype = (c_void_p, POINTER(Entry), c_int64), None
    return library


def variants() -> list[str]:
    """The instruction sets that this processor runs, best first; none where the library was not built."""
    try:
        library = load()
    except OSError:
        return []
    names: bytes = library.octavo_variants()
    return names.decode().split()

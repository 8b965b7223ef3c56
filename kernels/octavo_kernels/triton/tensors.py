"""Names of types, in torch and in numpy."""

import numpy as np
import torch

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int32": torch.int32,
    "int8": torch.int8,
    "fp8": torch.float8_e4m3fn,
}
DTYPE_OF_NUMPY = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
}
"""Of arrays that are shared with a device."""

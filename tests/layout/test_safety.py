"""Nothing in the tree, tests and tools included, runs code that it found in data."""

import pytest

from tests.layout.rules import unsafe_code
from tests.layout.tree import Source, sources

UNSAFE = [
    "import pickle",
    "from pickle import loads",
    "import cloudpickle as cp",
    "import marshal",
    "import shelve",
    "import dill",
    "def late():\n    import _pickle",
    "import torch\ntorch.load(path)",
    "import torch\ntorch.load(path, weights_only=True)",
    "import torch as t\nt.load(path)",
    "from torch import load",
    "eval(text)",
    "exec(text)",
    "import builtins\nbuiltins.exec(text)",
    "import builtins as b\nb.eval(text)",
    "import numpy as np\nnp.load(path, allow_pickle=True)",
    "import numpy as np\nnp.load(path, allow_pickle=flag)",
    "socket.recv_pyobj()",
    "self.socket.send_pyobj(plan)",
]

SAFE = [
    "model.eval()",
    "import numpy as np\nnp.load(path)\nnp.load(path, allow_pickle=False)",
    "import json\njson.load(file)",
    "from safetensors.torch import load_file\nload_file(path)",
]


def test_the_tree_has_no_pickle_and_no_eval() -> None:
    found = [sentence for source in sources() for sentence in unsafe_code(source)]
    assert found == []


@pytest.mark.parametrize("text", UNSAFE)
def test_unsafe_code_is_found(text: str) -> None:
    assert len(unsafe_code(Source("octavo_worker.bad", text))) == 1


@pytest.mark.parametrize("text", SAFE)
def test_safe_code_passes(text: str) -> None:
    assert unsafe_code(Source("octavo_worker.good", text)) == []

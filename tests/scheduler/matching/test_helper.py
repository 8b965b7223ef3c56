"""The helper process itself."""

import subprocess
import sys
from contextlib import suppress

import psutil
import pytest
from octavo_scheduler.matching.helper import Helper, HelperLost
from octavo_scheduler.model import ServedModel

from tests.patience import PATIENCE

ASKED = {"begin": [[0, "regex", "[a-z]+", []]]}


def test_it_ends_when_the_scheduler_is_gone_without_a_word(model_folder: object) -> None:
    """Whatever ends the scheduler: the socket closes with it."""
    code = (
        "import os, sys; from pathlib import Path; from octavo_scheduler.matching.helper import Helper; "
        "from octavo_scheduler.model import load_model; helper = Helper(load_model(Path(sys.argv[1]))); "
        f"helper.ask({ASKED!r}, 60); print(helper.process.pid, flush=True); os._exit(1)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(model_folder)], capture_output=True, text=True)
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(done.stdout)).wait(PATIENCE)


def test_one_that_is_closed_does_not_start_again(model: ServedModel) -> None:
    helper = Helper(model)
    head, body = helper.ask(ASKED, 60)
    assert head["masks"] == [0]
    assert any(body)
    process = helper.process
    helper.close()
    assert process is not None
    assert process.poll() is not None
    with pytest.raises(HelperLost):
        helper.ask(ASKED, 60)

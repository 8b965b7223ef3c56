"""Command lines of programs that stand in for the scheduler and the worker."""

import sys
from pathlib import Path

from tests.doubles import inference_server

SCHEDULER = (sys.executable, str(Path(inference_server.__file__)))
JOINED = "print('octavo worker: double joined the scheduler', flush=True)"
# A worker that stays until its lifeline ends.
WORKER = (sys.executable, "-c", f"import os, sys; {JOINED}; os.read(int(sys.argv[-1]), 1)")

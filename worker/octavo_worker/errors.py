"""What can go wrong in a worker.

WorkerError
├── ConfigError      a flag has a bad value
├── ModelError       the model cannot be read or is not supported
├── JoinRefused      the scheduler does not want this worker
├── GroupLost        another rank of a tensor-parallel worker is gone
└── PlanRefused      a plan could not be applied (carries a reason)
"""

import errno
from enum import Enum


class WorkerError(Exception):
    """Base class. The message is one sentence for the operator."""

    exit_code = 2


class ConfigError(WorkerError):
    """A flag has a bad value, or two contradict each other."""


class ModelError(WorkerError):
    """The model folder or file is missing, damaged or not supported."""


class JoinRefused(WorkerError):
    """The scheduler refused this worker's Hello."""


class GroupLost(WorkerError):
    """A rank of this tensor-parallel group ended, fell silent or went astray; the group ends."""

    exit_code = 1


class Reason(Enum):
    """Why a plan is refused; names as in the step protocol's Nack."""

    OUT_OF_SEQUENCE = "out of sequence"
    INVALID = "invalid"
    FAILED = "failed"
    OUT_OF_MEMORY = "out of memory"


class PlanRefused(WorkerError):
    """A plan could not be applied. INVALID and OUT_OF_SEQUENCE changed nothing; the others emptied all slots."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def is_memory(error: BaseException) -> bool:
    """Whether a step died of a lack of memory. torch says so by a class of its own on devices, by words on processors."""
    is_device = any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
    is_system = isinstance(error, OSError) and error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or is_device or is_system or "can't allocate memory" in str(error)

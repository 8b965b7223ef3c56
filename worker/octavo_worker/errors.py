"""What can go wrong in a worker.

WorkerError
├── ConfigError      a flag has a bad value
├── ModelError       the model cannot be read or is not supported
├── JoinRefused      the scheduler does not want this worker
├── GroupLost        another rank of a tensor-parallel worker is gone
└── PlanRefused      a plan could not be applied (carries a reason)
"""

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


class PlanRefused(WorkerError):
    """A plan could not be applied. INVALID and OUT_OF_SEQUENCE changed nothing; FAILED emptied all slots."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

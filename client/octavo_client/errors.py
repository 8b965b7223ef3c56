"""What can go wrong, as a client sees it.

OctavoError
├── RequestError            the server ended a call with a status; `.code` is its name
│   ├── InvalidRequest      the request can never succeed as it is (also a ValueError)
│   ├── ModelNotFound       no model of this name is served here
│   ├── Overloaded          queue or pool is full: try again later
│   ├── Unavailable         nobody answers, or nobody can serve at the moment
│   ├── DeadlineExceeded    the time given to the call is over (also a TimeoutError)
│   ├── Cancelled           the server gave the request up (an operator's abort, a shutdown)
│   ├── Unauthenticated     no token, or a wrong one
│   ├── PermissionDenied    the token does not allow this
│   ├── Unsupported         the server does not know this call or feature
│   └── ServerFault         a bug or a broken server
├── ConfigError             a setting of this process is wrong (address, token file, model path)
├── StartFailed             a scheduler or worker of this machine did not come up, or ended too early
└── PrepareFailed           no engine folder could be made of a model, or one is damaged

Cancelling a call from this side raises asyncio.CancelledError, as everywhere in asyncio.
"""

from collections.abc import Iterable
from typing import Any


class OctavoError(Exception):
    """Root of all errors this package raises on purpose. `str()` of it is one sentence for a person."""


class RequestError(OctavoError):
    """A call ended with a status other than OK. `code` is the name of the gRPC status code."""

    code = "UNKNOWN"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class InvalidRequest(RequestError, ValueError):
    """The request can never succeed as it is. Raised before sending where the mistake shows here already."""

    code = "INVALID_ARGUMENT"


class ModelNotFound(RequestError):
    """No model of this name is served here."""


class Overloaded(RequestError):
    """Queue or page pool is full; the same request may succeed later: in `retry_after` seconds, if the server knows."""

    retry_after: float | None = None


class Unavailable(RequestError):
    """Nobody answers at this address, or nobody can serve at the moment."""


class DeadlineExceeded(RequestError, TimeoutError):
    """The time given to the call is over."""


class Cancelled(RequestError):
    """The server gave the request up."""


class Unauthenticated(RequestError):
    """The server asks for a token, or does not know the one it got."""


class PermissionDenied(RequestError):
    """The token does not allow this call."""


class Unsupported(RequestError):
    """The server does not know this call or feature."""


class ServerFault(RequestError):
    """The server is at fault."""


class ConfigError(OctavoError):
    """A setting of this process is wrong; the sentence says which and how to mend it."""


class StartFailed(OctavoError):
    """A child process did not come up. `lines` are the last lines it printed, oldest first."""

    def __init__(self, message: str, *, lines: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.lines = lines


class PrepareFailed(OctavoError):
    """No engine folder could be made of a model, or one is not what was prepared. Nothing is left behind."""


BY_STATUS: dict[str, type[RequestError]] = {
    "INVALID_ARGUMENT": InvalidRequest,
    "OUT_OF_RANGE": InvalidRequest,
    "FAILED_PRECONDITION": InvalidRequest,
    "ALREADY_EXISTS": InvalidRequest,
    "NOT_FOUND": ModelNotFound,
    "RESOURCE_EXHAUSTED": Overloaded,
    "UNAVAILABLE": Unavailable,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "CANCELLED": Cancelled,
    "ABORTED": Cancelled,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": PermissionDenied,
    "UNIMPLEMENTED": Unsupported,
    "INTERNAL": ServerFault,
    "UNKNOWN": ServerFault,
    "DATA_LOSS": ServerFault,
}


RETRY_AFTER = "retry-after-ms"


def from_status(code: str, details: str | None, metadata: Iterable[tuple[str, Any]] = ()) -> RequestError:
    """Returns the error for the name of a status other than OK, whose trailing metadata may say when to try again."""
    error = BY_STATUS[code](details or code, code=code)
    milliseconds = str(dict(metadata).get(RETRY_AFTER, ""))
    if isinstance(error, Overloaded) and milliseconds.isdecimal():
        error.retry_after = int(milliseconds) / 1000
    return error

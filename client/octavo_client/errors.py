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

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any


class OctavoError(Exception):
    """Root of all errors this package raises on purpose. `str()` of it is one sentence for a person."""


class RequestError(OctavoError):
    """A call ended with a status other than OK. `code` is the name of the gRPC status code.

    Where the server says more: `reason` is a word for programs, `field` the path of the field that is wrong, `numbers` what
    the sentence says in numbers, and after `retry_after` seconds the same request may well succeed.
    """

    code = "UNKNOWN"
    reason = ""
    field = ""
    numbers: Mapping[str, str] = MappingProxyType({})
    retry_after: float | None = None

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
DETAILS = "grpc-status-details-bin"


def from_status(code: str, details: str | None, metadata: Iterable[tuple[str, Any]] = ()) -> RequestError:
    """Returns the error for the name of a status other than OK, with what its trailing metadata says of it."""
    error, told = BY_STATUS[code](details or code, code=code), dict(metadata)
    milliseconds = str(told.get(RETRY_AFTER, ""))
    if milliseconds.isdecimal():
        error.retry_after = int(milliseconds) / 1000
    if isinstance(told.get(DETAILS), bytes):
        _read(told[DETAILS], error)
    return error


def _read(encoded: bytes, error: RequestError) -> None:
    """Takes what we know of google.rpc's details; whatever else a server sends is ignored."""
    from google.protobuf.message import DecodeError
    from google.rpc import error_details_pb2, status_pb2  # only errors need them

    info, request, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    try:
        for each in status_pb2.Status.FromString(encoded).details:
            if each.Unpack(info):
                error.reason, error.numbers = info.reason, MappingProxyType(dict(info.metadata))
            elif each.Unpack(request) and request.field_violations:
                error.field = request.field_violations[0].field
            elif each.Unpack(retry):
                error.retry_after = retry.retry_delay.ToMilliseconds() / 1000
    except DecodeError:
        return

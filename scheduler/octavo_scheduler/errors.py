"""What can go wrong, as a tree, and how each kind is said to a client.

OctavoError
├── StartError            the process cannot start; one sentence for the operator, exit code 2
└── RequestError          one request cannot be served
    ├── Unauthenticated       UNAUTHENTICATED      there is no token, or a wrong one
    ├── PermissionDenied      PERMISSION_DENIED    the token does not allow this
    ├── InvalidRequest        INVALID_ARGUMENT     the request itself is wrong
    ├── ModelNotFound         NOT_FOUND            no model of that name is served here
    ├── UnknownName           NOT_FOUND            an operator named a worker or a pin that is not here
    ├── NameTaken             ALREADY_EXISTS       another request has this request_id
    ├── Overloaded            RESOURCE_EXHAUSTED   the queue is full; try later
    ├── NoMemory              RESOURCE_EXHAUSTED   the workers have not the memory to compute it
    ├── SlowReader            RESOURCE_EXHAUSTED   the client did not read its stream
    ├── Unavailable           UNAVAILABLE          the scheduler is shutting down
    ├── DeadlineExceeded      DEADLINE_EXCEEDED    the request ran out of time
    └── RequestFailed         INTERNAL             the workers could not compute it
"""

import re
from collections.abc import Mapping

import grpc

from octavo_scheduler.details import encoded_details

RETRY_AFTER = "retry-after-ms"
"""Trailing metadata: milliseconds after which to try again."""
KIND = re.compile("(?<=[a-z])(?=[A-Z])")
"""Where a new word begins in the name of a kind, which is its reason: INVALID_REQUEST."""
MOST_BYTES = 1024
"""Of a sentence: it travels in a header, whose size peers limit."""
PUSHBACK = "grpc-retry-pushback-ms"
"""The same for gRPC clients that retry by themselves: they wait so long, instead of making an overload worse."""
DETAILS = "grpc-status-details-bin"
"""All that is known of the error, as a google.rpc.Status: gRPC libraries have functions that read it."""


class OctavoError(Exception):
    """Root of the tree."""


class StartError(OctavoError):
    """The process cannot start."""


class RequestError(OctavoError):
    """One request cannot be served. The message is shown to the client; what programs need travels beside it.

    A client's own words in it may be anything, and end up on somebody's terminal: what cannot be printed becomes "?".
    `field` is the path of the field that is wrong, `numbers` what the message says in numbers, `retry_after` in seconds.
    """

    status = grpc.StatusCode.UNKNOWN
    retry_after: float | None = None

    def __init__(
        self,
        message: str,
        retry_after: float | None = None,
        *,
        reason: str = "",
        field: str = "",
        numbers: Mapping[str, float] | None = None,
    ) -> None:
        printable = "".join(letter if letter.isprintable() else "?" for letter in message)
        super().__init__(printable.encode()[:MOST_BYTES].decode(errors="ignore"))
        self.field, self.numbers = field, numbers or {}
        if retry_after is not None:
            self.retry_after = retry_after
        self.reason = reason or KIND.sub("_", type(self).__name__).upper()
        """A word for programs."""

    @property
    def metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """Trailing metadata of the answer."""
        number, _ = self.status.value
        details = encoded_details(
            number, str(self), self.reason, field=self.field, numbers=self.numbers, retry_after=self.retry_after
        )
        if self.retry_after is None:
            return ((DETAILS, details),)
        milliseconds = str(round(self.retry_after * 1000))
        return (RETRY_AFTER, milliseconds), (PUSHBACK, milliseconds), (DETAILS, details)


class Unauthenticated(RequestError):
    status = grpc.StatusCode.UNAUTHENTICATED


class PermissionDenied(RequestError):
    status = grpc.StatusCode.PERMISSION_DENIED


class InvalidRequest(RequestError):
    status = grpc.StatusCode.INVALID_ARGUMENT


def require(condition: bool, sentence: str, field: str = "", **numbers: float) -> None:
    """Raises InvalidRequest. `field`: its path in the message. `numbers`: those of the sentence, for programs."""
    if not condition:
        raise InvalidRequest(sentence, field=field, numbers=numbers)


class ModelNotFound(RequestError):
    status = grpc.StatusCode.NOT_FOUND


class UnknownName(RequestError):
    status = grpc.StatusCode.NOT_FOUND


class NameTaken(RequestError):
    status = grpc.StatusCode.ALREADY_EXISTS


class Overloaded(RequestError):
    """`retry_after`: seconds after which there may well be room."""

    status = grpc.StatusCode.RESOURCE_EXHAUSTED


class NoMemory(RequestError):
    """Not for want of trying: gRPC clients that retry by themselves are told to leave it."""

    status = grpc.StatusCode.RESOURCE_EXHAUSTED

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return ((PUSHBACK, "-1"),)


class SlowReader(RequestError):
    status = grpc.StatusCode.RESOURCE_EXHAUSTED


class Unavailable(RequestError):
    """A scheduler that starts anew, and workers that come back, take about a second."""

    status = grpc.StatusCode.UNAVAILABLE
    retry_after = 1.0


class DeadlineExceeded(RequestError):
    status = grpc.StatusCode.DEADLINE_EXCEEDED


class RequestFailed(RequestError):
    status = grpc.StatusCode.INTERNAL

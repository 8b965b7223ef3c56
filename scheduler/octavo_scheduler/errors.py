"""What can go wrong, as a tree, and how each kind is said to a client.

OctavoError
├── StartError            the process cannot start; one sentence for the operator, exit code 2
└── RequestError          one request cannot be served
    ├── InvalidRequest        INVALID_ARGUMENT     the request itself is wrong
    ├── ModelNotFound         NOT_FOUND            no model of that name is served here
    ├── UnknownName           NOT_FOUND            an operator named a worker or a pin that is not here
    ├── NameTaken             ALREADY_EXISTS       another request has this request_id
    ├── Overloaded            RESOURCE_EXHAUSTED   the queue is full; try later
    ├── SlowReader            RESOURCE_EXHAUSTED   the client did not read its stream
    ├── Unavailable           UNAVAILABLE          the scheduler is shutting down
    ├── DeadlineExceeded      DEADLINE_EXCEEDED    the request ran out of time
    └── RequestFailed         INTERNAL             the workers could not compute it
"""

import grpc

RETRY_AFTER = "retry-after-ms"
"""Trailing metadata: milliseconds after which to try again."""
MOST_BYTES = 1024
"""Of a sentence: it travels in a header, whose size peers limit."""
PUSHBACK = "grpc-retry-pushback-ms"
"""The same for gRPC clients that retry by themselves: they wait so long, instead of making an overload worse."""


class OctavoError(Exception):
    """Root of the tree."""


class StartError(OctavoError):
    """The process cannot start."""


class RequestError(OctavoError):
    """One request cannot be served. The message is shown to the client; `retry_after` travels beside it.

    A client's own words in it may be anything, and end up on somebody's terminal: what cannot be printed becomes "?".
    """

    status = grpc.StatusCode.UNKNOWN
    retry_after: float | None = None

    def __init__(self, message: str) -> None:
        printable = "".join(letter if letter.isprintable() else "?" for letter in message)
        super().__init__(printable.encode()[:MOST_BYTES].decode(errors="ignore"))

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Trailing metadata of the answer."""
        if self.retry_after is None:
            return ()
        milliseconds = str(round(self.retry_after * 1000))
        return (RETRY_AFTER, milliseconds), (PUSHBACK, milliseconds)


class InvalidRequest(RequestError):
    status = grpc.StatusCode.INVALID_ARGUMENT


class ModelNotFound(RequestError):
    status = grpc.StatusCode.NOT_FOUND


class UnknownName(RequestError):
    status = grpc.StatusCode.NOT_FOUND


class NameTaken(RequestError):
    status = grpc.StatusCode.ALREADY_EXISTS


class Overloaded(RequestError):
    """`retry_after`: seconds after which there may well be room."""

    status = grpc.StatusCode.RESOURCE_EXHAUSTED

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class SlowReader(RequestError):
    status = grpc.StatusCode.RESOURCE_EXHAUSTED


class Unavailable(RequestError):
    status = grpc.StatusCode.UNAVAILABLE


class DeadlineExceeded(RequestError):
    status = grpc.StatusCode.DEADLINE_EXCEEDED


class RequestFailed(RequestError):
    status = grpc.StatusCode.INTERNAL

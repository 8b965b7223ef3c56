"""Errors for programs: google.rpc's details, which travel beside the sentence for people."""

from collections.abc import Mapping

DOMAIN = "octavo.v1"
"""Whose reasons they are."""


def encoded_details(
    code: int, message: str, reason: str, *, field: str, numbers: Mapping[str, float], retry_after: float | None
) -> bytes:
    """A google.rpc.Status with an ErrorInfo; a BadRequest where a field is wrong, a RetryInfo where waiting helps."""
    from google.rpc import error_details_pb2, status_pb2  # only errors need them, and a start should not wait

    status = status_pb2.Status(code=code, message=message)
    told = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in numbers.items()}
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=told))
    if field:
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=message)
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    if retry_after is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(round(retry_after * 1000))
        status.details.add().Pack(retry)
    return bytes(status.SerializeToString())

import grpc
import pytest
from octavo_client import errors


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_every_status_but_ok_has_an_error_that_keeps_message_and_code(code: grpc.StatusCode) -> None:
    error = errors.from_status(code.name, "What happened.")
    assert type(error) is errors.BY_STATUS[code.name]
    assert isinstance(error, errors.OctavoError)
    assert (str(error), error.code) == ("What happened.", code.name)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("INVALID_ARGUMENT", errors.InvalidRequest),
        ("OUT_OF_RANGE", errors.InvalidRequest),
        ("NOT_FOUND", errors.ModelNotFound),
        ("RESOURCE_EXHAUSTED", errors.Overloaded),
        ("UNAVAILABLE", errors.Unavailable),
        ("DEADLINE_EXCEEDED", errors.DeadlineExceeded),
        ("CANCELLED", errors.Cancelled),
        ("UNAUTHENTICATED", errors.Unauthenticated),
        ("INTERNAL", errors.ServerFault),
    ],
)
def test_the_statuses_a_scheduler_sends_have_their_own_errors(code: str, kind: type[errors.RequestError]) -> None:
    assert errors.BY_STATUS[code] is kind


def test_a_status_without_words_is_named_by_its_code() -> None:
    assert str(errors.from_status("UNAVAILABLE", None)) == "UNAVAILABLE"


def test_errors_are_caught_under_the_names_python_knows() -> None:
    assert issubclass(errors.InvalidRequest, ValueError)
    assert issubclass(errors.DeadlineExceeded, TimeoutError)


def test_the_tree_in_the_docstring_names_every_error() -> None:
    kinds = [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert kinds
    assert [name for name in kinds if name not in (errors.__doc__ or "")] == []

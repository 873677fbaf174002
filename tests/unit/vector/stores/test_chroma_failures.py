"""Errors of Chroma's client become errors of the library."""

import pytest

from lib.errors import StoreUnavailable
from lib.vector.stores.chroma.client import typed_errors


@pytest.mark.parametrize(
    "fault", [PermissionError(13, "denied"), OverflowError("out of range"), ValueError("what")]
)
def test_what_the_client_raises_is_the_cause_of_a_typed_error(fault: Exception) -> None:
    with pytest.raises(StoreUnavailable) as failure, typed_errors():
        raise fault

    assert failure.value.__cause__ is fault
    assert not failure.value.retryable


def test_a_timeout_is_retryable_though_it_is_an_os_error() -> None:
    with pytest.raises(StoreUnavailable) as failure, typed_errors():
        raise TimeoutError

    assert failure.value.retryable

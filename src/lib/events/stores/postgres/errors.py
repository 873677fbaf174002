"""The driver's errors as ours."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from lib._util.postgres import failure, psycopg, psycopg_pool
from lib.errors import StoreCorrupt, StoreError, StoreReadOnly

_UNWRITABLE: Final = ("25006", "42501")  # read-only transactions, missing rights
_DAMAGED: Final = ("XX001", "XX002", "22P05")
_LOST: Final = ("08", "57P")
_UNKNOWN: Final = "; what was being written may or may not have been stored"


@contextmanager
def typed_errors(store: str, *, writes: bool = True) -> Generator[None]:
    """Raise what the driver raises as a `StoreError` of the right type, without its message.

    A connection that was lost leaves open whether a write under way has been committed.

    Args:
        store: for messages.
        writes: False where nothing was being written that anybody has to look for.
    """
    try:
        yield
    except psycopg.Error as error:
        failed = failure(store, error)
        state = error.sqlstate or ""
        message = failed.message
        if state.startswith(_LOST):
            message = f"{store} closed the connection: {type(error).__name__}, SQLSTATE {state}"
        kind = _kind(state)
        sent = writes and not isinstance(error, psycopg_pool.PoolTimeout)
        if sent and failed.retryable and (not state or state.startswith(_LOST)):
            message += _UNKNOWN
        raise kind(message, retryable=failed.retryable) from error


def _kind(state: str) -> type[StoreError]:
    if state in _UNWRITABLE:
        return StoreReadOnly
    if state in _DAMAGED:
        return StoreCorrupt
    return StoreError

"""SQLite's errors as ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from lib._util.sqlite import failure, may_pass
from lib.errors import StoreCorrupt, StoreError, StoreReadOnly

_ERRORS: Final = {
    "unwritable": (
        StoreReadOnly,
        "cannot be opened or written (is its folder there, and writable?)",
    ),
    "damaged": (StoreCorrupt, "is damaged or not an event store"),
    "interrupted": (
        StoreError,
        "could not reach its disk; what was being written may or may not have been stored",
    ),
    "other": (StoreError, "failed, and has changed nothing"),
}


@contextmanager
def typed_errors(store: str) -> Generator[None]:
    """Raise what SQLite raises as a `StoreError` of the right type."""
    try:
        yield
    except sqlite3.Error as error:
        kind, message = _ERRORS[failure(error)]
        raise kind(f"{store} {message}: {error}", retryable=may_pass(error)) from error

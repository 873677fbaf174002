"""SQLite's errors as ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

from lib._util.sqlite import failure
from lib.errors import StoreCorrupt, StoreError, StoreReadOnly


@contextmanager
def typed_errors(store: str) -> Generator[None]:
    """Raise what SQLite raises as a `StoreError` of the right type."""
    try:
        yield
    except sqlite3.Error as error:
        match failure(error):
            case "unwritable":
                raise StoreReadOnly(f"{store} cannot be opened or written: {error}") from error
            case "damaged":
                message = f"{store} is damaged or not an event store: {error}"
                raise StoreCorrupt(message) from error
            case "other":
                raise StoreError(f"{store} failed and has changed nothing: {error}") from error

"""Stores by the name that a person types: a path, or a URL."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from lib.events import EventStore

URL_PREFIX = "sqlite:///"


@asynccontextmanager
async def reading(store: str) -> AsyncGenerator[EventStore]:
    """Open an event store read-only, and close it.

    Raises:
        UsageError: there is no such store.
    """
    from lib.events import SQLiteEventStore  # noqa: PLC0415 - loads its driver

    opened = SQLiteEventStore(_path(store), read_only=True)
    await opened.setup()
    try:
        yield opened
    finally:
        await opened.close()


def _path(store: str) -> Path:
    if "://" in store and not store.startswith(URL_PREFIX):
        raise click.UsageError(f"{store!r}: give a path or {URL_PREFIX}PATH")
    path = Path(store.removeprefix(URL_PREFIX))
    if not path.is_file():
        raise click.UsageError(f"there is no event store at {str(path)!r}")
    return path

"""Stores by the name that a person types: a path, or a URL."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import click

from lib.events import EventStore, SQLiteEventStore

URL_PREFIX: Final = "sqlite:///"


class StorePath(click.ParamType[Path]):
    """The path of an event store that exists."""

    name = "store"

    def convert(
        self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        """Return the path that the argument names."""
        given = str(value)
        named = given.removeprefix(URL_PREFIX)
        path = Path(named)
        if "://" in named:
            self.fail(f"{given!r}: give a path or {URL_PREFIX}PATH", param, ctx)
        if not path.is_file():
            self.fail(f"there is no event store at {str(path)!r}", param, ctx)
        return path


@asynccontextmanager
async def reading(path: Path) -> AsyncGenerator[EventStore]:
    """Open an event store read-only, and close it."""
    store = SQLiteEventStore(path, read_only=True)
    await store.setup()
    try:
        yield store
    finally:
        await store.close()

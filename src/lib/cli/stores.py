"""Stores by the name that a person types: a path, or a URL."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import click

from lib.cli.paths import checked_path
from lib.events import EventStore, SQLiteEventStore

URL_PREFIX: Final = "sqlite:///"


class StorePath(click.ParamType[Path]):
    """The path of an event store that exists."""

    name = "store"

    def convert(
        self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        """Return the path that the argument names."""
        named = str(value).removeprefix(URL_PREFIX)
        if "://" in named:  # not repeated, since it may hold a password
            self.fail(f"give a path or {URL_PREFIX}PATH", param, ctx)
        try:
            path = Path(checked_path(named))
            found = path.is_file()
        except (OSError, ValueError) as error:
            self.fail(str(error), param, ctx)
        if not found:
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

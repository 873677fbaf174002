"""Stores by the name that a person types: a path, or a URL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import click

from lib.events import EventStore
from lib.events.urls import StorePlace, store_at, store_place

FORMS: Final = "a path, sqlite:///PATH, postgresql://HOST/DATABASE or redis://HOST"


class StoreParam(click.ParamType[StorePlace]):
    """An argument that names an event store; the file of one in a file exists."""

    name = "store"

    def convert(
        self, value: str | StorePlace, param: click.Parameter | None, ctx: click.Context | None
    ) -> StorePlace:
        """Return what the argument names."""
        if isinstance(value, StorePlace):
            return value
        try:
            place = store_place(value)
            found = place.kind != "sqlite" or Path(place.target).is_file()
        except (OSError, ValueError) as error:
            self.fail(str(error), param, ctx)
        if place.kind == "memory":
            self.fail(f"name a store that outlives this command: {FORMS}", param, ctx)
        if not found:
            self.fail(f"there is no event store at {place.shown!r}", param, ctx)
        return place


@asynccontextmanager
async def reading(place: StorePlace) -> AsyncGenerator[EventStore]:
    """Open an event store read-only, and close it."""
    try:
        store = await asyncio.to_thread(store_at, place, read_only=True)  # may load a driver
    except ValueError as error:
        raise click.UsageError(f"{place.shown}: {error}") from error
    try:
        await store.setup()
        yield store
    finally:
        await store.close()

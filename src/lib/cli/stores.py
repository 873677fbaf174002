"""Event stores named by a path or a URL on the command line."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

import click

from lib.cli.options import OrderedCommand
from lib.errors import MigrationNeeded, RunNotFound
from lib.events import EventStore, RunInfo
from lib.events.paging import each_run
from lib.events.store import LAYOUT_VERSION
from lib.events.urls import StoreURL, parse_store_url, store_at

VARIABLE: Final = "LIB_STORE"
"""The environment variable that names the store where a command line does not."""

FORMS: Final = "a path, sqlite:///PATH, postgresql://HOST/DATABASE or redis://HOST"

_NAMED: Final = 3
"""Runs that the message about an ambiguous prefix names."""


class StoreParam(click.ParamType[StoreURL]):
    """An argument that names an event store; the file of one in a file exists."""

    name = "store"

    def convert(
        self, value: str | StoreURL, param: click.Parameter | None, ctx: click.Context | None
    ) -> StoreURL:
        """Return what the argument names."""
        if isinstance(value, StoreURL):
            return value
        try:
            place = parse_store_url(value)
            found = place.kind != "sqlite" or Path(place.target).is_file()
        except (OSError, ValueError) as error:
            self.fail(str(error), param, ctx)
        if place.kind == "memory":
            self.fail(f"name a store that outlives this command: {FORMS}", param, ctx)
        if not found:
            self.fail(f"there is no event store at {place.display!r}", param, ctx)
        return place


class StoreCommand(OrderedCommand):
    """A command whose argument STORE, the first, may be left out if the environment names it."""

    variables: ClassVar[tuple[str, ...]] = (VARIABLE,)
    """The first of them that is set names the store."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments, the store from the environment if one argument is missing."""
        named = next((each for name in self.variables if (each := os.environ.get(name))), None)
        if named and self._lacks_one(ctx, args):
            args = [named, *args]
        return super().parse_args(ctx, args)

    def _lacks_one(self, ctx: click.Context, args: list[str]) -> bool:
        needed = [each for each in self.params if isinstance(each, click.Argument)]
        try:
            found, *_ = self.make_parser(ctx).parse_args(args=list(args))
        except click.UsageError:
            return len(needed) == 1 and not args
        return self.lacks_store([each.name or "" for each in needed if each.required], found)

    def lacks_store(self, needed: Sequence[str], found: Mapping[str, Any]) -> bool:
        """Return True if one argument is missing.

        Args:
            needed: the names of arguments that have to be there.
            found: arguments and options as they were typed.
        """
        return bool(needed) and not isinstance(found.get(needed[-1]), str)


class StoreGroup(click.Group):
    """A group of such commands."""

    command_class: type[click.Command] | None = StoreCommand


@asynccontextmanager
async def reading(place: StoreURL) -> AsyncGenerator[EventStore]:
    """Open an event store read-only, and close it."""
    async with _opened(place, read_only=True) as store:
        yield store


@asynccontextmanager
async def writing(place: StoreURL) -> AsyncGenerator[EventStore]:
    """Open an existing event store to append to it, and close it; never migrate it.

    Raises:
        MigrationNeeded: this release would migrate it.
    """
    async with reading(place) as store:
        if (layout := await store.schema_version()) != LAYOUT_VERSION:
            raise MigrationNeeded(place.display, found=layout, supported=LAYOUT_VERSION)
    async with _opened(place, read_only=False) as store:
        yield store


@asynccontextmanager
async def _opened(place: StoreURL, *, read_only: bool) -> AsyncGenerator[EventStore]:
    try:
        store = await asyncio.to_thread(store_at, place, read_only=read_only)  # may load a driver
    except ValueError as error:
        raise click.UsageError(f"{place.display}: {error}") from error
    try:
        await store.setup()
        yield store
    finally:
        await store.close()


async def find_run(store: EventStore, prefix: str) -> RunInfo:
    """Return the run of this id, or the only one whose id begins like this.

    Raises:
        RunNotFound: there is none.
        ClickException: several begin like this.
    """
    if (exact := await store.run(prefix)) is not None:
        return exact
    found = [run async for run in each_run(store) if run.run_id.startswith(prefix)]
    if not found:
        raise RunNotFound(prefix)
    if len(found) > 1:
        raise _ambiguous(prefix, found)
    return found[0]


def _ambiguous(prefix: str, found: Sequence[RunInfo]) -> click.ClickException:
    named = ", ".join(repr(run.run_id) for run in found[:_NAMED])
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return click.ClickException(
        f"{prefix!r} is the beginning of {len(found):,} runs: {named}{more}; give more of the id"
    )

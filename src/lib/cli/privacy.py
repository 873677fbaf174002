"""`lib privacy`: erase runs, tenants and expired data. Erasure is final."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, get_args, runtime_checkable

import click

from lib.cli import vector_stores
from lib.cli.stores import FORMS, VARIABLE, StoreGroup, StoreParam, find_run, reading
from lib.cli.terminal import json_line, text_line
from lib.errors import RunNotFound, StoreError
from lib.events import DirectoryBlobStore, EventStore
from lib.events.urls import StoreURL, store_at
from lib.memory import Memory
from lib.privacy import Erased, collect_blobs, erase_run, erase_tenant, expire
from lib.vector import Metric
from lib.vector.tenant import TenantVectorStore
from lib.vector.urls import StoreName

F = TypeVar("F", bound=Callable[..., Any])
Work = Callable[[EventStore, bool], Awaitable[Erased]]
"""Erases, or only counts if its second argument, `dry_run`, is True."""

_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes"}
_AGE: Final = re.compile(r"([1-9][0-9]{0,5})([dhm])")


@runtime_checkable
class _Purgeable(Protocol):
    async def purge(self) -> None:
        """Remove erased data from the server's files; may take long."""
        ...


class AgeParam(click.ParamType[timedelta]):
    """An age, such as 30d, 12h or 90m."""

    name = "age"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Return the age that the text names."""
        found = _AGE.fullmatch(value)
        if found is None:
            self.fail(f"expected an age such as 30d, 12h or 90m, got {value!r}", param, ctx)
        return timedelta(**{_UNITS[found[2]]: int(found[1])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options that all commands take.

    Attributes:
        blobs: the directory of the blob store.
        dry_run: only count.
        yes: skip the confirmation.
        as_json: print JSON, for programs.
    """

    store: StoreURL
    blobs: Path | None
    dry_run: bool
    yes: bool
    as_json: bool

    @property
    def blob_store(self) -> DirectoryBlobStore | None:
        """The blob store, None without --blobs."""
        return DirectoryBlobStore(self.blobs) if self.blobs else None


def common(command: F) -> F:
    """Add the common options to a command."""
    directory = click.Path(exists=True, file_okay=False, path_type=Path)
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One JSON value."),
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Only count."),
        click.option("--blobs", type=directory, help="Blob store; its blobs are erased, too."),
        click.argument("store", type=StoreParam()),
    ):
        command = option(command)
    return command


_force_option = click.option("--force", is_flag=True, help="Erase open runs, too.")


@click.group(
    cls=StoreGroup,
    help="Erase runs for good: nothing that is erased comes back. "
    f"STORE is {FORMS}; ${VARIABLE} if left out.",
)
def command() -> None:
    """Erase runs for good."""


@command.command("erase-run")
@common
@click.argument("run_id", metavar="RUN")
@click.option(
    "--memory",
    "memories",
    multiple=True,
    type=vector_stores.StoreParam(),
    help="A memory with facts from RUN; may be repeated.",
)
@_force_option
def erase_run_(
    run_id: str, *, memories: tuple[StoreName, ...], force: bool, **options: Any
) -> None:
    """Erase a RUN of STORE and everything that descends from it.

    RUN is the id of a run, or the beginning of one.
    """
    common_options = Options(**options)
    found: str | None = None

    async def work(store: EventStore, dry_run: bool) -> Erased:
        nonlocal found  # the run that was counted and confirmed is the one erased
        if found is None:
            found = await _full_id(store, run_id)
            if found != run_id:
                click.echo(text_line(f"{run_id} is run {found}"), err=True)
        async with AsyncExitStack() as stack:
            opened = [
                Memory(await stack.enter_async_context(vector_stores.reading(name)))
                for name in memories
            ]
            return await erase_run(
                store,
                found,
                blobs=common_options.blob_store,
                memories=opened,
                force=force,
                dry_run=dry_run,
            )

    _carry_out(common_options, work)


async def _full_id(store: EventStore, prefix: str) -> str:
    """Return the id of the run that begins like this; the prefix if there is none."""
    try:
        return (await find_run(store, prefix)).run_id
    except RunNotFound:
        return prefix


@command.command("erase-tenant")
@common
@click.argument("tenant")
@click.option(
    "--vectors",
    multiple=True,
    type=vector_stores.StoreParam(),
    help="A vector store or memory with records of TENANT; may be repeated.",
)
@click.option("--prefix", default="", help="Of the namespaces of all tenants there.")
@click.option("--dimension", type=click.IntRange(min=1), help="If a vector store does not tell.")
@click.option("--metric", type=click.Choice(get_args(Metric)), help="The same.")
@_force_option
def erase_tenant_(
    tenant: str,
    *,
    vectors: tuple[StoreName, ...],
    prefix: str,
    dimension: int | None,
    metric: Metric | None,
    force: bool,
    **options: Any,
) -> None:
    """Erase all runs of a TENANT of STORE, and its records in vector stores."""
    common_options = Options(**options)

    async def work(store: EventStore, dry_run: bool) -> Erased:
        async with AsyncExitStack() as stack:
            views: list[TenantVectorStore] = []
            for name in vectors:
                opened = vector_stores.reading(name, dimension=dimension, metric=metric)
                shared = await stack.enter_async_context(opened)
                views.append(_view(shared, tenant, prefix))
            return await erase_tenant(
                store,
                tenant,
                blobs=common_options.blob_store,
                vectors=views,
                force=force,
                dry_run=dry_run,
            )

    if not tenant:
        raise click.UsageError("expected the id of a tenant, got an empty text")
    _carry_out(common_options, work)


@command.command("expire")
@common
@click.option("--older-than", type=AgeParam(), required=True, help="As 30d, 12h or 90m.")
@click.option("--tenant", help="Only runs of this tenant.")
@click.option("--open-too", is_flag=True, help="Open trees without a worker, too.")
def expire_(*, older_than: timedelta, tenant: str | None, open_too: bool, **options: Any) -> None:
    """Erase root runs of STORE, with what descends from them, that have been idle for so long.

    With --blobs, also what has been in the blob store for an hour without a run that refers to it.
    """
    common_options = Options(**options)

    async def work(store: EventStore, dry_run: bool) -> Erased:
        erased, more = Erased(), True
        while more:
            done = await expire(
                store,
                older_than=older_than,
                blobs=common_options.blob_store,
                tenant=tenant,
                include_open=open_too,
                limit=1_000_000_000 if dry_run else 100,
                dry_run=dry_run,
            )
            erased, more = erased + done, bool(done.runs) and not dry_run
        if common_options.blob_store is not None:
            loose = await collect_blobs(store, common_options.blob_store, dry_run=dry_run)
            erased += Erased(blobs=loose.blobs)
        return erased

    _carry_out(common_options, work)


def _view(shared: Any, tenant: str, prefix: str) -> TenantVectorStore:
    try:
        return TenantVectorStore(shared, tenant, namespace_prefix=prefix)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _carry_out(options: Options, work: Work) -> None:
    """Count, confirm, erase, and print what was erased."""
    if options.dry_run or not options.yes:
        counted = asyncio.run(_run(reading(options.store), work, dry_run=True))
        if options.dry_run:
            _print(options, counted)
            return
        click.confirm(f"{_counts(counted)}\nErase this for good?", abort=True, err=True)
    erased, failure = asyncio.run(_erase_and_purge(options.store, work))
    _print(options, erased)
    if failure is not None:
        message = f"erased, but not yet from the server's files: {failure}"
        raise click.ClickException(message) from failure


async def _erase_and_purge(place: StoreURL, work: Work) -> tuple[Erased, StoreError | None]:
    """Erase, and purge a server's files; return what was erased, and the error of a purge."""
    async with _writing(place) as store:
        dry_run = False
        erased = await work(store, dry_run)
        if erased.runs and isinstance(store, _Purgeable):
            try:
                await store.purge()
            except StoreError as error:
                return erased, error
        return erased, None


async def _run(opening: Any, work: Work, *, dry_run: bool) -> Erased:
    async with opening as store:
        return await work(store, dry_run)


@asynccontextmanager
async def _writing(place: StoreURL) -> AsyncGenerator[EventStore]:
    """Open a store that exists, and close it."""
    async with reading(place) as existing:
        await existing.schema_version()  # fails where there is none, before one is created
    store = await asyncio.to_thread(store_at, place)
    try:
        await store.setup()
        yield store
    finally:
        await store.close()


def _print(options: Options, erased: Erased) -> None:
    values = {name: value for name, value in asdict(erased).items() if value is not None}
    click.echo(json_line(values) if options.as_json else _counts(erased))


def _counts(erased: Erased) -> str:
    counts = {name: count for name, count in asdict(erased).items() if isinstance(count, int)}
    line = ", ".join(f"{name}: {count}" for name, count in counts.items())
    if erased.parent_id is None:
        return line
    return (
        f"{line}\nThe log of run {erased.parent_id!r} still holds its question and its answer: "
        f"erase {erased.root_id!r}, the root, to be rid of them, too."
    )

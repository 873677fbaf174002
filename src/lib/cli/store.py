"""`lib store`: look into an event store, settle calls and end leases. Nothing is migrated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import AsyncExitStack, aclosing, contextmanager, nullcontext
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lib.algorithms import React, by_config
from lib.cli.runs import (
    By,
    ListedRun,
    Totals,
    call_fields,
    listed_runs,
    newest,
    runs_with_spend,
    shown_fields,
    used_fields,
)
from lib.cli.settle import each_unknown, settle, unknown_json, unlock
from lib.cli.stores import FORMS, VARIABLE, StoreGroup, StoreParam, find_run, reading
from lib.cli.terminal import json_line, text_line
from lib.cli.worker import FACTORY, algorithms_of
from lib.engine import UnknownCall, WaitingCall, pending_approvals
from lib.engine.api.check import StoreCheck
from lib.errors import RunNotFound
from lib.events import Event, RunQuery
from lib.events.blobs import DirectoryBlobStore
from lib.events.codec import event_to_json
from lib.events.paging import each_run
from lib.events.store import LAYOUT_VERSION
from lib.events.urls import StoreURL
from lib.events.verify import VerifyReport, verify_store
from lib.llm import GenAIPrices, PriceBook
from lib.observe.spend import ModelSpend

_RUNS: Final = 100
_PIPE_WIDTH: Final = 240
_ARGUMENTS_CHARS: Final = 80

_store_argument = click.argument("store", type=StoreParam())
_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON value a line.")


class _Line(NamedTuple):
    """A run or a group: fields of every output, fields of JSON only, and its spend."""

    row: dict[str, Any]
    json_fields: dict[str, Any]
    used: ModelSpend


@click.group(
    cls=StoreGroup,
    help="Look into an event store: all but settle and unlock is read-only. "
    f"STORE is {FORMS}; ${VARIABLE} if left out.",
)
def command() -> None:
    """Look into an event store."""


command.add_command(settle)
command.add_command(unlock)


@command.command()
@_store_argument
@_json_option
def check(store: StoreURL, *, as_json: bool) -> None:
    """Show whether this release can read STORE, and what is in it."""
    facts = asyncio.run(_facts(store))
    _show([facts], as_json=as_json)


async def _facts(store: StoreURL) -> dict[str, Any]:
    async with reading(store) as opened:
        layout, counts = await opened.schema_version(), {"runs": 0, "open": 0, "events": 0}
        async for run in each_run(opened):
            counts["runs"] += 1
            counts["open"] += run.status == "open"
            counts["events"] += run.head
        shown = {"store": store.display, "layout": layout, "supported": LAYOUT_VERSION}
        return {**shown, **counts}


@command.command()
@_store_argument
@click.option("--open", "only_open", is_flag=True, help="Only runs that have not ended.")
@click.option(
    "--roots", is_flag=True, help="Only runs that no other has started, with their trees."
)
@click.option("--tenant", help="Only runs of this tenant.")
@click.option(
    "--limit", type=click.IntRange(min=1), help="So many runs at most; 100, or all with --by."
)
@click.option("--by", type=click.Choice(get_args(By)), help="Totals instead of runs.")
@click.option("--prices", "priced", is_flag=True, help="List prices for calls without a cost.")
@click.option("--provider", help="The provider of calls whose log does not name one.")
@_json_option
def runs(
    store: StoreURL,
    *,
    only_open: bool,
    roots: bool,
    tenant: str | None,
    limit: int | None,
    by: By | None,
    priced: bool,
    provider: str | None,
    as_json: bool,
) -> None:
    """List the runs of STORE, the newest first: their states, and what each has spent.

    An open run is working, or waits for a person, for time, for a worker, a child run or a signal,
    or its owner is dead. "unknown" counts calls whose outcome is not known. The log of each run
    that is listed is read. A child run has a line of its own, and its parent's line is without it;
    with --roots the line of a root is the total of its tree. "≥" marks a cost that leaves out
    calls without a price.
    """
    limit = _RUNS if limit is None and by is None else limit
    status = "open" if only_open else None
    query = RunQuery(status=status, tenant=tenant, limit=limit, roots=roots)
    prices = _price_book(provider, priced=priced)
    found = _totals(store, query, by, prices) if by else _runs(store, query, prices)
    asyncio.run(_print_lines(found, as_json=as_json))


def _price_book(provider: str | None, *, priced: bool) -> GenAIPrices | None:
    if not priced:
        if provider is not None:
            raise click.UsageError("--provider chooses the prices: give --prices, too")
        return None
    try:
        return GenAIPrices(provider)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--provider") from error


async def _runs(store: StoreURL, query: RunQuery, prices: PriceBook | None) -> AsyncIterator[_Line]:
    async with reading(store) as opened:
        infos, count = await newest(opened, query)
        async for run in listed_runs(opened, infos, trees=query.roots, prices=prices):
            fields: dict[str, Any] = {**_run_row(run, as_json=True), **call_fields(run.spend)}
            yield _Line(_run_row(run, tree=query.roots), fields, run.spend.total)
    if len(infos) < count:
        note = f"the newest {len(infos):,} of {count:,} runs: --limit {count} lists all"
        click.echo(note, err=True)


async def _totals(
    store: StoreURL, query: RunQuery, by: By, prices: PriceBook | None
) -> AsyncIterator[_Line]:
    totals = Totals(by)
    async with reading(store) as opened:
        with _counter() as move:
            async for run, spend in runs_with_spend(opened, query, prices=prices):
                totals.add(run, spend)
                move()
    for row, used in totals.rows():
        yield _Line(row, {}, used)


async def _print_lines(found: AsyncIterator[_Line], *, as_json: bool) -> None:
    plain = _console().options.ascii_only
    rows: list[dict[str, Any]] = []
    async for line in found:
        if as_json:
            click.echo(json_line({**line.row, **line.json_fields, **used_fields(line.used)}))
        else:
            rows.append({**line.row, **shown_fields(line.used, ascii_only=plain)})
    _show(rows, as_json=False)
    if not as_json and not rows:
        click.echo("no runs", err=True)


@contextmanager
def _counter() -> Generator[Callable[[], None]]:
    """Show a count in a terminal, and nothing elsewhere."""
    console, done = Console(stderr=True), count(1)
    with console.status("reading") if console.is_terminal else nullcontext() as status:

        def move() -> None:
            if status is not None:
                status.update(f"reading: {next(done)} runs")

        yield move


def _run_row(run: ListedRun, *, tree: bool = False, as_json: bool = False) -> dict[str, Any]:
    """Return the fields of a run; those for programs replace those for people."""
    info = run.info
    row: dict[str, Any] = {
        "run": info.run_id,
        "status": run.state,
        "algorithm": info.algorithm,
        "tenant": info.tenant,
        "created": f"{info.created_at:%Y-%m-%d %H:%M:%S}",
        "seconds": round((info.updated_at - info.created_at).total_seconds(), 3),
        **({"runs": run.runs} if tree or as_json else {}),
        "events": run.events,
        "unknown": run.unknown,
    }
    if as_json:
        row |= {"status": info.outcome or info.status, "state": run.state}
        row["created"] = info.created_at.isoformat()  # a program must not guess the zone
    return row


@command.command()
@_store_argument
@click.option("--tenant", help="Only runs of this tenant.")
@_json_option
def approvals(store: StoreURL, *, tenant: str | None, as_json: bool) -> None:
    """List the tool calls in STORE that wait for a person. Nothing here decides them."""
    asyncio.run(_approvals(store, tenant, as_json=as_json))


async def _approvals(store: StoreURL, tenant: str | None, *, as_json: bool) -> None:
    rows: list[dict[str, Any]] = []
    async with (
        reading(store) as opened,
        aclosing(pending_approvals(opened, tenant=tenant)) as found,
    ):
        async for call in found:
            if as_json:
                since = call.since.isoformat()  # a program must not guess the zone
                fields = {**asdict(call), "since": since}
                if not call.reason:
                    del fields["reason"]
                click.echo(json_line(fields))
            else:
                rows.append({**_call_row(call), "reason": call.reason})
    if not any(row["reason"] for row in rows):  # most approvals have no reason
        for row in rows:
            del row["reason"]
    _show(rows, as_json=False)
    if not as_json and not rows:
        click.echo("nothing waits for a person", err=True)


def _call_row(call: WaitingCall | UnknownCall) -> dict[str, Any]:
    arguments = json_line(dict(call.arguments))
    cut = f"{arguments[: _ARGUMENTS_CHARS - 3]}..."
    return {
        "run": call.run_id,
        "key": call.key,
        "tool": call.name,
        "arguments": arguments if len(arguments) <= _ARGUMENTS_CHARS else cut,
        "tenant": call.tenant,
        "since": f"{call.since:%Y-%m-%d %H:%M:%S}",
    }


@command.command()
@_store_argument
@click.option("--tenant", help="Only runs of this tenant.")
@_json_option
def unknown(store: StoreURL, *, tenant: str | None, as_json: bool) -> None:
    """List the tool calls in STORE whose outcome is not known; `settle` says what became of one.

    They were cut off by the death of a process, by a timeout or by the end of their run.
    """
    calls = asyncio.run(each_unknown(store, tenant))
    if as_json:
        for call in calls:
            click.echo(unknown_json(call))
    _show([] if as_json else [_call_row(call) for call in calls], as_json=False)
    if not as_json and not calls:
        click.echo("no call has an unknown outcome", err=True)


@command.command()
@_store_argument
@click.argument("run_id", metavar="RUN")
@_json_option
def events(store: StoreURL, run_id: str, *, as_json: bool) -> None:
    """List the events of a RUN of STORE. Payloads are shown in full with --json only."""
    found = asyncio.run(_events(store, run_id))
    rows = [event_to_json(event) if as_json else _event_row(event) for event in found]
    _show(rows, as_json=as_json)


async def _events(store: StoreURL, run_id: str) -> list[Event]:
    async with reading(store) as opened:
        run_id = (await find_run(opened, run_id)).run_id
        found = await opened.read(run_id)
        if not found:
            raise RunNotFound(run_id)
        return found


def _event_row(event: Event) -> dict[str, Any]:
    names = ("key", "name", "outcome", "reason", "approved")
    detail = [f"{name}={event.data[name]}" for name in names if name in event.data]
    return {
        "seq": event.seq,
        "at": f"{event.at:%H:%M:%S.%f}"[:-3],
        "kind": event.kind,
        "what": " ".join(detail),
    }


@command.command()
@_store_argument
@click.option(
    "--blobs", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Blob store."
)
@click.option(
    "--deep", is_flag=True, help="Decide every log again, read every blob, check a SQLite file."
)
@click.option(
    "--app",
    type=FACTORY,
    metavar="MODULE:FACTORY",
    help="Whose engine has the algorithms of the runs, as for lib worker; with --deep.",
)
@_json_option
def verify(
    store: StoreURL,
    *,
    blobs: Path | None,
    deep: bool,
    app: Callable[[], Any] | None,
    as_json: bool,
) -> None:
    """Check every run's log in STORE, and the blobs it refers to; exit 1 if there are faults.

    With --deep, every log is decided again: those of the library's algorithms under any name, of
    sessions and their turns, and of the algorithms of --app. How many could not be, and why, is
    counted; that is no fault.
    """
    if app is not None and not deep:
        raise click.UsageError(
            "--app names the algorithms by which logs are decided again: give --deep, too"
        )
    report, check = asyncio.run(_verify(store, blobs, deep=deep, app=app))
    faults = [
        {"run": f.run_id, "seq": f.seq, "rule": f.rule, "message": f.message} for f in report.faults
    ]
    _show(faults, as_json=as_json)
    _show(_undecided(report, check) if check is not None else [], as_json=as_json)
    if not as_json:
        line = f"runs: {report.runs:,}, events: {report.events:,}, faults: {len(faults):,}"
        click.echo(line + (f", decided again: {check.decided:,}" if check is not None else ""))
    if faults:
        raise click.exceptions.Exit(1)


def _undecided(report: VerifyReport, check: StoreCheck) -> list[dict[str, Any]]:
    """Return which runs were not decided again, by algorithm and reason."""
    rows: list[dict[str, Any]] = [
        {"algorithm": algorithm, "undecided": count, "reason": reason}
        for (algorithm, reason), count in sorted(check.undecided.items())
    ]
    damaged = report.runs - check.decided - check.undecided.total()
    if damaged > 0:
        reason = "another rule is broken: see the faults"
        rows.append({"algorithm": None, "undecided": damaged, "reason": reason})
    return rows


async def _verify(
    place: StoreURL, blobs: Path | None, *, deep: bool, app: Callable[[], Any] | None
) -> tuple[VerifyReport, StoreCheck | None]:
    blob_store = DirectoryBlobStore(blobs) if blobs else None
    async with AsyncExitStack() as stack:
        own = await algorithms_of(app, stack) if app is not None else []
        store = await stack.enter_async_context(reading(place))
        check = StoreCheck([React(), *own], store, by_config=by_config) if deep else None
        checks = [] if check is None else [check]
        return await verify_store(store, blobs=blob_store, deep=deep, checks=checks), check


def _show(rows: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            click.echo(json_line(row))
    elif rows:
        _console().print(_table(rows))


def _console() -> Console:
    """Return the console for tables; in a pipe it is wide, so that each line is one row."""
    console = Console()
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console


def _cell(value: object) -> str:
    """Return a value as text: numbers with separators, nothing for None."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else text_line(value)


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return the rows as a table whose first column, the one to copy, is never cut."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    widest = max(len(_cell(next(iter(row.values())))) for row in rows)
    for column, (name, value) in enumerate(rows[0].items()):
        right = isinstance(value, int | float) or name == "cost"
        justify = "right" if right else "left"
        table.add_column(
            name, justify=justify, min_width=0 if column else widest, no_wrap=not column
        )
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row.values()))
    return table

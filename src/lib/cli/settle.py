"""`lib store unknown`, `settle` and `unlock`: decisions about runs of dead workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict
from datetime import UTC
from typing import Any

import click

from lib._util.clock import SYSTEM_CLOCK
from lib._util.ids import new_id
from lib.cli.stores import StoreCommand, StoreParam, find_run, reading, writing
from lib.cli.terminal import json_line, text_line
from lib.cli.worker import FACTORY, engine_of
from lib.engine.api.waiting import UnknownCall, unknown_calls, unknown_in
from lib.events import EventStore, NewEvent, RunInfo
from lib.events import kinds as k
from lib.events.store import end_lease
from lib.events.urls import StoreURL
from lib.privacy import PatternRedactor
from lib.privacy.redactor import redact_event


async def each_unknown(place: StoreURL, tenant: str | None) -> list[UnknownCall]:
    """Return the calls of a store whose outcome is not known."""
    async with reading(place) as store, aclosing(unknown_calls(store, tenant=tenant)) as found:
        return [call async for call in found]


def unknown_json(call: UnknownCall) -> str:
    """Return a call as a line of JSON."""
    return json_line({**asdict(call), "since": call.since.isoformat()})


@click.command(cls=StoreCommand)
@click.argument("store", type=StoreParam())
@click.argument("run_id", metavar="RUN")
@click.argument("call")
@click.option(
    "--happened", "happened", flag_value=True, type=bool, default=None, help="It had its effect."
)
@click.option(
    "--did-not-happen", "happened", flag_value=False, type=bool, default=None, help="It had none."
)
@click.option("--result", "result", metavar="JSON", help="What it returned, if it happened.")
@click.option("--user", help="The person who found that out.")
@click.option(
    "--app",
    type=FACTORY,
    metavar="MODULE:FACTORY",
    help="Whose engine has the redactor, as for lib worker.",
)
def settle(
    store: StoreURL,
    run_id: str,
    call: str,
    *,
    happened: bool | None,
    result: str | None,
    user: str | None,
    app: Callable[[], Any] | None,
) -> None:
    """Say what became of a CALL of RUN whose outcome is not known.

    CALL is its key or its call id, as `lib store unknown` lists them. If the call happened, the run
    makes no equal one: its model gets the result instead. If it did not happen, it may be made.
    The result goes through the redactor of --app's engine, by default a PatternRedactor.
    """
    if happened is None:
        raise click.UsageError("say what became of the call: --happened or --did-not-happen")
    if result is not None and not happened:
        raise click.UsageError("--result goes with --happened")
    data: dict[str, Any] = {"happened": happened}
    if result is not None:
        data["result"] = _parsed(result)
    settled = asyncio.run(_settle(store, run_id, call, data, user=user, app=app))
    what = "happened" if happened else "did not happen"
    click.echo(text_line(f"settled: {settled.name} {settled.key} of run {settled.run_id} {what}"))


def _parsed(result: str) -> Any:
    try:
        return json.loads(result)
    except ValueError as error:
        message = f"expected JSON, such as 3, true or '\"text\"', got {result!r}"
        raise click.BadParameter(message, param_hint="--result") from error


async def _settle(
    place: StoreURL,
    run_prefix: str,
    call_prefix: str,
    data: dict[str, Any],
    *,
    user: str | None,
    app: Callable[[], Any] | None,
) -> UnknownCall:
    async with AsyncExitStack() as stack:
        engine = await engine_of(app, stack) if app is not None else None
        store = await stack.enter_async_context(writing(place))
        run = await find_run(store, run_prefix)
        call = await _find_call(store, run, call_prefix)
        data = {"signal_id": f"settle-{new_id()}", "key": call.key, **data}
        if engine is not None:
            event = await engine.event(k.CALL_SETTLED, data, user=user)
        else:
            redacted = redact_event(k.CALL_SETTLED, data, PatternRedactor())
            event = NewEvent(k.CALL_SETTLED, redacted, SYSTEM_CLOCK.now(), user=user)
        await store.append(run.run_id, [event], expected=None)
        return call


async def _find_call(store: EventStore, run: RunInfo, name: str) -> UnknownCall:
    """Return the call of this key or id, or the only one whose key or id begins like this."""
    calls = list((await unknown_in(store, run.run_id)).values())
    found = [call for call in calls if name in (call.key, call.call_id)] or [
        call for call in calls if call.key.startswith(name) or call.call_id.startswith(name)
    ]
    if len(found) == 1:
        return found[0]
    named = ", ".join(repr(call.key) for call in found or calls)
    if found:
        raise click.ClickException(f"{name!r} names several calls: {named}; give the whole key")
    others = f"those of this run are {named}" if calls else "no call of this run is unknown"
    raise click.ClickException(f"the outcome of no call {name!r} is unknown: {others}")


@click.command(cls=StoreCommand)
@click.argument("store", type=StoreParam())
@click.argument("run_id", metavar="RUN")
@click.option("--yes", is_flag=True, help="Do not ask.")
def unlock(store: StoreURL, run_id: str, *, yes: bool) -> None:
    """End the lease of RUN, so that any worker can take it over at once.

    For a worker that is certainly dead: one that is alive renews its lease, or loses the run to
    another, and a call that it makes then may be made twice.
    """
    click.echo(text_line(asyncio.run(_unlock(store, run_id, yes=yes))))


async def _unlock(place: StoreURL, run_prefix: str, *, yes: bool) -> str:
    async with writing(place) as store:
        run = await find_run(store, run_prefix)
        if run.owner is None or run.lease_until is None:
            raise click.ClickException(f"no worker holds run {run.run_id!r}")
        until = f"{run.lease_until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        held = f"the lease of run {run.run_id}, held by {run.owner} until {until}"
        if not yes:
            await asyncio.to_thread(click.confirm, text_line(f"End {held}?"), abort=True)
        if await end_lease(store, run) is None:
            raise click.ClickException(f"run {run.run_id!r} has changed hands meanwhile")
        return f"ended: {held}"

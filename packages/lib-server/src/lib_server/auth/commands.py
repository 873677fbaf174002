"""`lib-server keys`: creates, lists, rotates and revokes API keys of an event store."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar, cast

import click

from lib._util.clock import SYSTEM_CLOCK
from lib.errors import LibError
from lib.events import open_store
from lib_server.auth.keys import PREFIX, ApiKeys, KeyRecord, NewKey
from lib_server.auth.principal import SCOPES, Scope

T = TypeVar("T")

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_STORE: Final = click.option(
    "--store",
    default="lib.db",
    show_default=True,
    envvar="LIB_STORE",
    metavar="PATH_OR_URL",
    help="The event store of the server.",
)
_PREFIX: Final = click.option(
    "--prefix", default=PREFIX, show_default=True, help="What the store's keys begin with."
)
_PEPPER: Final = click.option(
    "--pepper-file",
    type=click.File("rb"),
    help="A file with the secret that the servers hash keys with.",
)


class Duration(click.ParamType[timedelta]):
    """A number and a unit, such as 90d."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Return the duration."""
        found = re.fullmatch(r"([1-9]\d{0,5})([smhd])", str(value))
        if found is None:
            self.fail(f"expected a number and s, m, h or d, such as 90d, got {value!r}", param, ctx)
        return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


@click.group("keys")
def command() -> None:
    """Create, list, rotate and revoke the API keys of a server."""


@command.command()
@_STORE
@_PREFIX
@_PEPPER
@click.option("--tenant", help="Whose runs its caller sees; without it, those of all.")
@click.option("--user", help="The user that its runs are started for.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(sorted(SCOPES)),
    default=["read", "run"],
    show_default=True,
    help="What its caller may do; may be repeated.",
)
@click.option("--name", default="", help="Which program or person holds it.")
@click.option("--expires-in", type=Duration(), help="How long it is valid, such as 90d.")
def create(
    *,
    store: str,
    prefix: str,
    pepper_file: Any,
    tenant: str | None,
    user: str | None,
    scopes: Sequence[str],
    name: str,
    expires_in: timedelta | None,
) -> None:
    """Create a key and print it, once: it is kept nowhere."""
    expires_at = None if expires_in is None else SYSTEM_CLOCK.now() + expires_in

    async def work(keys: ApiKeys) -> NewKey:
        return await keys.create(
            tenant=tenant,
            user=user,
            scopes=cast(Sequence[Scope], scopes),
            name=name,
            expires_at=expires_at,
        )

    _print_new(_run(store, prefix, pepper_file, work))


@command.command("list")
@_STORE
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_keys(store: str, *, as_json: bool) -> None:
    """List the keys, revoked ones too, without their secrets."""
    for record in _run(store, PREFIX, None, lambda keys: keys.list(), read_only=True):
        click.echo(json.dumps(_fields(record)) if as_json else _line(record))


@command.command()
@click.argument("key_id")
@_STORE
def revoke(key_id: str, store: str) -> None:
    """Revoke the key KEY_ID for good; servers refuse it after five seconds at the latest."""
    _run(store, PREFIX, None, lambda keys: keys.revoke(key_id))
    click.echo(f"revoked {key_id}")


@command.command()
@click.argument("key_id")
@_STORE
@_PREFIX
@_PEPPER
@click.option(
    "--grace", type=Duration(), default="1d", show_default=True, help="How long both are valid."
)
def rotate(key_id: str, store: str, prefix: str, pepper_file: Any, grace: timedelta) -> None:
    """Create a key in the place of KEY_ID, which ends after --grace."""
    end = SYSTEM_CLOCK.now() + grace
    _print_new(
        _run(store, prefix, pepper_file, lambda keys: keys.rotate(key_id, old_expires_at=end))
    )


def _run(
    url: str,
    prefix: str,
    pepper_file: Any,
    work: Callable[[ApiKeys], Awaitable[T]],
    *,
    read_only: bool = False,
) -> T:
    """Return what the work makes of the keys of a store; its errors are one line."""
    pepper = pepper_file and pepper_file.read().strip()

    async def opened() -> T:
        store = await asyncio.to_thread(open_store, url, read_only=read_only)
        await store.setup()
        try:
            return await work(ApiKeys(store, prefix=prefix, pepper=pepper or None))
        finally:
            await store.close()

    try:
        return asyncio.run(opened())
    except (LibError, ValueError) as error:
        raise click.ClickException(str(error)) from error


def _print_new(new: NewKey) -> None:
    click.echo(new.key)
    click.echo(f"key {new.record.key_id}: the line above is shown this once", err=True)


def _fields(record: KeyRecord) -> dict[str, Any]:
    names = [name for name in KeyRecord.__slots__ if name not in {"digest", "hashing"}]
    fields = {name: getattr(record, name) for name in names}
    return {**fields, "scopes": sorted(record.scopes), "metadata": dict(record.metadata)}


def _line(record: KeyRecord) -> str:
    state = "revoked" if record.revoked_at is not None else _ends(record.expires_at)
    used = "never used" if record.last_used_at is None else f"used {_day(record.last_used_at)}"
    owner = f"{record.tenant or '*'}/{record.user or '*'}"
    parts = [record.key_id, owner, ",".join(sorted(record.scopes)), state, used, record.name]
    return "  ".join(parts).rstrip()


def _ends(expires_at: float | None) -> str:
    return "no end" if expires_at is None else f"until {_day(expires_at)}"


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")

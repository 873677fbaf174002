"""`lib memory`: what agents remember of users: shown, corrected, forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, ClassVar, Final, TypeVar

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lib.cli import stores
from lib.cli.privacy import AgeParam
from lib.cli.terminal import json_line, text_line
from lib.cli.vector_stores import StoreParam, reading
from lib.errors import FactNotFound
from lib.memory import Fact, Memory
from lib.memory.facts import iso
from lib.vector import OpenAIEmbedder
from lib.vector.urls import StoreName

F = TypeVar("F", bound=Callable[..., Any])

VARIABLE: Final = "LIB_MEMORY_STORE"
"""The environment variable that names the memory, where it is not the event store's."""

_NAMED: Final = 3
"""Facts that the message about an ambiguous prefix names."""

_store_argument = click.argument("store", type=StoreParam())
_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON value a line.")
_yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


class MemoryCommand(stores.StoreCommand):
    """A command whose store may be left out if the environment names it."""

    variables: ClassVar[tuple[str, ...]] = (VARIABLE, stores.VARIABLE)


class MemoryGroup(click.Group):
    """The group of these commands."""

    command_class: type[click.Command] | None = MemoryCommand


def _owner(command: F) -> F:
    """Add the options that say whose memory is meant."""
    for option in (
        click.option("--user", help="The user; without it, what belongs to the tenant."),
        click.option("--tenant", help="The tenant; without it, what belongs to none."),
    ):
        command = option(command)
    return command


@click.group(cls=MemoryGroup)
def command() -> None:
    """Show, correct and forget what agents remember of users.

    STORE is the vector store of a memory: a path of an SQLite file or a URL, as for `lib vector`.
    If it is left out, $LIB_MEMORY_STORE names it, or else $LIB_STORE. FACT is the id of a fact, or
    the beginning of one.
    """


@asynccontextmanager
async def _opened(
    name: StoreName, model: str | None = None, *, writes: bool = False
) -> AsyncGenerator[Memory]:
    """Open the memory in a store that exists, with an embedder where it writes texts."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(reading(name))
        if model is None:
            if writes and store.dimension != 1:
                raise click.UsageError("this memory has an embedder: name its --model")
            yield Memory(store)
            return
        try:
            embedder = OpenAIEmbedder(model)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        yield Memory(store, embedder=await stack.enter_async_context(embedder))


@command.command("list")
@_store_argument
@_owner
@click.option("--superseded", is_flag=True, help="Those whose place others have taken, too.")
@_json_option
def list_(
    store: StoreName, *, tenant: str | None, user: str | None, superseded: bool, as_json: bool
) -> None:
    """Show what STORE remembers of a user; without --tenant and --user, of whom."""
    if tenant is None and user is None:
        _print(asyncio.run(_owners(store)), as_json=as_json)
        return

    async def facts() -> Sequence[Fact]:
        async with _opened(store) as memory:
            return await memory.list(tenant=tenant, user=user, superseded=superseded)

    found = asyncio.run(facts())
    _print([fact.to_json() if as_json else _row(fact) for fact in found], as_json=as_json)


async def _owners(name: StoreName) -> list[dict[str, Any]]:
    async with _opened(name) as memory:
        return [
            {
                "tenant": tenant,
                "user": user,
                "facts": len(await memory.list(tenant=tenant, user=user)),
            }
            for tenant, user in await memory.owners()
        ]


@command.command()
@_store_argument
@click.argument("fact")
@_owner
@_json_option
def show(
    store: StoreName, fact: str, *, tenant: str | None, user: str | None, as_json: bool
) -> None:
    """Show all that STORE holds about a FACT: its dates, its sources, and what it replaced."""

    async def found() -> Fact:
        async with _opened(store) as memory:
            return await _fact(memory, fact, tenant, user)

    data = asyncio.run(found()).to_json()
    if as_json:
        click.echo(json_line(data))
        return
    for name, value in {**data, "sources": ", ".join(data["sources"])}.items():
        click.echo(text_line(f"{name.replace('_', ' ')}: {value}"))


@command.command()
@_store_argument
@click.argument("fact")
@click.argument("text")
@_owner
@click.option("--model", help="Embeds TEXT, at OpenAI or at OPENAI_BASE_URL.")
@_json_option
def correct(
    store: StoreName,
    fact: str,
    text: str,
    *,
    tenant: str | None,
    user: str | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Put TEXT in the place of a FACT of STORE, which is kept as superseded.

    A memory with an embedder takes the --model that it was made with.
    """
    if not text.strip():
        raise click.UsageError("expected a TEXT, got an empty one; `lib memory forget` deletes")

    async def corrected() -> Fact:
        async with _opened(store, model, writes=True) as memory:
            old = await _fact(memory, fact, tenant, user)
            return await memory.correct(old.id, text, tenant=tenant, user=user)

    new = asyncio.run(corrected())
    _print([new.to_json() if as_json else _row(new)], as_json=as_json)


@command.command()
@_store_argument
@click.argument("facts", nargs=-1)
@_owner
@click.option("--all", "all_of_user", is_flag=True, help="All facts of the user or the tenant.")
@_yes_option
@_json_option
def forget(
    store: StoreName,
    facts: tuple[str, ...],
    *,
    tenant: str | None,
    user: str | None,
    all_of_user: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete FACTS of STORE for good, or with --all everything that is known of a user.

    --all with a --tenant and no --user is all that is known of all users of that tenant. With a
    fact go those whose place it has taken.
    """
    if bool(facts) == all_of_user:
        raise click.UsageError("name the FACTS, or all of them with --all")
    if all_of_user and tenant is None and user is None:
        raise click.UsageError("say whose facts with --tenant or --user")

    async def chosen() -> list[Fact]:
        async with _opened(store) as memory:
            return [await _fact(memory, each, tenant, user) for each in facts]

    async def forgotten(ids: Sequence[str]) -> int:
        async with _opened(store) as memory:
            if all_of_user:
                return await memory.erase(tenant=tenant, user=user)
            return await memory.forget(ids, tenant=tenant, user=user)

    named = asyncio.run(chosen())
    if not yes:
        for fact in named:
            click.echo(text_line(f"{fact.id[:8]}  {fact.text}"), err=True)
        question = "Forget everything that is known of them" if all_of_user else "Forget this"
        click.confirm(f"{question} for good?", abort=True, err=True)
    gone = asyncio.run(forgotten([fact.id for fact in named]))
    click.echo(json_line({"facts": gone}) if as_json else f"facts: {gone}")


@command.command()
@_store_argument
@_owner
def export(store: StoreName, *, tenant: str | None, user: str | None) -> None:
    """Print all facts of STORE as JSON, one a line, superseded ones included.

    With --tenant or --user only those of that tenant or user.
    """

    async def facts() -> list[dict[str, Any]]:
        async with _opened(store) as memory:
            owners = [
                (its_tenant, its_user)
                for its_tenant, its_user in await memory.owners()
                if tenant in (None, its_tenant) and user in (None, its_user)
            ]
            return [
                {"tenant": its_tenant, "user": its_user, **fact.to_json()}
                for its_tenant, its_user in owners
                for fact in await memory.list(tenant=its_tenant, user=its_user, superseded=True)
            ]

    _print(asyncio.run(facts()), as_json=True)


@command.command()
@_store_argument
@_owner
@click.option("--older-than", type=AgeParam(), help="Since it was said last, as 90d.")
@click.option("--not-recalled-for", type=AgeParam(), help="Since it was recalled last, as 90d.")
@_json_option
def expire(
    store: StoreName,
    *,
    tenant: str | None,
    user: str | None,
    older_than: timedelta | None,
    not_recalled_for: timedelta | None,
    as_json: bool,
) -> None:
    """Delete facts of STORE that were not said, or not recalled, for so long."""
    if older_than is None and not_recalled_for is None:
        raise click.UsageError("give --older-than or --not-recalled-for")

    async def expired() -> int:
        async with _opened(store) as memory:
            return await memory.expire(
                older_than=older_than, not_recalled_for=not_recalled_for, tenant=tenant, user=user
            )

    gone = asyncio.run(expired())
    click.echo(json_line({"facts": gone}) if as_json else f"facts: {gone}")


async def _fact(memory: Memory, prefix: str, tenant: str | None, user: str | None) -> Fact:
    """Return the fact of a user whose id begins like this.

    Raises:
        FactNotFound: there is none.
        UsageError: there are several.
    """
    facts = await memory.list(tenant=tenant, user=user, superseded=True)
    found = [fact for fact in facts if fact.id.startswith(prefix)] if prefix else []
    if not found:
        raise FactNotFound(prefix)
    if len(found) > 1:
        named = ", ".join(fact.id for fact in found[:_NAMED])
        raise click.UsageError(f"{len(found)} facts begin with {prefix!r}: {named}")
    return found[0]


def _row(fact: Fact) -> dict[str, Any]:
    row = {"id": fact.id[:8], "said": iso(fact.said_at)[:10], "times": fact.times}
    state = "" if fact.current else f" (superseded by {fact.superseded_by[:8]}: {fact.why})"
    return {**row, "fact": fact.text + state}


def _print(rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            click.echo(json_line(row))
        return
    if not rows:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, value in rows[0].items():
        table.add_column(name, justify="right" if isinstance(value, int) else "left")
    for row in rows:
        table.add_row(*(Text(text_line("" if value is None else value)) for value in row.values()))
    Console().print(table)

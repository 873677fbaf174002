"""Event stores by their URLs, as configuration and command lines name them.

    sqlite:///relative.db, sqlite:////absolute.db, or a bare path
    postgresql://user:password@host:port/database    as libpq takes it
    redis://:password@host:port/0, rediss://…, unix:///path    as redis-py takes it
    memory:

Of several stores in one database, `?schema=NAME` (PostgreSQL) or `?prefix=NAME` (Redis) names one.

A driver is imported when a store that needs it is made.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import unquote

from lib._util.places import checked_path, without_password
from lib.events.store import EventStore
from lib.events.stores.memory import MemoryEventStore

Kind = Literal["sqlite", "postgresql", "redis", "memory"]

_SERVERS: Final[dict[str, Kind]] = {
    "postgres": "postgresql",
    "postgresql": "postgresql",
    "redis": "redis",
    "rediss": "redis",
    "unix": "redis",
}
_PARTS: Final[dict[Kind, str]] = {"postgresql": "schema", "redis": "prefix"}
_FORMS: Final = "a path, sqlite:///PATH, postgresql://HOST/DATABASE, redis://HOST, memory:"


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlace:
    """Where an event store is.

    Attributes:
        target: the path or the URL that its class takes; may hold a password.
        shown: the same for people to read, without a password.
        part: the schema or the prefix of the store, None for the usual one.
    """

    kind: Kind
    target: str = field(repr=False)
    shown: str = field(compare=False)
    part: str | None = None


def store_place(url: str | os.PathLike[str]) -> StorePlace:
    """Return what a URL or a path names; whether there is a store is not looked at.

    Raises:
        ValueError: it names none; the message says how to, and holds no password.
        TypeError: it is neither text nor a path of text.
    """
    given: object = os.fspath(url) if hasattr(url, "__fspath__") else url
    if not isinstance(given, str):
        told = f"an event store is named by text or a path, got {type(given).__name__}"
        raise TypeError(f"{told}: known are {_FORMS}")
    if given == "memory:":
        return StorePlace(kind="memory", target="", shown=given)
    scheme, colon, rest = given.partition(":")
    scheme = scheme.lower()
    if colon and scheme in (*_SERVERS, "sqlite", "memory") and not rest.startswith("//"):
        raise ValueError(f"this is no {scheme} URL: known are {_FORMS}")
    if scheme in _SERVERS:
        return _on_a_server(_SERVERS[scheme], given)
    if scheme == "sqlite" and colon:
        path = rest.removeprefix("//")
        if not path.startswith("/") or path == "/":
            raise ValueError("a SQLite store is named sqlite:///PATH, with three slashes")
        return _file(path[1:])
    if colon and rest.startswith("//"):
        raise ValueError(f"unknown scheme {scheme!r}: known are {_FORMS}")
    return _file(given)


def _file(path: str) -> StorePlace:
    if not path:
        raise ValueError(f"an empty name is no store: known are {_FORMS}")
    return StorePlace(kind="sqlite", target=checked_path(path), shown=path)


def _on_a_server(kind: Kind, given: str) -> StorePlace:
    shown = without_password(given)
    target, part = _without_part(given, _PARTS[kind])
    shown += f"?{_PARTS[kind]}={part}" if part else ""
    return StorePlace(kind=kind, target=target, shown=shown, part=part)


def _without_part(given: str, name: str) -> tuple[str, str | None]:
    """Return the URL without our own option, and its value."""
    url, _, query = given.partition("?")
    options = query.split("&") if query else []
    named = [option for option in options if option.partition("=")[0] == name]
    if not named:
        return given, None
    if len(named) > 1 or not (part := unquote(named[0].partition("=")[2])):
        raise ValueError(f"the option {name}= of a store's URL is given once, with a name")
    rest = "&".join(option for option in options if option not in named)
    return f"{url}?{rest}" if rest else url, part


def open_store(url: str | os.PathLike[str], *, read_only: bool = False) -> EventStore:
    """Return the event store that a URL or a path names; `setup()` opens it.

    Args:
        url: of one of the forms above.
        read_only: never write, not even a migration or a new store.

    Raises:
        ValueError: it names no store, or one in memory was to be read only.
        TypeError: it is neither text nor a path of text.
        MissingDriver: the driver of such a store is not installed.
    """
    return store_at(store_place(url), read_only=read_only)


def store_at(place: StorePlace, *, read_only: bool = False) -> EventStore:
    """Return the event store of a place; see `open_store`."""
    if place.kind == "sqlite":
        from lib.events.stores.sqlite import SQLiteEventStore  # noqa: PLC0415 - loads its driver

        return SQLiteEventStore(place.target, read_only=read_only)
    if place.kind == "postgresql":
        from lib.events.stores.postgres import PostgresEventStore  # noqa: PLC0415 - as above

        part: dict[str, Any] = {"schema": place.part} if place.part else {}
        return PostgresEventStore(place.target, read_only=read_only, **part)
    if place.kind == "redis":
        from lib.events.stores.redis import RedisEventStore  # noqa: PLC0415 - as above

        part = {"prefix": place.part} if place.part else {}
        return RedisEventStore(place.target, read_only=read_only, **part)
    if read_only:
        raise ValueError("a store in memory begins empty: it cannot be read-only")
    return MemoryEventStore()

"""Opens event stores by URL or path, as configuration and command lines give them.

    sqlite:///relative.db, sqlite:////absolute.db, or a bare path
    postgresql://user:password@host:port/database    as libpq takes it
    redis://:password@host:port/0, rediss://…, unix:///path    as redis-py takes it
    memory:

`?schema=NAME` (PostgreSQL) or `?prefix=NAME` (Redis) selects one of several stores in one database.

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
_OPTIONS: Final[dict[Kind, str]] = {"postgresql": "schema", "redis": "prefix"}
_FORMS: Final = "a path, sqlite:///PATH, postgresql://HOST/DATABASE, redis://HOST, memory:"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreURL:
    """A parsed URL or path of an event store.

    Attributes:
        target: the path or the URL that its class takes; may hold a password.
        display: the same for messages, without a password.
        option: the schema or the prefix of the store, None for the default one.
    """

    kind: Kind
    target: str = field(repr=False)
    display: str = field(compare=False)
    option: str | None = None


def parse_store_url(url: str | os.PathLike[str]) -> StoreURL:
    """Parse a URL or a path; does not look whether the store exists.

    Raises:
        ValueError: it is of no known form; the message lists them, and holds no password.
        TypeError: it is neither text nor a path of text.
    """
    text: object = os.fspath(url) if hasattr(url, "__fspath__") else url
    if not isinstance(text, str):
        raise TypeError(f"expected a store's URL or path, got {type(text).__name__}: use {_FORMS}")
    if text == "memory:":
        return StoreURL(kind="memory", target="", display=text)
    scheme, colon, rest = text.partition(":")
    scheme = scheme.lower()
    if colon and scheme in (*_SERVERS, "sqlite", "memory") and not rest.startswith("//"):
        raise ValueError(f"expected // after {scheme}: in the URL of a store: use {_FORMS}")
    if scheme in _SERVERS:
        return _on_a_server(_SERVERS[scheme], text)
    if scheme == "sqlite" and colon:
        path = rest.removeprefix("//")
        if not path.startswith("/") or path == "/":
            raise ValueError("expected sqlite:///PATH, with three slashes")
        return _file(path[1:])
    if colon and rest.startswith("//"):
        raise ValueError(f"unknown scheme {scheme!r} of a store: use {_FORMS}")
    return _file(text)


def _file(path: str) -> StoreURL:
    if not path:
        raise ValueError(f"expected a store's URL or path, got an empty text: use {_FORMS}")
    return StoreURL(kind="sqlite", target=checked_path(path), display=path)


def _on_a_server(kind: Kind, url: str) -> StoreURL:
    display = without_password(url)
    target, option = _without_option(url, _OPTIONS[kind])
    display += f"?{_OPTIONS[kind]}={option}" if option else ""
    return StoreURL(kind=kind, target=target, display=display, option=option)


def _without_option(url: str, name: str) -> tuple[str, str | None]:
    """Return the URL without this option, which the driver does not know, and its value."""
    base, _, query = url.partition("?")
    options = query.split("&") if query else []
    found = [option for option in options if option.partition("=")[0] == name]
    if not found:
        return url, None
    if len(found) > 1 or not (value := unquote(found[0].partition("=")[2])):
        raise ValueError(f"expected the option {name}= of a store's URL once, with a name")
    rest = "&".join(option for option in options if option not in found)
    return f"{base}?{rest}" if rest else base, value


def open_store(url: str | os.PathLike[str], *, read_only: bool = False) -> EventStore:
    """Return the event store of a URL or a path; `setup()` opens it.

    Args:
        url: of one of the forms above.
        read_only: never write, not even a migration or a new store.

    Raises:
        ValueError: the URL has no known form, or is `memory:` with `read_only`.
        TypeError: it is neither text nor a path of text.
        MissingDriver: the driver of such a store is not installed.
    """
    return store_at(parse_store_url(url), read_only=read_only)


def store_at(place: StoreURL, *, read_only: bool = False) -> EventStore:
    """Return the event store of a parsed URL; see `open_store`."""
    if place.kind == "sqlite":
        from lib.events.stores.sqlite import SQLiteEventStore  # noqa: PLC0415 - loads its driver

        return SQLiteEventStore(place.target, read_only=read_only)
    if place.kind == "postgresql":
        from lib.events.stores.postgres import PostgresEventStore  # noqa: PLC0415 - as above

        option: dict[str, Any] = {"schema": place.option} if place.option else {}
        return PostgresEventStore(place.target, read_only=read_only, **option)
    if place.kind == "redis":
        from lib.events.stores.redis import RedisEventStore  # noqa: PLC0415 - as above

        option = {"prefix": place.option} if place.option else {}
        return RedisEventStore(place.target, read_only=read_only, **option)
    if read_only:
        raise ValueError("a store in memory begins empty: expected read_only=False, got True")
    return MemoryEventStore()

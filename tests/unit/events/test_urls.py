"""Event stores by their URLs."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lib.errors import StoreClosed, StoreReadOnly
from lib.events import MemoryEventStore, SQLiteEventStore, open_store
from lib.events.urls import StoreURL, parse_store_url
from lib.testing.event_store.kit import begin

PLACES = {
    "runs.db": ("sqlite", "runs.db", "runs.db"),
    "/srv/runs.db": ("sqlite", "/srv/runs.db", "/srv/runs.db"),
    "memory": ("sqlite", "memory", "memory"),
    ":memory:": ("sqlite", ":memory:", ":memory:"),
    "sqlite:///runs.db": ("sqlite", "runs.db", "runs.db"),
    "sqlite:////srv/50%25.db": ("sqlite", "/srv/50%25.db", "/srv/50%25.db"),
    "sqlite:///memory:": ("sqlite", "memory:", "memory:"),
    "SQLite:///runs.db": ("sqlite", "runs.db", "runs.db"),
    "memory:": ("memory", "", "memory:"),
    "postgresql://db/app": ("postgresql", "postgresql://db/app", "postgresql://db/app"),
    "postgres://me:secret@db:5/app?password=secret": (
        "postgresql",
        "postgres://me:secret@db:5/app?password=secret",
        "postgres://me@db:5/app",
    ),
    "postgresql:///app?host=/run/postgresql": (
        "postgresql",
        "postgresql:///app?host=/run/postgresql",
        "postgresql:///app",
    ),
    "redis://:secret@[::1]:6379/0": (
        "redis",
        "redis://:secret@[::1]:6379/0",
        "redis://[::1]:6379/0",
    ),
    "unix://me:secret@/run/redis.sock?db=1": (
        "redis",
        "unix://me:secret@/run/redis.sock?db=1",
        "unix://me@/run/redis.sock",
    ),
    "rediss://me:secret@host": ("redis", "rediss://me:secret@host", "rediss://me@host"),
}
NONE = {
    "": "got an empty text",
    "mysql://me:secret@db/app": "unknown scheme 'mysql'",
    "memory://": "unknown scheme 'memory'",
    "sqlite://": "three slashes",
    "sqlite:///": "three slashes",
    "sqlite://runs.db": "three slashes",
    "sqlite:runs.db": "expected // after sqlite:",
    "sqlite:///runs.db?mode=ro": "no '?'",
    "redis:secret": "expected // after redis:",
    "postgresql:/secret": "expected // after postgresql:",
    "postgresql://[secret": "no URL",
    "postgresql://me:sec/ret@db": "an '@' behind the host",
    "redis://db?password=s@secret": "an '@' behind the host",
    "host=db password=secret": "libpq connection string",
}


@pytest.mark.parametrize("url", PLACES)
def test_a_url_or_a_path_names_a_store_and_shows_no_password(url: str) -> None:
    kind, target, shown = PLACES[url]
    place = parse_store_url(url)

    assert (place.kind, place.target, place.display) == (kind, target, shown)
    assert "secret" not in repr(place)


@pytest.mark.parametrize("url", NONE)
def test_an_unknown_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match=NONE[url]) as caught:
        open_store(url)

    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


class BytesPath:
    def __fspath__(self) -> bytes:
        return b"runs.db"


@pytest.mark.parametrize(
    ("url", "name"),
    [(None, "NoneType"), (5, "int"), (b"runs.db", "bytes"), (BytesPath(), "bytes")],
)
def test_an_argument_that_is_no_url_is_refused_with_the_known_forms(url: Any, name: str) -> None:
    message = f"expected a store's URL or path, got {name}: use a path, sqlite:///"

    with pytest.raises(TypeError, match=message):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "target", "part", "shown"),
    [
        (
            "postgresql://db/app?schema=agents",
            "postgresql://db/app",
            "agents",
            "postgresql://db/app?schema=agents",
        ),
        (
            "postgres://db/app?sslmode=require&schema=a%5Fb&x=1",
            "postgres://db/app?sslmode=require&x=1",
            "a_b",
            "postgres://db/app?schema=a_b",
        ),
        ("redis://db/0?prefix=agents", "redis://db/0", "agents", "redis://db/0?prefix=agents"),
        ("redis://db/0?schema=agents", "redis://db/0?schema=agents", None, "redis://db/0"),
    ],
)
def test_a_url_names_one_of_several_stores_in_a_database(
    url: str, target: str, part: str | None, shown: str
) -> None:
    place = parse_store_url(url)

    assert (place.target, place.option, place.display) == (target, part, shown)


@pytest.mark.parametrize("url", ["redis://db?prefix=", "redis://db?prefix=a&prefix=b"])
def test_a_store_in_a_database_has_one_name(url: str) -> None:
    with pytest.raises(ValueError, match="prefix= of a store's URL once"):
        parse_store_url(url)


async def test_the_schema_and_the_prefix_of_a_url_reach_the_store() -> None:
    postgres = await asyncio.to_thread(open_store, "postgresql://db/app?schema=agents")
    with pytest.raises(StoreClosed, match=r"schema='agents'\) is not open: call setup\(\)"):
        await postgres.schema_version()
    redis = await asyncio.to_thread(open_store, "redis://db/0?prefix=agents")
    with pytest.raises(StoreClosed, match=r"prefix='agents'\) is not open: call setup\(\)"):
        await redis.schema_version()
    with pytest.raises(ValueError, match="prefix"):
        open_store("redis://db/0?prefix=%7Ba")


def test_a_path_may_be_a_path_object(tmp_path: Path) -> None:
    expected = StoreURL(kind="sqlite", target=str(tmp_path / "x"), display="")

    assert parse_store_url(tmp_path / "x") == expected


async def test_a_store_in_a_file_is_opened_for_writing_and_for_reading(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'runs.db'}")
    assert isinstance(store, SQLiteEventStore)
    with pytest.raises(StoreClosed):
        await store.runs()
    await store.setup()
    log = await begin(store, "run")
    await store.close()
    reader = open_store(tmp_path / "runs.db", read_only=True)
    await reader.setup()
    assert await reader.read("run") == log
    with pytest.raises(StoreReadOnly):
        await reader.erase("run")
    await reader.close()


def test_a_store_in_memory_begins_empty_and_so_is_not_read_only() -> None:
    assert isinstance(open_store("memory:"), MemoryEventStore)
    for url in ("memory:", ":memory:"):
        with pytest.raises(ValueError, match="begins empty"):
            open_store(url, read_only=True)


@pytest.mark.parametrize(
    ("url", "name"),
    [("postgresql://db/app", "PostgresEventStore"), ("rediss://db", "RedisEventStore")],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_on_a_server_is_opened_without_a_connection(
    url: str, name: str, *, read_only: bool
) -> None:
    assert type(open_store(url, read_only=read_only)).__name__ == name

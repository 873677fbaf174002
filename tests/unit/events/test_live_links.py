"""Live channels when connections are lost, processes die and folders are of others."""

import asyncio
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis.asyncio

from lib.engine import ModelReplied, ReplyDelta, ReplyReset, RunEnded
from lib.events import EventStore, SQLiteEventStore
from lib.events.live import LiveChannel, live_of
from lib.events.stores.postgres import PostgresEventStore
from lib.events.stores.redis import RedisEventStore
from lib.llm import Delta, Reply, ScriptedClient
from lib.testing.agents import make_engine
from servers import postgres
from servers import redis as redis_server

HANGING_S = 120.0


class Halting(ScriptedClient):
    """Streams one piece, and the rest when it may."""

    def __init__(self) -> None:
        super().__init__(["first second"])
        self.may_go_on = asyncio.Event()

    async def stream(self, *args: Any, **options: Any) -> AsyncIterator[Delta | Reply]:
        yield Delta(text="first ")
        await self.may_go_on.wait()
        yield Delta(text="second")
        yield await self.complete(*args, **options)


def channel_of(store: EventStore) -> LiveChannel:
    live = live_of(store)
    assert live is not None
    return live


async def joined(driver: LiveChannel, subscriber: LiveChannel, run_id: str) -> asyncio.Queue[str]:
    """Subscribe, and wait until the driver has learnt of it."""
    heard, received = asyncio.Event(), asyncio.Queue[str]()
    stop = driver.drive(run_id, heard.set)
    subscriber.subscribe(run_id, received.put_nowait)
    await heard.wait()
    stop()
    return received


async def kill_redis_subscriptions(_: Path) -> None:
    driver: Any = redis.asyncio  # its types are incomplete
    async with driver.Redis.from_url(redis_server.url()) as client:
        await client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")


async def kill_postgres_listeners(_: Path) -> None:
    async with await psycopg.AsyncConnection.connect(postgres.url(), autocommit=True) as admin:
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND (query LIKE 'LISTEN%' OR query LIKE '%pg_notify(%')"
        )


STORES: dict[str, Callable[[Path], EventStore]] = {
    "redis": lambda place: RedisEventStore(
        redis_server.url(), prefix=redis_server.prefix_of(place)
    ),
    "postgres": lambda place: PostgresEventStore(postgres.url(), schema=postgres.schema_of(place)),
}
KILL: dict[str, Callable[[Path], Awaitable[None]]] = {
    "redis": kill_redis_subscriptions,
    "postgres": kill_postgres_listeners,
}


@pytest.mark.parametrize("kind", list(STORES))
async def test_with_a_lost_connection_the_run_goes_on_and_its_reply_arrives(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "lib.events.live")
    one, two = [await asyncio.to_thread(STORES[kind], tmp_path) for _ in range(2)]
    client = Halting()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(HANGING_S))
        driver = await stack.enter_async_context(make_engine(client, store=one))
        watcher = make_engine(ScriptedClient([]), store=two, drive=False)
        await stack.enter_async_context(watcher)
        run = await watcher.start("hi")
        await joined(channel_of(one), channel_of(two), run.id)
        items = run.stream()
        await stack.enter_async_context(aclosing(items))
        reading = asyncio.ensure_future(anext(items))
        assert await driver.resume(run.id)
        first = await reading
        await KILL[kind](tmp_path)
        client.may_go_on.set()
        rest = [item async for item in items]

    assert isinstance(first, ReplyDelta)
    assert first.text == "first "
    assert [item.text for item in rest if isinstance(item, ModelReplied)] == ["first second"]
    assert not any(isinstance(item, ReplyReset) for item in rest)
    assert isinstance(rest[-1], RunEnded)
    assert rest[-1].result.output == "first second"


@pytest.mark.parametrize("kind", list(STORES))
async def test_a_lost_connection_is_made_again_and_logged_once(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = [await asyncio.to_thread(STORES[kind], tmp_path) for _ in range(2)]
    async with asyncio.timeout(HANGING_S), AsyncExitStack() as stack:
        for store in (one, two):
            await store.setup()
            stack.push_async_callback(store.close)
        driver, subscriber = channel_of(one), channel_of(two)
        received = await joined(driver, subscriber, "run")
        message = "before"
        driver.drive("run", lambda: driver.publish("run", message))
        await KILL[kind](tmp_path)
        message = "after"  # for the subscriber, when it announces itself again
        while await received.get() != "after":
            pass

    noted = [each.getMessage() for each in caplog.records if each.name == "lib.events.live"]
    assert 1 <= len(noted) <= 2  # each store
    assert all("no deltas from or to other processes" in each for each in noted)


# -- SQLite --------------------------------------------------------------------------------


async def opened(stack: AsyncExitStack, path: Path) -> LiveChannel:
    store = SQLiteEventStore(path)
    await store.setup()
    stack.push_async_callback(store.close)
    return channel_of(store)


async def test_the_folder_of_sockets_is_closed_to_others_and_goes_with_the_last(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log.db"
    folder = tmp_path / "log.db-live"
    async with asyncio.timeout(HANGING_S), AsyncExitStack() as stack:
        driver, subscriber = await opened(stack, path), await opened(stack, path)
        await joined(driver, subscriber, "run")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert len(os.listdir(folder)) == 2  # noqa: PTH208 - two names
    assert not folder.exists()


async def test_a_process_that_only_drives_makes_no_folder(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        driver = await opened(stack, tmp_path / "log.db")
        driver.drive("run", lambda: None)()
        driver.publish("run", "text")
        assert not driver.watched("run")
    assert os.listdir(tmp_path) == ["log.db"]  # noqa: PTH208 - a name


async def test_a_folder_that_is_open_to_others_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "log.db-live"
    folder.mkdir()
    folder.chmod(0o755)
    noted = asyncio.Event()

    class Note(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            noted.set()

    note, logger = Note(), logging.getLogger("lib.events.live")
    logger.addHandler(note)
    try:
        async with asyncio.timeout(HANGING_S), AsyncExitStack() as stack:
            subscriber = await opened(stack, tmp_path / "log.db")
            subscriber.subscribe("run", lambda _: None)
            await noted.wait()
            assert os.listdir(folder) == []  # noqa: PTH208 - no name
    finally:
        logger.removeHandler(note)
    assert "is of another user, or open to others" in caplog.text


async def test_the_socket_of_a_dead_process_is_removed_and_a_long_path_is_no_hindrance(
    tmp_path: Path,
) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    folder = deep / "log.db-live"
    folder.mkdir(mode=0o700)
    left = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    descriptor = os.open(folder, os.O_RDONLY)
    left.bind(f"/proc/self/fd/{descriptor}/left.sock")
    os.close(descriptor)
    left.close()
    async with asyncio.timeout(HANGING_S), AsyncExitStack() as stack:
        driver, subscriber = [await opened(stack, deep / "log.db") for _ in range(2)]
        received = await joined(driver, subscriber, "run")
        driver.publish("run", "text")
        assert await received.get() == "text"
        assert "left.sock" not in os.listdir(folder)  # noqa: PTH208 - names


async def test_a_subscriber_whose_process_hangs_delays_no_other(tmp_path: Path) -> None:
    async with asyncio.timeout(HANGING_S), AsyncExitStack() as stack:
        driver, subscriber = [await opened(stack, tmp_path / "log.db") for _ in range(2)]
        received = await joined(driver, subscriber, "run")
        hangs = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        hangs.bind(str(tmp_path / "log.db-live" / "hangs.sock"))
        for number in range(200):
            driver.publish("run", f"{number} {'x' * 50_000}")
            got = await received.get()
            assert got.startswith(f"{number} ")

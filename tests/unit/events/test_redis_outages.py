"""A Redis event store whose server restarts, hangs, is full, or cannot be written."""

import asyncio
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager, suppress

import pytest

from lib.errors import Conflict, StoreCorrupt, StoreError, StoreReadOnly
from lib.events import RedisEventStore
from lib.events.runs import RunQuery
from lib.events.store import END
from lib.testing.event_store.kit import begin, note, started
from servers.redis import RedisServer, own_server

from .redis_kit import do, hasty, opened, surely


@pytest.fixture(scope="module")
def shared_own() -> Iterator[RedisServer]:
    server = own_server("--appendfsync", "always")
    yield server
    server.stop()


@pytest.fixture
def own(shared_own: RedisServer) -> Iterator[RedisServer]:
    """A server that a test may harm, with nothing in it."""
    shared_own.command("FLUSHALL")
    yield shared_own
    shared_own.command("CONFIG", "SET", "maxmemory", "0")


@contextmanager
def paused(server: RedisServer) -> Generator[None]:
    """Let a server hang as long as the block."""
    server.pause()
    try:
        yield
    finally:
        server.go_on()


async def test_scripts_that_the_server_forgets_are_sent_again(own: RedisServer) -> None:
    async with opened(own.url) as store:
        log = await begin(store, "run")
        await do(own.command, "SCRIPT", "FLUSH")
        log += await store.append("run", [note()], expected=1)
        await do(own.command, "SCRIPT", "FLUSH")

        assert await store.read("run") == log


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_store_goes_on_when_its_server_is_back(
    own: RedisServer, how: signal.Signals
) -> None:
    async with opened(own.url) as store:
        log = await begin(store, "run", 3)
        with store.wakeups.listen("run"):
            await do(own.stop, how)
            for call in (
                store.read("run"),
                store.append("run", [note()], expected=4),
                store.claim("me", ttl_s=9),
                store.runs(),
            ):
                with pytest.raises(StoreError, match=r"cannot be reached|connection") as caught:
                    await call
                assert caught.value.retryable
            await asyncio.sleep(0.2)  # noqa: TID251 - lets the watch fail, more than once
            await do(own.start)
        log += await store.append("run", [note()], expected=4)

        assert await store.read("run") == log
        assert [lease.run_id for lease in await store.claim("me", ttl_s=9)] == ["run"]


async def head_of(store: RedisEventStore, run_id: str) -> int:
    while True:
        try:
            return len(await store.read(run_id))
        except StoreError:
            await asyncio.sleep(0.02)  # noqa: TID251 - the server comes back


async def write(store: RedisEventStore, run_id: str) -> None:
    head = 0
    while head < 60:
        events = [started()] if head == 0 else [note(str(head))]
        try:
            await store.append(run_id, events, expected=head)
            head += 1
        except StoreError:
            head = await head_of(store, run_id)


async def test_a_server_that_came_back_empty_fails_reads_too(own: RedisServer) -> None:
    async with opened(own.url) as store, opened(own.url, read_only=True) as reader:
        await begin(store, "run")
        [lease] = await store.claim("me", ttl_s=30)
        with store.wakeups.listen("run") as listener:
            await do(own.command, "FLUSHALL")
            assert await listener.wait(60)
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "read": lambda: store.read("run"),
            "read nothing": lambda: store.read("run", limit=0),
            "run": lambda: store.run("run"),
            "runs": store.runs,
            "runs after": lambda: store.runs(RunQuery(after="run")),
            "feed": store.feed,
            "feed from its end": lambda: store.feed(END),
            "mark": lambda: store.mark("name"),
            "marks": lambda: store.marks(""),
            "tombstone": lambda: store.tombstone("run"),
            "blob users": lambda: store.blob_users("a" * 64),
            "schema_version": store.schema_version,
            "a reader": lambda: reader.read("run"),
            "append": lambda: store.append("run", [note()], expected=1),
            "signal": lambda: store.append("run", [note()], expected=None),
            "start": lambda: begin(store, "other"),
            "claim": lambda: store.claim("me", ttl_s=30),
            "renew": lambda: store.renew(lease, ttl_s=30),
        }
        silent: list[str] = []
        for name, call in calls.items():
            with suppress(StoreCorrupt):
                await call()
                silent.append(name)

        assert silent == ["read nothing"]
        assert await do(own.command, "DBSIZE") == b":0\r\n"


async def test_writers_that_look_after_every_error_write_everything_once(own: RedisServer) -> None:
    async with opened(own.url) as store:
        names = [f"run-{number}" for number in range(12)]
        writers = [asyncio.create_task(write(store, name)) for name in names]
        for how in (signal.SIGKILL, signal.SIGTERM):
            await asyncio.sleep(0.1)  # noqa: TID251 - amid their work
            await do(own.stop, how)
            await do(own.start)
        await asyncio.gather(*writers)
        for name in names:
            texts = [event.data.get("text") for event in await store.read(name)]
            assert texts == [None, *map(str, range(1, 60))]


async def begun(store: RedisEventStore) -> str:
    """Begin a run with a store that soon gives up; return its name."""
    number = 0
    while True:
        number += 1
        with suppress(StoreError):
            await begin(store, f"run-{number}")
            return f"run-{number}"


async def test_a_write_whose_reply_is_lost_fails_and_is_not_sent_again(own: RedisServer) -> None:
    async with opened(own.url) as store, hasty(own.url, 0.5) as impatient:
        name = await begun(impatient)
        with paused(own), pytest.raises(StoreError, match="may have happened") as caught:
            await impatient.append(name, [note("once")], expected=1)
        assert caught.value.retryable
        while len(await store.read(name)) == 1:  # it comes by another connection
            pass
        with pytest.raises(Conflict):
            await store.append(name, [note("once")], expected=1)
        texts = [event.data.get("text") for event in await store.read(name)]

        assert texts == [None, "once"]


async def test_calls_share_connections_and_the_error_of_a_long_wait_names_the_limit(
    own: RedisServer,
) -> None:
    async with hasty(own.url, 0.4, partitions=1, max_connections=3) as store:
        with paused(own):
            reads = [asyncio.create_task(store.read("run")) for _ in range(9)]
            errors = await asyncio.gather(*reads, return_exceptions=True)

        assert any("raise max_connections" in str(error) for error in errors)
        assert all(isinstance(error, StoreError) and error.retryable for error in errors)
        many = [surely(lambda: store.read("run")) for _ in range(50)]
        assert await asyncio.gather(*many) == [[]] * 50


async def test_a_server_without_memory_takes_no_appends_but_still_erases(own: RedisServer) -> None:
    async with opened(own.url) as store:
        await begin(store, "run")
        await do(own.command, "CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(StoreError, match="out of memory"):
            await store.append("run", [note()], expected=1)
        with pytest.raises(StoreError, match="out of memory"):
            await begin(store, "new")
        assert len(await store.read("run")) == 1
        assert await store.erase("run") is True
        await do(own.command, "CONFIG", "SET", "maxmemory", "0")
        await begin(store, "new")

        assert [info.run_id for info in await store.runs()] == ["new"]


async def test_a_replica_is_read_and_not_written(own: RedisServer) -> None:
    async with opened(own.url) as store:
        log = await begin(store, "run")
        await do(own.command, "REPLICAOF", "127.0.0.1", "1")
        try:
            with pytest.raises(StoreReadOnly, match="is a replica"):
                await store.append("run", [note()], expected=1)
            async with opened(own.url, read_only=True) as reader:
                assert await reader.read("run") == log
        finally:
            await do(own.command, "REPLICAOF", "NO", "ONE")
        await store.append("run", [note()], expected=1)


async def test_a_server_that_cannot_save_takes_no_writes() -> None:
    sick = own_server()

    async with opened(sick.url) as store:
        log = await begin(store, "run")
        await do(_fail_to_save, sick)
        with pytest.raises(StoreError, match="cannot save to its disk"):
            await store.append("run", [note()], expected=1)
        assert await store.read("run") == log
        await do(sick.command, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
        await store.append("run", [note()], expected=1)
    sick.stop(signal.SIGKILL)


def _fail_to_save(server: RedisServer) -> None:
    server.command("CONFIG", "SET", "save", "900 1")
    shutil.rmtree(server.folder)
    server.command("BGSAVE")
    while b"rdb_last_bgsave_status:err" not in server.command("INFO", "persistence"):
        time.sleep(0.01)


COMMIT = "lib.events.commit"


async def test_an_append_whose_waiter_has_gone_may_fail_unseen(own: RedisServer) -> None:
    async with opened(own.url) as store, hasty(own.url, 0.3) as impatient:
        name = await begun(impatient)
        with paused(own):
            tasks = [
                asyncio.create_task(impatient.append(name, [note(text)], expected=None))
                for text in ("gone", "waiting")
            ]
            await asyncio.sleep(0.1)  # noqa: TID251 - they are under way
            tasks[0].cancel()
            gone, waiting = await asyncio.gather(*tasks, return_exceptions=True)
        while len(await store.read(name)) == 1:  # they come by another connection
            pass
        texts = [event.data.get("text") for event in await store.read(name)]

        assert isinstance(gone, asyncio.CancelledError)
        assert isinstance(waiting, StoreError)
        assert texts == [None, "gone", "waiting"]


async def test_a_commit_that_the_end_of_the_loop_cancels_cancels_its_callers(
    own: RedisServer,
) -> None:
    async with opened(own.url) as store:
        with paused(own):
            append = asyncio.create_task(begin(store, "run"))
            await asyncio.sleep(0.1)  # noqa: TID251 - it is under way
            [commit] = [t for t in asyncio.all_tasks() if t.get_name() == COMMIT]
            commit.cancel()
            with pytest.raises(asyncio.CancelledError):
                await append
        await begin(store, "other")

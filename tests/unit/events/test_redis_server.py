"""A Redis event store whose server fails, restarts, is full, or is not what it should be."""

import asyncio
import logging
import shutil
import signal
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lib.errors import (
    Conflict,
    MissingDriver,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
)
from lib.events import RedisEventStore
from lib.events.store import run_mark
from lib.events.stores.redis.server import Server
from lib.testing.aio import run
from lib.testing.event_store.kit import begin, note, started
from lib.testing.servers.redis import RedisServer, fresh_url, own_server


@pytest.fixture(scope="module")
def shared_own() -> Iterator[RedisServer]:
    server = own_server("--appendfsync", "always", "--requirepass", "")
    yield server
    server.stop()


@pytest.fixture
def own(shared_own: RedisServer) -> Iterator[RedisServer]:
    """A server that a test may harm, with nothing in it."""
    shared_own.command("FLUSHALL")
    yield shared_own
    for name, value in (
        ("maxmemory", "0"),
        ("maxmemory-policy", "noeviction"),
        ("requirepass", ""),
    ):
        shared_own.command("CONFIG", "SET", name, value)


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncGenerator[RedisEventStore]:
    store = RedisEventStore(url, **options)
    await store.setup()
    try:
        yield store
    finally:
        await store.close()


async def do(call: Any, *args: Any) -> Any:
    return await asyncio.to_thread(call, *args)


def test_scripts_that_the_server_forgets_are_sent_again(own: RedisServer) -> None:
    async def main() -> None:
        async with opened(own.url) as store:
            log = await begin(store, "run")
            await do(own.command, "SCRIPT", "FLUSH")
            log += await store.append("run", [note()], expected=1)
            await do(own.command, "SCRIPT", "FLUSH")

            assert await store.read("run") == log

    run(main())


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_store_goes_on_when_its_server_is_back(own: RedisServer, how: signal.Signals) -> None:
    async def main() -> None:
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

    run(main())


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


def test_writers_that_look_after_every_error_write_everything_once(own: RedisServer) -> None:
    async def main() -> None:
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

    run(main())


def test_a_write_whose_answer_is_lost_is_not_sent_again_and_says_so(own: RedisServer) -> None:
    async def main() -> None:
        async with opened(own.url, timeout_s=0.5) as store:
            await begin(store, "run")
            own.pause()
            try:
                with pytest.raises(StoreError, match="may have happened") as caught:
                    await store.append("run", [note("once")], expected=1)
            finally:
                own.go_on()
            assert caught.value.retryable
            with pytest.raises(Conflict):
                await store.append("run", [note("once")], expected=1)
            texts = [event.data.get("text") for event in await store.read("run")]

            assert texts == [None, "once"]

    run(main())


def test_connections_are_shared_and_who_waits_too_long_is_told_what_to_raise(
    own: RedisServer,
) -> None:
    async def main() -> None:
        async with opened(own.url, partitions=1, max_connections=3, timeout_s=0.4) as store:
            own.pause()
            try:
                reads = [asyncio.create_task(store.read("run")) for _ in range(9)]
                errors = await asyncio.gather(*reads, return_exceptions=True)
            finally:
                own.go_on()

            assert any("raise max_connections" in str(error) for error in errors)
            assert all(isinstance(error, StoreError) and error.retryable for error in errors)
            many = [store.read("run") for _ in range(50)]
            assert await asyncio.gather(*many) == [[]] * 50

    run(main())


def test_a_server_without_memory_takes_no_appends_but_still_erases(own: RedisServer) -> None:
    async def main() -> None:
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

    run(main())


def test_a_replica_is_read_and_not_written(own: RedisServer) -> None:
    async def main() -> None:
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

    run(main())


def test_a_server_that_cannot_save_takes_no_writes() -> None:
    sick = own_server()

    async def main() -> None:
        async with opened(sick.url) as store:
            log = await begin(store, "run")
            await do(_fail_to_save, sick)
            with pytest.raises(StoreError, match="cannot save to its disk"):
                await store.append("run", [note()], expected=1)
            assert await store.read("run") == log
            await do(sick.command, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
            await store.append("run", [note()], expected=1)

    run(main())
    sick.stop(signal.SIGKILL)


def _fail_to_save(server: RedisServer) -> None:
    server.command("CONFIG", "SET", "save", "900 1")
    shutil.rmtree(server.folder)
    server.command("BGSAVE")
    while b"rdb_last_bgsave_status:err" not in server.command("INFO", "persistence"):
        time.sleep(0.01)


def test_a_password_is_used_and_never_shown(own: RedisServer) -> None:
    own.command("CONFIG", "SET", "requirepass", "geheim")
    address = own.url.removeprefix("redis://")

    async def main() -> None:
        async with opened(f"redis://:geheim@{address}") as store:
            await begin(store, "run")
            assert "geheim" not in repr(store)
        for url in (f"redis://:geheim2@{address}", own.url):
            with pytest.raises(StoreError, match="password") as caught:
                await RedisEventStore(url).setup()
            assert "geheim" not in f"{caught.value!r} {caught.value.__cause__!r}"

    try:
        run(main())
    finally:
        _authorised(own, "geheim", "CONFIG", "SET", "requirepass", "")


def _authorised(own: RedisServer, password: str, *words: str) -> None:
    async def main() -> None:
        reader, writer = await asyncio.open_connection(*own.address)
        quoted = " ".join(f'"{word}"' for word in words)
        writer.write(f"AUTH {password}\r\n{quoted}\r\n".encode())
        assert await reader.readline() == b"+OK\r\n"
        assert await reader.readline() == b"+OK\r\n"
        writer.close()
        await writer.wait_closed()

    run(main())


def test_what_endangers_the_log_is_warned_of_at_setup(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = own_server()

    async def main() -> None:
        async with opened(own.url, prefix="quiet"):
            pass
        assert caplog.messages == []
        await do(own.command, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        await do(own.command, "CONFIG", "SET", "appendonly", "no")
        async with opened(own.url):
            pass

    with caplog.at_level(logging.WARNING):
        run(main())

    own.stop()
    assert ["appendonly" in text for text in caplog.messages] == [True, False]
    assert "maxmemory-policy allkeys-lru" in caplog.messages[1]


def test_a_user_who_may_not_ask_how_the_server_is_run_can_work(
    own: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    own.command("ACL", "SETUSER", "app", "on", ">geheim", "~*", "+@all", "-info", "-keys")

    async def main() -> None:
        async with opened(f"redis://app:geheim@{own.url.removeprefix('redis://')}") as store:
            await begin(store, "run")

    with caplog.at_level(logging.WARNING):
        run(main())

    assert ["does not say how it is run" in text for text in caplog.messages] == [True]


def test_nothing_of_an_erased_run_is_left_in_the_servers_files_once_they_are_purged() -> None:
    server = own_server()
    secret = "geheimnis"

    def kept() -> bool:
        files = [path for path in server.folder.rglob("*") if path.is_file()]
        return any(secret.encode() in path.read_bytes() for path in files)

    async def main() -> None:
        async with opened(server.url) as store:
            blob = {"$blob": "a" * 64, "size": 1, "type": secret}
            names: dict[str, Any] = {
                "tenant": f"t-{secret}",
                "user": secret,
                "root": f"{secret}/root",
            }
            parent = {"run_id": f"{secret}/parent", "key": "k"}
            await begin(store, f"run-{secret}", parent=parent, input=[secret, blob], **names)
            await store.append(f"run-{secret}", [note(secret)], expected=1)
            await store.set_mark(run_mark(f"run-{secret}", "a"), secret)
            await begin(store, "other")
            await do(server.command, "SAVE")
            assert await do(kept)
            await store.erase(f"run-{secret}")
            await asyncio.gather(store.purge(), store.purge(), return_exceptions=True)
            await store.purge()
            await do((server.folder / "dump.rdb").unlink)
            assert not await do(kept)
            assert [info.run_id for info in await store.runs()] == ["other"]

            await do(server.command, "CONFIG", "SET", "appendonly", "no")
            await store.purge()
            await do(server.command, "CONFIG", "SET", "appendonly", "yes")
            await do(_spoil, server)
            with pytest.raises(StoreError, match="could not rewrite"):
                await store.purge()

    run(main())
    server.stop(signal.SIGKILL)


def _spoil(server: RedisServer) -> None:
    while b"aof_rewrite_in_progress:1" in server.command("INFO", "persistence"):
        time.sleep(0.01)
    shutil.rmtree(server.folder)


@asynccontextmanager
async def odd_server(*answers: bytes) -> AsyncGenerator[str]:
    """A server that gives these answers, one to each command, and repeats the last."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = list(answers)
        while await reader.read(65536):
            writer.write(left[0])
            del left[: len(left) > 1]
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    async with server:
        yield f"redis://{host}:{port}"


COMMIT = "lib.events.commit"
INFO = b"redis_version:7.4.0\r\naof_enabled:1\r\n"


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", StoreError, "still loading"),
        (b"-MOVED 1 127.0.0.1:7001\r\n", StoreError, "node of a cluster"),
        (b"-WRONGTYPE Operation against a key\r\n", StoreCorrupt, "other data"),
        (b"-BUSY Redis is busy running a script\r\n", StoreError, "busy"),
        (b"-NOREPLICAS Not enough good replicas\r\n", StoreError, "too few replicas"),
        (b"-NOPERM no permissions\r\n", StoreError, "does not permit"),
        (b"-ERR unknown command\r\n", StoreError, "refused a command"),
        (b"nonsense\r\n", StoreError, "may have happened"),
        (b"*2\r\n$1\r\nx\r\n$1\r\n8\r\n", StoreCorrupt, "layout"),
    ],
)
def test_what_a_server_says_is_an_error_of_ours(
    answer: bytes, error: type[StoreError], text: str
) -> None:
    async def main() -> None:
        async with odd_server(bulk(INFO), answer) as url:
            with pytest.raises(error, match=text) as caught:
                await RedisEventStore(url, timeout_s=2).setup()
            passes = text in {"still loading", "busy", "too few replicas", "may have happened"}
            assert caught.value.retryable is passes

    run(main())


def test_a_server_that_is_too_old_is_refused() -> None:
    async def main() -> None:
        async with odd_server(bulk(b"redis_version:6.0.16\r\naof_enabled:1\r\n")) as url:
            with pytest.raises(StoreError, match=r"Redis 6\.0\.16: it must be 6\.2 or newer"):
                await RedisEventStore(url).setup()

    run(main())


def test_what_somebody_else_keeps_under_a_key_of_the_store_is_not_overwritten() -> None:
    url = fresh_url()

    async def main() -> None:
        async with opened(url) as store:
            await store.swap_mark("a", expected=None, value="b")
            reader, writer = await asyncio.open_connection(*_address(url))
            writer.write(f"SELECT {url.rpartition('/')[2]}\r\nSET {{lib}}:marks x\r\n".encode())
            await reader.readexactly(len("+OK\r\n+OK\r\n"))
            writer.close()
            await writer.wait_closed()
            with pytest.raises(StoreCorrupt, match="holds other data"):
                await store.set_mark("a", "c")

    run(main())


def _address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("redis://").partition("/")[0].partition(":")
    return host, int(port)


def test_a_cancelled_read_leaves_no_answer_behind_for_the_next() -> None:
    url = fresh_url()

    async def main() -> None:
        async with opened(url, partitions=1, max_connections=3) as store:
            await begin(store, "a", 200)
            await begin(store, "b", 1)
            for turns in range(12):
                reads = [asyncio.create_task(store.read("a")) for _ in range(6)]
                for _ in range(turns):
                    await asyncio.sleep(0)  # noqa: TID251 - lets them get under way
                for task in reads:
                    task.cancel()
                await asyncio.gather(*reads, return_exceptions=True)
                assert len(await store.read("b")) == 2

    run(main())


def test_a_cancellation_is_never_swallowed_whenever_it_comes() -> None:
    async def reads_on(store: RedisEventStore) -> None:
        await store.mark("m")
        await asyncio.Event().wait()

    async def cut_off(store: RedisEventStore, ticks: int) -> None:
        task = asyncio.create_task(reads_on(store))
        for _ in range(ticks):
            await asyncio.sleep(0)  # noqa: TID251 - lets the driver take a step
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.cancelled(), f"swallowed after {ticks} ticks"

    async def main() -> None:
        async with opened(url) as store:
            for ticks in range(30):
                await cut_off(store, ticks)

    url = fresh_url()
    run(main())


def test_a_read_under_way_ends_before_the_store_disconnects_and_none_begins_after() -> None:
    url = fresh_url()

    async def main() -> None:
        async with opened(url, partitions=1, max_connections=3) as store:
            log = await begin(store, "run", 50)
            reads = [asyncio.create_task(store.read("run")) for _ in range(8)]
            signals = [
                asyncio.create_task(store.append("other", [note()], expected=None))
                for _ in range(3)
            ]
            await asyncio.sleep(0)  # noqa: TID251 - lets them begin
            await store.close()
            found = await asyncio.gather(*reads, *signals, return_exceptions=True)

        assert all(one == log or isinstance(one, StoreError) for one in found)
        assert log in found
        assert any(isinstance(one, StoreClosed) for one in found) or found.count(log) == 8

    run(main())


def test_connections_that_were_closed_are_not_made_again() -> None:
    url = fresh_url()

    async def main() -> None:
        server = Server(url, "the store", connections=2, timeout_s=5)
        under_way = asyncio.create_task(server.call("PING"))
        await asyncio.sleep(0)  # noqa: TID251 - lets it begin
        await server.close()
        assert await under_way == b"PONG"
        with pytest.raises(StoreClosed, match="the store has been closed"):
            await server.call("PING")

    run(main())


def test_an_append_whose_waiter_has_gone_may_fail_unseen(own: RedisServer) -> None:
    async def main() -> None:
        async with opened(own.url, timeout_s=0.3) as store:
            await begin(store, "run")
            own.pause()
            try:
                tasks = [
                    asyncio.create_task(store.append("run", [note(text)], expected=None))
                    for text in ("gone", "told")
                ]
                await asyncio.sleep(0.1)  # noqa: TID251 - they are under way
                tasks[0].cancel()
                gone, told = await asyncio.gather(*tasks, return_exceptions=True)
            finally:
                own.go_on()
            texts = [event.data.get("text") for event in await store.read("run")]

            assert isinstance(gone, asyncio.CancelledError)
            assert isinstance(told, StoreError)
            assert texts == [None, "gone", "told"]

    run(main())


def test_a_commit_that_the_end_of_the_loop_cancels_tells_who_waits(own: RedisServer) -> None:
    async def main() -> None:
        async with opened(own.url) as store:
            own.pause()
            try:
                append = asyncio.create_task(begin(store, "run"))
                await asyncio.sleep(0.1)  # noqa: TID251 - it is under way
                [commit] = [t for t in asyncio.all_tasks() if t.get_name() == COMMIT]
                commit.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await append
            finally:
                own.go_on()
            await begin(store, "other")

    run(main())


def test_without_the_driver_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(MissingDriver, match=r"pip install 'lib-agents\[redis\]'"):
        RedisEventStore("redis://host")

"""Settings and answers of a Redis server: used, warned of, or an error of ours."""

import asyncio
import logging
import shutil
import signal
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import pytest

from lib.errors import StoreCorrupt, StoreError
from lib.events import RedisEventStore
from lib.events.store import run_mark
from lib.testing.event_store.kit import begin, note
from servers.redis import RedisServer, own_server

from .redis_kit import do, opened


@pytest.fixture
def own() -> Iterator[RedisServer]:
    server = own_server()
    yield server
    server.stop(signal.SIGKILL)


async def test_a_password_is_used_and_never_shown(own: RedisServer) -> None:
    own.command("CONFIG", "SET", "requirepass", "geheim")
    address = own.url.removeprefix("redis://")

    async with opened(f"redis://:geheim@{address}") as store:
        await begin(store, "run")
        assert "geheim" not in repr(store)
    for url in (f"redis://:geheim2@{address}", own.url):
        with pytest.raises(StoreError, match="password") as caught:
            await RedisEventStore(url).setup()
        assert "geheim" not in f"{caught.value!r} {caught.value.__cause__!r}"


async def test_setup_warns_of_settings_that_endanger_the_log(
    own: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with opened(own.url, prefix="quiet"):
            pass
        assert caplog.messages == []
        await do(own.command, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        await do(own.command, "CONFIG", "SET", "appendonly", "no")
        async with opened(own.url):
            pass

    with caplog.at_level(logging.WARNING):
        await main()

    assert ["appendonly" in text for text in caplog.messages] == [True, False]
    assert "maxmemory-policy allkeys-lru" in caplog.messages[1]


async def test_a_user_without_permission_for_info_can_work(
    own: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    own.command("ACL", "SETUSER", "app", "on", ">geheim", "~*", "+@all", "-info", "-keys")

    async def main() -> None:
        async with opened(f"redis://app:geheim@{own.url.removeprefix('redis://')}") as store:
            await begin(store, "run")

    with caplog.at_level(logging.WARNING):
        await main()

    assert ["does not tell how it is configured" in text for text in caplog.messages] == [True]


async def test_a_server_that_is_down_is_an_error_and_no_log_line_beside_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(StoreError, match="cannot be reached"):
        async with opened("redis://localhost:1"):
            pass

    assert caplog.messages == []


async def test_nothing_of_an_erased_run_is_left_in_the_servers_files_once_they_are_purged(
    own: RedisServer,
) -> None:
    secret = "geheimnis"

    def kept() -> bool:
        files = [path for path in own.folder.rglob("*") if path.is_file()]
        return any(secret.encode() in path.read_bytes() for path in files)

    async with opened(own.url) as store:
        blob = {"$blob": "a" * 64, "size": 1, "type": secret}
        text = {"type": "text", "text": secret}
        await begin(
            store,
            f"run-{secret}",
            tenant=f"t-{secret}",
            user=secret,
            root=f"{secret}/root",
            parent={"run_id": f"{secret}/parent", "key": "k"},
            input=[{"role": "user", "parts": [text, {"type": "file", "blob": blob}]}],
        )
        await store.append(f"run-{secret}", [note(secret)], expected=1)
        await store.set_mark(run_mark(f"run-{secret}", "a"), secret)
        await begin(store, "other")
        await do(own.command, "SAVE")
        assert await do(kept)
        await store.erase(f"run-{secret}")
        await asyncio.gather(store.purge(), store.purge(), return_exceptions=True)
        await store.purge()
        await do((own.folder / "dump.rdb").unlink)
        assert not await do(kept)
        assert [info.run_id for info in await store.runs()] == ["other"]

        await do(own.command, "CONFIG", "SET", "appendonly", "no")
        await store.purge()
        await do(own.command, "CONFIG", "SET", "appendonly", "yes")
        await do(_spoil, own)
        with pytest.raises(StoreError, match="could not rewrite"):
            await store.purge()


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
async def test_errors_of_the_server_become_store_errors(
    answer: bytes, error: type[StoreError], text: str
) -> None:
    async with odd_server(bulk(INFO), answer) as url:
        with pytest.raises(error, match=text) as caught:
            await RedisEventStore(url, timeout_s=200).setup()
        passes = text in {"still loading", "busy", "too few replicas", "may have happened"}
        assert caught.value.retryable is passes


async def test_a_server_that_is_too_old_is_refused() -> None:
    async with odd_server(bulk(b"redis_version:6.0.16\r\naof_enabled:1\r\n")) as url:
        with pytest.raises(StoreError, match=r"Redis 6\.0\.16: it must be 6\.2 or newer"):
            await RedisEventStore(url).setup()

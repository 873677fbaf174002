"""`ChromaVectorStore` over HTTP: a real server, and servers that are none."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import chromadb
import httpx
import pytest
from chromadb.api.shared_system_client import SharedSystemClient
from chromadb.config import Settings
from chromadb.errors import NotFoundError, RateLimitError

from lib.errors import StoreClosed, StoreUnavailable
from lib.testing.aio import run
from lib.vector import ChromaVectorStore, Record
from lib.vector.stores.chroma import client as clients
from servers.chroma import chroma_server, forget_collections

X = [1.0, 0.0]


@pytest.fixture(scope="module")
def server() -> tuple[str, int]:
    forget_collections()
    return chroma_server()


@asynccontextmanager
async def answering(reply: bytes) -> AsyncGenerator[int]:
    """Serve the same few bytes to everybody."""

    serving: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):  # who asks may have given up
            await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        if not reply:
            await reader.read()
        writer.close()
        await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.create_task(serve(reader, writer)))

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]
    await asyncio.gather(*serving)


def http(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return head.encode() + body


def test_it_can_be_reached_from_one_event_loop_after_another(server: tuple[str, int]) -> None:
    host, port = server

    async def main(turn: int) -> None:
        store = ChromaVectorStore(dimension=2, host=host, port=port, prefix="loops")
        await store.upsert([Record(str(turn), X)])
        assert await store.count() == turn + 1
        await store.close()

    for turn in range(5):
        run(main(turn))


async def test_closing_one_store_leaves_the_connections_of_another(server: tuple[str, int]) -> None:
    host, port = server

    one = ChromaVectorStore(dimension=2, host=host, port=port, prefix="one")
    other = ChromaVectorStore(dimension=2, host=f"http://{host}:{port}", prefix="other")
    await one.upsert([Record("a", X)])
    await other.upsert([Record("b", X)])
    await one.close()

    assert await other.count() == 1
    await other.close()


def systems() -> int:
    """Return how many parts Chroma keeps for the clients of this process."""
    shared: Any = SharedSystemClient
    return len(shared._identifier_to_system) + len(shared._identifier_to_refcount)


async def test_nothing_of_a_store_is_left_in_chroma(server: tuple[str, int]) -> None:
    host, port = server
    before = systems()

    store = ChromaVectorStore(dimension=2, host=host, port=port, prefix="left")
    await store.upsert([Record("a", X)])
    await store.close()
    with pytest.raises(StoreUnavailable, match="host is"):
        await ChromaVectorStore(dimension=2, host="ftp://x/y").setup()
    assert systems() == before


@pytest.mark.parametrize("wait_s", [0.0, 0.005, 0.05])
@pytest.mark.parametrize("first", [True, False])
async def test_closing_during_a_call_lets_it_end_and_leaves_no_connections(
    server: tuple[str, int], monkeypatch: pytest.MonkeyPatch, wait_s: float, *, first: bool
) -> None:
    host, port = server
    made: list[httpx.AsyncClient] = []
    usual = httpx.AsyncClient

    def watched(**arguments: Any) -> httpx.AsyncClient:
        made.append(usual(**arguments))
        return made[-1]

    monkeypatch.setattr(clients.httpx, "AsyncClient", watched)

    store = ChromaVectorStore(dimension=2, host=host, port=port, prefix="closing")
    if not first:
        await store.setup()
    calls = [asyncio.create_task(store.upsert([Record(str(n), X)])) for n in range(3)]
    for _ in range(10):  # until each has had its turn
        await asyncio.sleep(0)  # noqa: TID251 - lets others run
    await asyncio.wait(calls, timeout=wait_s)
    await store.close()

    assert await asyncio.gather(*calls) == [None] * 3
    with pytest.raises(StoreClosed):
        await store.count()
    assert [client.is_closed for client in made] == [True]


async def test_clients_of_both_kinds_can_be_given(server: tuple[str, int]) -> None:
    host, port = server

    theirs: Any = await clients.opened(
        clients.Location(path=None, host=host, port=port, client=None)
    )
    store = ChromaVectorStore(dimension=2, client=theirs, prefix="given")
    await store.upsert([Record("a", X)])
    await store.close()

    assert await theirs.heartbeat()
    await clients.closed(theirs)
    with pytest.raises(ValueError, match="one of"):
        ChromaVectorStore(dimension=2, client=theirs, path="x")
    blocking: Any = chromadb.HttpClient(host, port, settings=Settings(anonymized_telemetry=False))
    assert clients.Location(path=None, host=None, port=1, client=blocking).blocks
    blocking._server._session.close()


async def test_a_server_that_is_not_there_is_unavailable_and_may_come_back() -> None:
    store = ChromaVectorStore(dimension=2, host="127.0.0.1", port=9)
    with pytest.raises(StoreUnavailable, match="cannot be reached") as failure:
        await store.setup()
    assert failure.value.retryable
    await store.close()


@pytest.mark.parametrize(
    ("reply", "status", "retryable"),
    [
        (http("200 OK", b"<html>"), None, False),
        (http("401 Unauthorized", b"{}"), 401, False),
        (http("429 Too Many", b'{"error": "RateLimitError", "message": "secret"}'), 429, True),
        (http("500 Internal", b'{"error": "InternalError", "message": "secret"}'), 500, True),
    ],
)
async def test_what_another_server_answers_is_unavailable(
    reply: bytes, status: int | None, *, retryable: bool
) -> None:
    async with answering(reply) as port:
        store = ChromaVectorStore(dimension=2, host="127.0.0.1", port=port)
        with pytest.raises(StoreUnavailable) as failure:
            await store.setup()
        assert failure.value.status == status
        assert failure.value.retryable == retryable
        assert "secret" not in str(failure.value)
        await store.close()


async def test_a_server_that_does_not_answer_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients, "TIMEOUT_S", 0.1)

    async with answering(b"") as port:
        store = ChromaVectorStore(dimension=2, host="127.0.0.1", port=port)
        with pytest.raises(StoreUnavailable) as failure:
            await store.setup()
        assert failure.value.retryable
        await store.close()


async def test_an_invalid_host_is_an_error() -> None:
    store = ChromaVectorStore(dimension=2, host="ftp://x/y")
    with pytest.raises(StoreUnavailable, match="host is"):
        await store.setup()


@pytest.mark.parametrize(
    ("error", "status", "retryable"),
    [
        (TimeoutError(), None, True),
        (httpx.ReadError("x"), None, True),
        (RateLimitError("secret"), 429, True),
        (NotFoundError("secret"), 404, False),
        (ValueError("secret"), None, False),
        (Exception("secret"), None, False),
    ],
)
def test_what_chroma_raises_is_store_unavailable(
    error: Exception, status: int | None, *, retryable: bool
) -> None:
    with pytest.raises(StoreUnavailable) as failure, clients.typed_errors():
        raise error

    assert (failure.value.status, failure.value.retryable) == (status, retryable)
    assert "secret" not in str(failure.value)
    assert failure.value.__cause__ is error


def test_a_fault_of_this_library_is_not_taken_for_one_of_chroma() -> None:
    with pytest.raises(KeyError), clients.typed_errors():
        raise KeyError("x")


async def test_a_collection_that_is_deleted_again_and_again_is_an_error() -> None:
    class Gone:
        """A collection that is deleted before it can be used."""

        def __init__(self) -> None:
            self.metadata = {"lib:dimension": 2, "lib:namespace": "", "lib:prefix": "lib"}
            self.configuration_json = {"hnsw": {"space": "cosine"}}

        def __getattr__(self, name: str) -> Any:
            raise NotFoundError("gone")

    class Client:
        def get_max_batch_size(self) -> int:
            return 10

        def list_collections(self, *_: Any) -> list[Any]:
            return [Gone()]

        def get_or_create_collection(self, *_: Any, **__: Any) -> Any:
            return Gone()

        def get_collection(self, *_: Any, **__: Any) -> Any:
            return Gone()

    store = ChromaVectorStore(dimension=2, client=Client())
    assert await store.namespaces() == []
    with pytest.raises(StoreUnavailable, match="keeps deleting") as failure:
        await store.upsert([Record("a", X)])
    assert failure.value.retryable
    with pytest.raises(StoreUnavailable, match="keeps deleting"):
        await store.count()

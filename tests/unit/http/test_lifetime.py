"""Bytes that a server sends after its answer never answer the next request."""

import asyncio
import json
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import httpx2
import pytest

from fakes.raw_server import raw_server
from lib.errors import RemoteError
from lib.http.lifetime import watch

from .http_kit import make_client

TLS: Final = Path(__file__).parents[2] / "data" / "builtin" / "tls"
POISON: Final = b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n"poison"'


def answer(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def padded(size: int) -> bytes:
    """Return an answer that takes so many bytes on its way."""
    bare = answer(b"")
    length = size - len(bare) - len(str(size)) + 1
    whole = answer(b'"' + b"x" * (length - 2) + b'"')
    assert len(whole) == size
    return whole


CHUNKED: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
SURPLUS: Final[dict[str, bytes]] = {
    "with the end of the answer": answer(b'"first"') + POISON,
    "a part of an answer": answer(b'"first"') + POISON[:10],
    "an interim answer": answer(b'"first"') + b"HTTP/1.1 103 Hint\r\n\r\n",
    "after an answer without content": b"HTTP/1.1 204 None\r\n\r\n" + POISON,
    "after chunks": CHUNKED + b'\r\n7\r\n"first"\r\n0\r\n\r\n' + POISON,
    "after trailers": CHUNKED + b'\r\n7\r\n"first"\r\n0\r\nX: 1\r\n\r\n' + POISON,
    "two ways to find the end": CHUNKED + b'Content-Length: 7\r\n\r\n7\r\n"first"\r\n0\r\n\r\n',
    "an empty line": answer(b'"first"') + b"\r\n",
    "after all that one read returns": padded(64 * 1024) + POISON,
    "after all that two reads return": padded(128 * 1024) + POISON,
}


class Server:
    """Answers the first request of a connection with some bytes, and further ones rightly."""

    def __init__(self, first: bytes) -> None:
        self._first = first
        self.connections = 0
        self.paths: list[str] = []

        self.port = 0

    async def serve(self, context: ssl.SSLContext | None) -> AsyncExitStack:
        serving = AsyncExitStack()
        self.port = await serving.enter_async_context(raw_server(self.accept, context=context))
        return serving

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = 0
        while head := await reader.readuntil(b"\r\n\r\n"):
            path = head.split(b" ")[1].decode()
            self.paths.append(path)
            number += 1
            writer.write(self._first if number == 1 else answer(json.dumps(path).encode()))
            await writer.drain()


async def served(
    first: bytes, *, secure: bool = False, **options: Callable[[], Any]
) -> tuple[list[str], int]:
    """Return what three requests were answered with, and over how many connections."""
    server = Server(first)
    context = trust = None
    if secure:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS / "good.pem")
        trust = ssl.create_default_context(cafile=TLS / "authority.pem")
        trust.check_hostname = False

    async def main() -> list[str]:
        made = {name: make() for name, make in options.items()}
        if trust is not None:
            made["transport"] = httpx2.AsyncHTTPTransport(verify=trust)
        shared = make_client(**made, max_bytes=1_000_000)
        serving = await server.serve(context)
        answers: list[str] = []
        for path in ("/1", "/2", "/3"):
            url = f"{'https' if secure else 'http'}://127.0.0.1:{server.port}{path}"
            async with shared.request("GET", url, {}) as got:
                answers.append((await got.read()).decode())
        await shared.aclose()
        if "http" in made:
            await made["http"].aclose()
        await serving.aclose()
        return answers

    return await main(), server.connections


async def test_nothing_that_came_ahead_answers_a_later_request() -> None:
    wrong: list[str] = []
    for name, first in SURPLUS.items():
        for secure in (False, True):
            answers, connections = await served(first, secure=secure)
            # Each connection begins with the same answer, and all of them are given up.
            if len(set(answers)) != 1 or "poison" in answers[0] or connections != 3:
                wrong.append(f"{name}, TLS {secure}: {[one[:12] for one in answers]}")

    assert not wrong


@pytest.mark.parametrize("secure", [False, True])
async def test_a_connection_on_which_nothing_is_left_serves_again(secure: bool) -> None:
    whole = [answer(b'"/1"'), CHUNKED + b'\r\n4\r\n"/1"\r\n0\r\n\r\n', padded(64 * 1024)]
    for first in whole:
        answers, connections = await served(first, secure=secure)

        assert answers[1:] == ['"/2"', '"/3"']
        assert connections == 1


async def test_a_callers_client_is_watched_as_well() -> None:
    first = SURPLUS["with the end of the answer"]

    answers, connections = await served(first, http=httpx2.AsyncClient)

    assert (answers, connections) == (['"first"'] * 3, 3)


async def test_a_proxy_of_the_environment_is_watched_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(SURPLUS["with the end of the answer"])

    serving = await server.serve(None)
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.port}")
    shared = make_client()
    answers: list[bytes] = []
    for path in ("1", "2"):
        async with shared.request("GET", f"http://srv.test/{path}", {}) as got:
            answers.append(await got.read())
    await shared.aclose()
    await serving.aclose()
    assert answers == [b'"first"'] * 2
    assert server.connections == 2


@pytest.mark.parametrize("package", [httpx, httpx2])
async def test_drivers_of_stores_are_watched_by_a_hook(package: Any) -> None:
    server = Server(SURPLUS["with the end of the answer"])

    serving = await server.serve(None)
    async with package.AsyncClient(event_hooks={"response": [watch]}) as client:
        answers = [await client.get(f"http://127.0.0.1:{server.port}/{n}") for n in (1, 2)]
    await serving.aclose()
    assert ([answer.text for answer in answers], server.connections) == (['"first"'] * 2, 2)


async def test_a_connection_with_an_unknown_parser_serves_once() -> None:
    class Network:
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1
            raise OSError

    network = Network()
    transport = httpx2.MockTransport(
        lambda _: httpx2.Response(
            200, stream=httpx2.ByteStream(b"{}"), extensions={"network_stream": network}
        )
    )

    async with make_client(transport=transport).request("GET", "http://h/", {}) as got:
        assert await got.read() == b"{}"
    assert network.closed == 1


async def test_a_call_that_is_cancelled_at_the_end_of_its_answer_gives_its_connection_back() -> (
    None
):
    server = Server(answer(b'"/1"'))

    transport = httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=1))
    shared = make_client(transport=transport)
    serving = await server.serve(None)
    url = f"http://127.0.0.1:{server.port}"

    async def embed(path: str) -> bytes:
        async with shared.request("GET", url + path, {}) as got:
            return await got.read()

    for turns in range(5, 60):
        task = asyncio.create_task(embed("/1"))
        for _ in range(turns):
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the event loop
        task.cancel()
        await asyncio.wait([task])
    assert json.loads(await embed("/2")) in {"/1", "/2"}
    await shared.aclose()
    await serving.aclose()


async def test_an_answer_that_is_left_before_its_end_closes_its_connection() -> None:
    server = Server(answer(b"x" * 500_000))

    shared = make_client(max_bytes=10)
    serving = await server.serve(None)
    for _ in range(2):
        with pytest.raises(RemoteError):
            async with shared.request("GET", f"http://127.0.0.1:{server.port}/", {}) as got:
                await got.read()
    await shared.aclose()
    await serving.aclose()
    assert server.connections == 2

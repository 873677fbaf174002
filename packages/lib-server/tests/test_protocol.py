"""Connections of clients that send or read too slowly, or without an end."""

import asyncio
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from server_kit import echo_agent, serving
from uvicorn.server import ServerState

from lib_server import Limits, Server
from lib_server.protocol import LINGER_S, BoundedProtocol
from lib_server.serve import make_uvicorn

POST = b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@asynccontextmanager
async def connected(port: int) -> AsyncGenerator[tuple[StreamReader, StreamWriter]]:
    """Open a connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def all_of(reader: StreamReader) -> bytes:
    """Return what comes until the server closes, at the latest in minutes."""
    async with asyncio.timeout(120):
        return await reader.read()


async def send_for_ever(writer: StreamWriter, content: bytes) -> None:
    """Send until the server closes, at the latest in minutes."""
    async with asyncio.timeout(120):
        while True:
            writer.write(content)
            await writer.drain()
            await asyncio.sleep(0)  # noqa: TID251 - lets the server read


class Timers:
    """A loop whose timers a test moves by hand."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._now = loop, 0.0
        self._timers: list[tuple[asyncio.TimerHandle, Callable[[], None]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        return self._now

    def call_later(self, delay: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self._now + delay, call, (), self._loop)
        self._timers.append((handle, call))
        return handle

    def advance(self, seconds: float) -> None:
        self._now += seconds
        due = [timer for timer in self._timers if timer[0].when() <= self._now]
        self._timers = [timer for timer in self._timers if timer not in due]
        for handle, call in due:
            if not handle.cancelled():
                call()


class Connection(NamedTuple):
    """A connection in whose server time stands still: what is sent arrives at once."""

    send: Callable[[bytes], None]
    reader: StreamReader
    timers: Timers


@asynccontextmanager
async def connection(limits: Limits) -> AsyncGenerator[Connection]:
    """Connect to a server."""
    timers = Timers(asyncio.get_running_loop())
    async with Server(echo_agent(), limits=limits) as server:
        config = make_uvicorn(server).config
        config.load()
        assert isinstance(config.http, type)
        assert issubclass(config.http, BoundedProtocol)
        protocol = config.http(
            config=config, server_state=ServerState(), app_state={}, _loop=timers
        )
        ours, theirs = socket.socketpair()
        await timers.connect_accepted_socket(lambda: protocol, theirs)
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            yield Connection(protocol.data_received, reader, timers)
        finally:
            writer.close()


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b""),
        (b"\r\n\r\n", b"HTTP/1.1 408 "),
        (b"GET /heal", b"HTTP/1.1 408 "),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: b", b"HTTP/1.1 408 "),
        (POST + b"Content-Length: 100\r\n\r\n{", b"HTTP/1.1 408 "),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", b"HTTP/1.1 408 "),
    ],
)
async def test_a_request_that_does_not_arrive_in_time_is_refused(
    sent: bytes, answer: bytes
) -> None:
    async with connection(Limits(head_s=5, body_s=5)) as (send, reader, timers):
        if sent:
            send(sent)
        timers.advance(4.9)
        await asyncio.sleep(0)  # noqa: TID251 - lets the server answer, if it does
        assert not reader.at_eof()
        timers.advance(0.2)
        got = await all_of(reader)

    assert got.startswith(answer)
    assert bool(got) == bool(answer)
    if answer:
        assert b"application/problem+json" in got
        assert b'"code": "timeout"' in got


@pytest.mark.parametrize(("pause_s", "answer"), [(1, b"201 "), (1.5, b"408 ")])
async def test_a_body_may_take_long_if_it_keeps_coming(pause_s: float, answer: bytes) -> None:
    body = b'{"input": "hi"}'
    async with connection(Limits(body_s=2, body_bytes_s=1)) as (send, reader, timers):
        send(POST + b"Content-Length: %d\r\n\r\n" % len(body))
        for byte in body:
            timers.advance(pause_s)
            send(bytes([byte]))
        got = await reader.readline()

    assert got.startswith(b"HTTP/1.1 " + answer)


async def test_answers_are_sent_at_once_on_a_socket_that_was_bound_before() -> None:
    async with serving(Server(echo_agent())) as up, connected(up.port) as (reader, writer):
        writer.write(GET)
        await reader.readline()
        for protocol in up.running.server_state.connections:
            assert isinstance(protocol, BoundedProtocol)
            accepted = protocol.transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


class Written(asyncio.Transport):
    """A transport that keeps what is written to it, write by write."""

    def __init__(self, accepted: socket.socket) -> None:
        super().__init__({"socket": accepted})
        self.writes: list[bytes] = []
        self.done = asyncio.Event()

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.done.is_set()

    def close(self) -> None:
        self.done.set()


@pytest.mark.parametrize(
    ("request_line", "writes"),
    [(b"GET /healthz HTTP/1.1", 1), (b"HEAD / HTTP/1.1", 1), (b"GET /console/x HTTP/1.1", 1)],
)
async def test_the_head_of_an_answer_goes_out_with_its_body(
    request_line: bytes, writes: int
) -> None:
    async with Server(echo_agent()) as server:
        config = make_uvicorn(server).config
        config.load()
        assert isinstance(config.http, type)
        assert issubclass(config.http, BoundedProtocol)
        protocol = config.http(config=config, server_state=ServerState(), app_state={})
        ours, theirs = socket.socketpair()
        with ours, theirs:
            transport = Written(theirs)
            protocol.connection_made(transport)
            protocol.data_received(
                request_line + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
            async with asyncio.timeout(120):
                await transport.done.wait()
            protocol.connection_lost(None)

    assert len(transport.writes) == writes
    head, _, body = transport.writes[0].partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 ")
    assert bool(body) == request_line.startswith(b"GET")


async def test_headers_without_an_end_are_refused() -> None:
    async with (
        serving(Server(echo_agent(), limits=Limits(header_bytes=4096))) as up,
        connected(up.port) as (reader, writer),
    ):
        writer.write(b"GET /healthz HTTP/1.1\r\nX-Long: ")
        for _ in range(100):
            writer.write(b"x" * 100)
        got = await all_of(reader)

    assert got.startswith(b"HTTP/1.1 431 ")
    assert b'"code": "headers_too_large"' in got


async def test_a_second_request_on_a_connection_must_arrive_too() -> None:
    async with connection(Limits(head_s=5)) as (send, reader, timers):
        send(GET + GET)
        await reader.readuntil(b'"ok"')
        await reader.readuntil(b'"ok"')
        send(b"GET /healthz HT")
        timers.advance(5)
        rest = await all_of(reader)

    assert b"HTTP/1.1 408 " in rest


async def test_a_client_that_reads_nothing_is_cut_off() -> None:
    """Its answers fill the buffers; then the connection is aborted, not kept for ever."""
    async with (
        serving(Server(echo_agent(), limits=Limits(stalled_s=0.05))) as up,
        connected(up.port) as (_, writer),
    ):
        document = b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with pytest.raises(ConnectionError):
            await send_for_ever(writer, document)


async def test_the_rest_of_a_body_that_was_refused_is_not_read_for_ever() -> None:
    async with connection(Limits(body_bytes=100)) as (send, reader, timers):
        send(POST + b"Content-Length: 99999999999\r\n\r\n")
        first = await reader.readuntil(b"}")
        for _ in range(9):
            send(b"x" * 1000)
            timers.advance(LINGER_S / 10)
            await asyncio.sleep(0)  # noqa: TID251 - lets the server close, if it does
            assert not reader.at_eof()
        timers.advance(LINGER_S / 10)
        rest = await all_of(reader)

    assert first.startswith(b"HTTP/1.1 413 ")
    assert rest == b""


async def test_requests_on_connections_above_their_number_are_refused() -> None:
    async with serving(Server(echo_agent(), limits=Limits(connections=3))) as up:
        async with (
            connected(up.port),
            connected(up.port),
            connected(up.port) as (reader, writer),
        ):
            writer.write(GET)
            refused = await all_of(reader)
        while (later := await up.client.get("/healthz")).status_code != 200:
            pass  # until the server has seen that they are closed

    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 5" in refused
    assert b'"code": "overloaded"' in refused
    assert later.json()["status"] == "ok"

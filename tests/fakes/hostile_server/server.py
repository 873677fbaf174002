"""The server: reads a request's head, and lets a scenario do what it likes with the socket."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from fakes.hostile_server.scenarios import SCENARIOS, answer, ends_by_itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A request that came.

    Attributes:
        scheme: "http" or "https".
        target: path and query as they stood in the request line.
        headers: by name in lower case; a name that came twice has both values.
        server_name: the name in the TLS handshake (SNI), None without TLS or without a name.
        connection: the number of the connection, from 0.
    """

    scheme: str
    target: str
    headers: Mapping[str, str]
    server_name: str | None
    connection: int

    @property
    def url(self) -> str:
        """The URL that was requested, by its Host header."""
        return f"{self.scheme}://{self.headers.get('host', '')}{self.target}"


class HostileServer:
    """Serves until its block ends.

    Attributes:
        redirects: where each URL redirects to; headers of an answer that is no scenario.
        status: of a redirect.
        requests: what came, in order.
        http_port: where http is served, https_port where https is, if a certificate was given.
    """

    def __init__(
        self,
        *,
        redirects: Mapping[str, str] | None = None,
        status: int = 302,
        certificate: Path | None = None,
    ) -> None:
        """Prepare.

        Args:
            redirects: URLs by URL, both as they would be without this server's ports.
            status: of a redirect.
            certificate: a file with the key and the certificate of https.
        """
        self.redirects, self.status = dict(redirects or {}), status
        self._certificate = certificate
        self.requests: list[Received] = []
        self.http_port = self.https_port = 0
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._names: dict[int, str | None] = {}
        self._connections = 0

    async def __aenter__(self) -> Self:
        self.http_port = await self._serve(None)
        if self._certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.set_alpn_protocols(["h2", "http/1.1"])  # a client that offers h2 gets it
            await asyncio.to_thread(context.load_cert_chain, self._certificate)
            context.sni_callback = self._note_name
            self.https_port = await self._serve(context)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, context: ssl.SSLContext | None) -> int:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=context)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def _note_name(self, ssl_object: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        self._names[id(ssl_object)] = name

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        number = self._connections
        self._connections += 1
        try:
            # Python 3.11 logs a connection whose task was cancelled, as `__aexit__` does.
            quiet = (asyncio.CancelledError, asyncio.IncompleteReadError)
            with suppress(ConnectionError, ssl.SSLError, *quiet):
                while await self._answer(reader, writer, number):
                    pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> bool:
        """Answer one request, and tell whether the connection goes on."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers: dict[str, str] = {}
        for line in head[1:-2]:
            name, _, value = line.partition(":")
            sent = headers.get(name.lower())
            headers[name.lower()] = value.strip() if sent is None else f"{sent}, {value.strip()}"
        ssl_object = writer.get_extra_info("ssl_object")
        received = Received(
            scheme="http" if ssl_object is None else "https",
            target=head[0].split(" ")[1],
            headers=headers,
            server_name=self._names.get(id(ssl_object)),
            connection=number,
        )
        self.requests.append(received)
        location = self.redirects.get(received.url)
        if location is not None:
            writer.write(
                f"HTTP/1.1 {self.status} Moved\r\nLocation: {location}\r\n"
                "Set-Cookie: hop=1\r\nContent-Length: 7\r\n\r\nnot me\n".encode("latin-1")
            )
            await writer.drain()
            return True
        path = received.target.partition("?")[0]
        name = path.rpartition("/")[2] if "://" in path else path.strip("/")  # as to a proxy
        scenario = SCENARIOS.get(name)
        if scenario is None:
            writer.write(answer(b"a page"))
            await writer.drain()
            return True
        if isinstance(scenario, bytes):
            writer.write(scenario)
        else:
            await scenario(writer)
        await writer.drain()
        return not isinstance(scenario, bytes) or ends_by_itself(scenario)


@contextmanager
def blackhole() -> Generator[int]:
    """Give the port of a socket that never takes a connection, and never refuses one."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port: int = listener.getsockname()[1]
        for filler in (first, second):  # the queue has room for one, and Linux counts from 0
            filler.settimeout(0)
            filler.connect_ex(("127.0.0.1", port))
        yield port

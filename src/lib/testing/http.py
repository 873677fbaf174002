"""A small HTTP/1.1 server for tests: a real socket, connections that live on, a few routes.

Source: RFC 9110 and RFC 9112, as far as clients of stand-ins go.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, cast
from urllib.parse import parse_qs, unquote

_WINDOW_BITS: Final[Mapping[str, int]] = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that a test server received.

    Attributes:
        path: without the query, percent signs decoded.
        query: the query's values by name.
        headers: by name in lower case.
        content: as it came over the wire, so maybe compressed.
        encoding: how it is compressed: "gzip", "deflate", or "" where it is not.
    """

    method: str
    path: str
    query: Mapping[str, list[str]] = field(default_factory=dict[str, list[str]])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    content: bytes = b""

    @property
    def encoding(self) -> str:
        return self.headers.get("content-encoding", "").lower().replace("identity", "")

    @property
    def body(self) -> bytes:
        """The content, decompressed.

        Raises:
            ValueError: it is not what its encoding says, or that is not known here.
        """
        if not self.encoding:
            return self.content
        if self.encoding not in _WINDOW_BITS:
            raise ValueError(f"content-encoding {self.encoding!r} is not gzip or deflate")
        reader = zlib.decompressobj(_WINDOW_BITS[self.encoding])
        try:
            body = reader.decompress(self.content)
        except zlib.error as error:
            raise ValueError(f"the content is not {self.encoding}") from error
        if not reader.eof:
            raise ValueError(f"the content is not all of its {self.encoding}")
        return body

    def json(self) -> Any:
        """Return the content as JSON; a ValueError where it is not."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer.

    Attributes:
        headers: beside the framing ones.
        keep: the spans of the request are kept whatever the status says.
        cut: the connection breaks after the body, which was announced to be longer.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    keep: bool = False
    cut: bool = False

    @classmethod
    def of(cls, value: Any, status: int = 200) -> Response:
        """Return an answer of JSON."""
        headers = {"content-type": "application/json"}
        return cls(status=status, headers=headers, body=json.dumps(value).encode())


@dataclass(frozen=True, slots=True)
class Hang:
    """No answer until the client goes away; whether its spans are kept nevertheless."""

    keep: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection is closed without an answer; whether the spans are kept nevertheless."""

    keep: bool = False


Reaction: TypeAlias = Response | Hang | Drop
Handler: TypeAlias = Callable[[Request], Reaction | Awaitable[Reaction]]


class HTTPServer:
    """Serves `routes`: what answers, by method and the beginning of the path.

    The longest beginning wins. A path without a route is a 404, one with another method a 405. An
    error of a handler closes the connection and is raised when the server is left.

    Attributes:
        routes: may be changed at any time.
        requests: what came, oldest first.
        connections: how many were opened.
    """

    def __init__(
        self, routes: Mapping[tuple[str, str], Handler] | None = None, *, port: int = 0
    ) -> None:
        """Take the routes, and the port of a server that was here before."""
        self.routes: dict[tuple[str, str], Handler] = dict(routes or {})
        self.requests: list[Request] = []
        self.connections: int = 0
        self._port = port
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._errors: list[BaseException] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        server = cast(asyncio.Server, self._server)
        server.close()
        for writer in self._serving.values():
            writer.close()  # which ends their tasks
        await asyncio.gather(*self._serving, return_exceptions=True)
        await server.wait_closed()
        if error is None and self._errors:
            raise self._errors[0]

    @property
    def port(self) -> int:
        return cast(asyncio.Server, self._server).sockets[0].getsockname()[1]

    @property
    def base_url(self) -> str:
        """The address, without a path."""
        return f"http://127.0.0.1:{self.port}"

    # -- one connection ------------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving[task] = writer
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._serving.pop(task).close()
        if not task.cancelled() and (error := task.exception()):
            self._errors.append(error)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._exchange(reader, writer):
                pass

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; return whether the connection can serve another."""
        request = await _receive(reader)
        self.requests.append(request)
        answer = self._handler(request)(request)
        if not isinstance(answer, Response | Hang | Drop):
            answer = await answer
        if isinstance(answer, Response):
            writer.write(_head(answer) + answer.body)
            await writer.drain()
            closing = request.headers.get("connection", "").lower() == "close"
            return not (answer.cut or closing)
        if isinstance(answer, Hang):
            await reader.read()
        return False

    def _handler(self, request: Request) -> Handler:
        fits = [route for route in self.routes if request.path.startswith(route[1])]
        named = [route for route in fits if route[0] == request.method]
        if named:
            return self.routes[max(named, key=lambda route: len(route[1]))]
        refusal = (405, "Method Not Allowed") if fits else (404, "Not Found")
        return lambda _: Response.of({"detail": refusal[1]}, refusal[0])


async def _receive(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    pairs = [line.partition(":") for line in lines]
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    method, target, _ = first.split(" ")
    path, _, query = target.partition("?")
    if headers.get("transfer-encoding", "").lower() == "chunked":
        content = await _chunks(reader)
    else:
        content = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(
        method=method,
        path=unquote(path),
        query=parse_qs(query, keep_blank_values=True),
        headers=headers,
        content=content,
    )


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    content = b""
    while size := int((await reader.readline()).partition(b";")[0], 16):
        content += await reader.readexactly(size)
        await reader.readline()
    while (await reader.readline()).strip():
        pass  # trailers
    return content


def _head(answer: Response) -> bytes:
    length = len(answer.body) + answer.cut
    lines = [f"{name}: {value}" for name, value in answer.headers.items()]
    phrase = HTTPStatus(answer.status).phrase
    first = f"HTTP/1.1 {answer.status} {phrase}"
    return "\r\n".join([first, f"content-length: {length}", *lines, "", ""]).encode("latin-1")

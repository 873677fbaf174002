"""HTTP connections that cost a bounded amount: time and bytes of what comes, time of what goes.

uvicorn bounds how long a connection may be idle between requests, and nothing else. Here a request
must arrive: its head within `head_s` and `header_bytes`, its body at a rate; and an answer must be
read, at least a part of it every `stalled_s`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from http import HTTPStatus
from typing import Any, ClassVar, Final, Literal

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lib_server.limits import Limits
from lib_server.problems import MEDIA_TYPE, Problem

_log: Final = logging.getLogger("lib_server")

RETRY_S: Final = 5
LINGER_S: Final = 5.0
"""How long a body is still read, and dropped, after its request was answered."""
_JOINED_BYTES: Final = 65_536
"""Longer parts of a body are not copied behind their head."""


async def _overloaded(scope: Any, receive: Any, send: Any) -> None:
    detail = "too many connections are open: try another server, or again"
    problem = Problem("overloaded", detail, headers={"connection": "close"}, retry_after_s=RETRY_S)
    await problem.response(path=scope["path"])(scope, receive, send)


class _Answering:
    """A transport to which the head of an answer and the first part of its body go in one write.

    uvicorn writes them one after the other, and a write is the dearest part of a short answer. A
    head that has no body yet is written in the next turn of the loop.
    """

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head: bytes | None = None  # b"" once it is written

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def write(self, data: bytes) -> None:
        if self._head is None:
            self._head = data
            self._loop.call_soon(self._write_head)
        elif self._head and len(data) <= _JOINED_BYTES:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        else:
            self._write_head()
            self._transport.write(data)

    def close(self) -> None:
        self._write_head()
        self._transport.close()

    def _write_head(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Its timer runs while a request is incomplete."""

    __slots__ = ("_head_bytes", "_part", "_timer", "_unread", "_until")

    limits: ClassVar[Limits]

    def __init__(self, *args: Any, **options: Any) -> None:
        """Begin without a request; see uvicorn."""
        super().__init__(*args, **options)
        self._part: Literal["head", "body"] | None = "head"
        self._head_bytes = 0
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    # -- what comes ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        accepted: socket.socket = transport.get_extra_info("socket")
        if accepted.family != socket.AF_UNIX:  # asyncio sets it on sockets that it has bound only
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._start_timer(self.limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        self._stop_timer()
        self._stop_unread()

    def data_received(self, data: bytes) -> None:
        """Take bytes, and see that the rest comes in time."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._part is None:
            self._stop_timer()
        elif self._timer is None:
            self._start_timer(self._allowed_s())
        if self._part == "head" and self._head_bytes > self.limits.header_bytes:
            detail = f"expected a head of at most {self.limits.header_bytes} bytes"
            self._refuse(Problem("headers_too_large", detail))

    def _allowed_s(self) -> float:
        return self.limits.head_s if self._part == "head" else self.limits.body_s

    def on_message_begin(self) -> None:
        """Begin with a request."""
        super().on_message_begin()
        self._part = "head"
        self._stop_timer()

    def on_headers_complete(self) -> None:
        """Go on with its body."""
        self._part, self._head_bytes = "body", 0
        self._stop_timer()
        if len(self.connections) > self.limits.connections:
            self.app = _overloaded
        super().on_headers_complete()
        cycle: Any = self.cycle
        cycle.transport = _Answering(self.transport, self.loop)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body, which earns time for the next one."""
        if not self.cycle.response_complete:
            self._until += len(body) / self.limits.body_bytes_s
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Have all of a request."""
        self._part, self._head_bytes = None, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Have answered; what is still to come of the body is of no use."""
        super().on_response_complete()
        if self._part == "body":
            self._stop_timer()
            self._start_timer(LINGER_S)

    # -- its timer -------------------------------------------------------------------------

    def _start_timer(self, seconds: float) -> None:
        self._until = self.loop.time() + seconds
        self._timer = self.loop.call_later(seconds, self._look)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Refuse a request whose time is over."""
        self._timer = None
        left = self._until - self.loop.time()
        if left > 0:
            self._timer = self.loop.call_later(left, self._look)
        elif self._part == "body":
            detail = f"expected {self.limits.body_bytes_s} bytes of the body a second"
            self._refuse(Problem("timeout", detail))
        elif self._part == "head" and self._head_bytes:
            detail = f"expected the headers within {self.limits.head_s:g} seconds"
            self._refuse(Problem("timeout", detail))
        else:  # nothing was sent
            self.transport.close()

    def _refuse(self, problem: Problem) -> None:
        """Answer outside of the application, which has no whole request, and close."""
        _log.info("a connection is closed: %s", problem.code)
        cycle: Any = self.cycle  # None before the first request
        if cycle is not None and cycle.response_started and not cycle.response_complete:
            self.transport.abort()
            return
        if self._part == "body" and cycle is not None and cycle.response_complete:
            self.transport.close()
            return
        body = json.dumps(problem.body()).encode()
        status = HTTPStatus(problem.status)
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            f"content-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    # -- what goes -------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Wait for a client that does not read, for a while."""
        super().pause_writing()
        self._start_unread()

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        self._stop_unread()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, and give its client so long to read the last answer."""
        super().timeout_keep_alive_handler()
        self._start_unread()

    def _start_unread(self) -> None:
        self._stop_unread()
        self._unread = self.loop.call_later(self.limits.stalled_s, self._cut)

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _cut(self) -> None:
        _log.info("a connection is cut: its client has read nothing for a while")
        self.transport.abort()


def bounded_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """Return the class of connections that are held to these limits."""
    return type("BoundedProtocol", (BoundedProtocol,), {"limits": limits})

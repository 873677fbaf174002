"""Bounds what a request may bring: header lines, and bytes of its body."""

from __future__ import annotations

from collections.abc import Awaitable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lib_server.limits import Limits
from lib_server.problems import Problem
from lib_server.routing import route_path


class SizeLimit:
    """Refuses a body above its ceiling, before it is read where its length is declared."""

    def __init__(self, app: ASGIApp, *, limits: Limits) -> None:
        """Wrap an application.

        Args:
            app: what is inside.
            limits: the ceilings.
        """
        self._app = app
        self._limits = limits

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request; no frame stays for as long as the answer takes."""
        ceiling = self._ceiling(scope)
        read = 0

        async def bounded() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > ceiling:
                raise _too_large(ceiling)
            return message

        return self._app(scope, bounded, send)

    def _ceiling(self, scope: Scope) -> int:
        """Return how many bytes the body may have.

        Raises:
            Problem: `headers_too_large`, or `too_large` by what the request declares.
        """
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if len(headers) > self._limits.headers:
            detail = f"expected {self._limits.headers} headers at most, got {len(headers)}"
            raise Problem("headers_too_large", detail)
        if sum(len(name) + len(value) for name, value in headers) > self._limits.header_bytes:
            detail = f"expected {self._limits.header_bytes} bytes of headers at most"
            raise Problem("headers_too_large", detail)
        blobs = route_path(scope) == "/v1/blobs"
        ceiling = self._limits.blob_bytes if blobs else self._limits.body_bytes
        declared = next((value for name, value in headers if name == b"content-length"), b"0")
        if declared.isdigit() and int(declared[:20]) > ceiling:
            raise _too_large(ceiling)
        return ceiling


def _too_large(ceiling: int) -> Problem:
    return Problem("too_large", f"expected a body of at most {ceiling} bytes")

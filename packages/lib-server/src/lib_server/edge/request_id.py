"""Gives each request an id, which its answer, its log line and its problems carry."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lib_server.routing import Context, set_context

_HEADER: Final = b"x-request-id"
_ACCEPTED: Final = re.compile(rb"[A-Za-z0-9_.-]{8,64}")


class RequestId:
    """Takes the id of a proxy before the server, or makes one."""

    def __init__(self, app: ASGIApp, *, new_id: Callable[[], str]) -> None:
        """Wrap an application.

        Args:
            app: what is inside.
            new_id: makes ids.
        """
        self._app = app
        self._new_id = new_id

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request; no frame stays for as long as the answer takes."""
        request_id = self._request_id(scope)
        context = Context(request_id=request_id, headers=[(_HEADER, request_id.encode())])
        set_context(scope, context)

        async def with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *context.headers]
            await send(message)

        return self._app(scope, receive, with_id)

    def _request_id(self, scope: Scope) -> str:
        sent = next((value for name, value in scope["headers"] if name == _HEADER), None)
        if sent is not None and _ACCEPTED.fullmatch(sent):
            return str(sent, "ascii")
        return f"req_{self._new_id()}"

"""Writes a line for each answer; no secret, no query, no content."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from lib_server.routing import context_of

_log: Final = logging.getLogger("lib_server.access")


class AccessLog:
    """Logs method, route, status, problem, seconds, request id, tenant and key id of each request.

    They stand in the message, and as attributes of the record for a formatter that writes JSON.
    """

    def __init__(self, app: ASGIApp, *, monotonic: Callable[[], float]) -> None:
        """Wrap an application.

        Args:
            app: what is inside.
            monotonic: returns seconds that only grow.
        """
        self._app = app
        self._monotonic = monotonic

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request."""
        logged = _log.isEnabledFor(logging.INFO)
        return (self._serve if logged else self._app)(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = self._monotonic()
        try:
            await self._app(scope, receive, send)
        finally:
            self._write(scope, self._monotonic() - began)

    def _write(self, scope: Scope, seconds: float) -> None:
        context = context_of(scope)
        principal = context.principal
        facts = {
            "method": scope["method"],
            "route": context.route or "-",
            "status": context.status,
            "problem": context.problem or "-",
            "seconds": round(seconds, 6),
            "request_id": context.request_id,
            "tenant": (principal and principal.tenant) or "-",
            "key_id": (principal and principal.key_id) or "-",
        }
        line = " ".join(f"{name}={value}" for name, value in facts.items())
        _log.info("%s", line, extra=facts)

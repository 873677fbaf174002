"""Counts answers, and the time until each begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lib_server.metrics import Metrics
from lib_server.routing import Context, context_of

_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_NO_ROUTE: Final = "-"
_GONE: Final = 499


class Measured:
    """Counts requests by method, route and status; a route is a template, never a path."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, monotonic: Callable[[], float]) -> None:
        """Wrap an application.

        Args:
            app: what is inside.
            metrics: of the server.
            monotonic: returns seconds that only grow.
        """
        self._app = app
        self._metrics = metrics
        self._monotonic = monotonic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        context, began = context_of(scope), self._monotonic()

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.status = message["status"]
                self._count(scope["method"], context, self._monotonic() - began)
            await send(message)

        try:
            await self._app(scope, receive, counting)
        finally:
            if not context.status:
                context.status = _GONE
                self._count(scope["method"], context, self._monotonic() - began)

    def _count(self, method: str, context: Context, seconds: float) -> None:
        metrics, route = self._metrics, context.route or _NO_ROUTE
        method = method if method in _METHODS else "other"
        metrics.requests.add(method, route, str(context.status))
        metrics.request_seconds.observe(seconds, method, route)
        if context.status == 429:  # noqa: PLR2004 - too many requests
            metrics.refused.add(context.problem)

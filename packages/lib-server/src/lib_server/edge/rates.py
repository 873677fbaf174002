"""Counts each request against the rates of its caller, and says what is left of them."""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from lib_server.quotas import Quotas, check_rates, rate_headers
from lib_server.routing import context_of, route_path


class RateLimit:
    """Refuses requests above a rate; paths that need no credentials have none."""

    def __init__(self, app: ASGIApp, *, quotas: Quotas, open_paths: Collection[str]) -> None:
        """Wrap an application.

        Args:
            app: what is inside.
            quotas: of the server.
            open_paths: paths that need no credentials.
        """
        self._app = app
        self._quotas = quotas
        self._open = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        context = context_of(scope)
        if context.principal is not None and route_path(scope) not in self._open:
            policies = await self._quotas.count_request(context.principal)
            context.headers += rate_headers(policies)
            check_rates(policies)
        await self._app(scope, receive, send)

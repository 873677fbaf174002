"""Finds the principal of each request, which is the only source of its tenant and user."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from lib_server.auth.principal import (
    SCOPES,
    AuthenticationUnavailable,
    Authenticator,
    Principal,
    Unauthenticated,
)
from lib_server.problems import Problem
from lib_server.routing import context_of, route_path

LOCAL: Final = Principal(key_id="local", scopes=SCOPES)
"""The caller of a server without an authenticator, which serves its own machine only."""


class Authentication:
    """Checks the Authorization header, of every path that is not open."""

    def __init__(
        self, app: ASGIApp, *, authenticator: Authenticator | None, open_paths: Collection[str]
    ) -> None:
        """Wrap an application.

        Args:
            app: what is inside.
            authenticator: finds principals; None lets every caller do everything.
            open_paths: paths that need no credentials.
        """
        self._app = app
        self._authenticator = authenticator
        self._open = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        context = context_of(scope)
        authenticator = self._authenticator
        if authenticator is None:
            context.principal = LOCAL
        elif route_path(scope) not in self._open:
            header = _authorization(scope)
            principal = context.principal = await _principal(authenticator, header)

            async def is_allowed() -> bool:
                try:
                    now = await authenticator.authenticate(header)
                except AuthenticationUnavailable:
                    return True  # as it was at the last check
                except Unauthenticated:
                    return False
                return now.tenant == principal.tenant and now.scopes >= principal.scopes

            context.is_allowed = is_allowed
        await self._app(scope, receive, send)


def _authorization(scope: Scope) -> str | None:
    """Return the one Authorization header, None without one."""
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(found) > 1:
        raise Problem("malformed", "expected one Authorization header")
    return str(found[0], "latin-1") if found else None


async def _principal(authenticator: Authenticator, header: str | None) -> Principal:
    try:
        return await authenticator.authenticate(header)
    except Unauthenticated as error:
        challenge = 'Bearer realm="lib-server"'
        if error.code == "invalid_token":
            challenge += ', error="invalid_token"'
        headers = {"www-authenticate": challenge}
        raise Problem("unauthenticated", str(error), headers=headers) from None
    except AuthenticationUnavailable as error:
        detail = "the credentials could not be checked"
        raise Problem("unavailable", detail, retry_after_s=error.retry_after_s) from None

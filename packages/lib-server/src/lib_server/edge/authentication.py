"""Finds the principal of each request, which is the only source of its tenant and user."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from lib_server.auth.failures import FailureLimit
from lib_server.auth.principal import (
    SCOPES,
    AuthenticationUnavailable,
    Authenticator,
    Principal,
    Unauthenticated,
    issuers_of,
)
from lib_server.problems import Problem
from lib_server.routing import context_of, route_path

METADATA: Final = "/.well-known/oauth-protected-resource"
_RESOURCE: Final = "/mcp"
LOCAL: Final = Principal(key_id="local", scopes=SCOPES)
"""The caller of a server without an authenticator, which serves its own machine only."""


class Authentication:
    """Checks the Authorization header, of every path that is not open."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator | None,
        open_paths: Collection[str],
        on_failure: Callable[[str], None],
    ) -> None:
        """Wrap an application.

        Args:
            app: what is inside.
            authenticator: finds principals; None lets every caller do everything.
            open_paths: paths that need no credentials.
            on_failure: is called with the reason of each refusal, one of few fixed words.
        """
        self._app = app
        self._authenticator = authenticator
        self._open = frozenset(open_paths)
        self._has_issuers = bool(issuers_of(authenticator))
        self._failures = FailureLimit()
        self._on_failure = on_failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["method"] == "OPTIONS":  # sent without credentials, by browsers
            await Response(status_code=204)(scope, receive, send)
            return
        context = context_of(scope)
        authenticator = self._authenticator
        if authenticator is None:
            context.principal = LOCAL
        elif route_path(scope) not in self._open:
            header = _authorization(scope)
            address = (scope.get("client") or ("",))[0]
            metadata = self._metadata_url(scope)
            principal = await self._principal(authenticator, address, header, metadata)
            context.principal = principal

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

    async def _principal(
        self,
        authenticator: Authenticator,
        address: str,
        header: str | None,
        metadata: str | None,
    ) -> Principal:
        """Return the caller, unless its address has sent too many credentials that are refused."""
        wait_s = self._failures.retry_after_s(address, header)
        if wait_s is not None:
            self._on_failure("address")
            detail = "too many credentials from this address were refused"
            raise Problem("rate_limited", detail, retry_after_s=wait_s)
        try:
            principal = await authenticator.authenticate(header)
        except Unauthenticated as error:
            self._on_failure(error.reason)
            self._failures.note_failure(address, header)
            raise _unauthenticated(error, metadata) from None
        except AuthenticationUnavailable as error:
            self._on_failure("unavailable")
            detail = "the credentials could not be checked"
            raise Problem("unavailable", detail, retry_after_s=error.retry_after_s) from None
        self._failures.note_admission(header)
        return principal

    def _metadata_url(self, scope: Scope) -> str | None:
        """Return where a client reads how to get a token, if it can get one for this path."""
        if not self._has_issuers or route_path(scope) != _RESOURCE:
            return None
        return f"{base_url(scope)}{METADATA}{_RESOURCE}"


def base_url(scope: Scope) -> str:
    """Return the URL that the server is reached under, without a path of its own."""
    host = next((str(value, "latin-1") for name, value in scope["headers"] if name == b"host"), "")
    return f"{scope.get('scheme', 'http')}://{host}{scope.get('root_path', '')}"


def _authorization(scope: Scope) -> str | None:
    """Return the one Authorization header, None without one."""
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(found) > 1:
        raise Problem("malformed", "expected one Authorization header")
    return str(found[0], "latin-1") if found else None


def _unauthenticated(error: Unauthenticated, metadata: str | None) -> Problem:
    challenge = 'Bearer realm="lib-server"'
    if metadata is not None:
        challenge += f', resource_metadata="{metadata}"'
    if error.code == "invalid_token":
        challenge += ', error="invalid_token"'
    return Problem("unauthenticated", str(error), headers={"www-authenticate": challenge})

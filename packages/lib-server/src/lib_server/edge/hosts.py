"""Checks Host and Origin, so that a page of another site cannot use a server on this machine.

A name that a foreign DNS server binds to 127.0.0.1 reaches the server under a foreign Host; a
page of another site sends its Origin. Both are refused on every route.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from ipaddress import ip_address
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from lib_server.problems import Problem

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


class HostCheck:
    """Lets only requests to its own names through, and of those only what its own pages send."""

    def __init__(self, app: ASGIApp, *, hosts: Collection[str] | None, local: bool) -> None:
        """Wrap an application.

        Args:
            app: what is inside.
            hosts: the names under which the server is reached, without ports; None for any.
            local: True refuses clients of other machines.
        """
        self._app = app
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._local = local

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request; no frame stays for as long as the answer takes."""
        self._check(scope)
        return self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        """Refuse a request for another host, of another origin or of another machine.

        Raises:
            Problem: `foreign_host` or `foreign_origin`.
        """
        hosts, origins = _values(scope, b"host"), _values(scope, b"origin")
        if len(hosts) != 1 or (self._hosts is not None and _name(hosts[0]) not in self._hosts):
            raise Problem("foreign_host", "expected a Host that this server serves")
        if origins and origins != [f"{scope.get('scheme', 'http')}://{hosts[0]}"]:
            raise Problem("foreign_origin", "expected a request of this server's own pages")
        if self._local and not _is_local(scope.get("client")):
            raise Problem("foreign_host", "without an authenticator this machine only is served")


def _values(scope: Scope, name: bytes) -> list[str]:
    return [str(value, "latin-1") for found, value in scope["headers"] if found == name]


def _name(host: str) -> str:
    """Return the name of a Host header, without its port."""
    name, _, port = host.rpartition(":")
    return (name if name and port.isascii() and port.isdigit() else host).lower()


def _is_local(client: tuple[str, int] | None) -> bool:
    """Return True for a client of this machine, or of a transport without addresses."""
    if client is None:
        return True
    try:
        address = ip_address(client[0])
    except ValueError:
        return True
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_loopback(host: str) -> bool:
    """Return True if a server that listens there is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False

"""Asking through a transport of the caller's, of httpx2 or of the older httpx.

Its connections are not ours, so that the URL itself is rewritten to the checked address. The name
goes into the Host header and into `sni_hostname`, by which TLS is verified. A connection is used
once: a pool that knows it by its address could hand it to another name.
"""

from __future__ import annotations

import importlib
from typing import Any

from lib.tools.builtin.fetch.address import Address, text
from lib.tools.builtin.fetch.answer import Answer, Headers
from lib.tools.builtin.fetch.resolver import Addresses
from lib.tools.builtin.fetch.url import Target


class CustomTransport:
    """Asks through a transport."""

    def __init__(self, transport: Any, addresses: Addresses) -> None:
        """Take the transport; it is closed with this."""
        self._transport, self._addresses = transport, addresses
        self._package: Any = _package(transport)
        self.failures: tuple[type[Exception], ...] = (Exception,)  # it raises what it likes

    async def ask(self, target: Target, headers: Headers, *, connect_timeout_s: float) -> Answer:
        """Send a GET request to the first address that takes it.

        Raises:
            FetchBlocked: an address of the host may not be reached.
            LookupFailedError: the host could not be looked up.
        """
        found = await self._addresses.of(target.host, target.port, timeout_s=connect_timeout_s)
        *others, last = found
        for address in others:
            try:
                return await self._ask(target, address, headers, connect_timeout_s)
            except (self._package.ConnectError, self._package.ConnectTimeout):
                continue
        return await self._ask(target, last, headers, connect_timeout_s)

    async def aclose(self) -> None:
        """Close the transport."""
        await self._transport.aclose()

    async def _ask(
        self, target: Target, address: Address, headers: Headers, connect_timeout_s: float
    ) -> Answer:
        pinned = Target(target.scheme, text(address), target.port, target.path, address)
        extensions: dict[str, Any] = {
            "timeout": {"connect": connect_timeout_s, "read": None, "write": None, "pool": None}
        }
        if target.address is None:
            extensions["sni_hostname"] = target.host
        request = self._package.Request(
            "GET",
            pinned.url,
            headers=[
                (b"Host", target.authority.encode("ascii")),
                *headers,
                (b"Connection", b"close"),
            ],
            extensions=extensions,
        )
        response = await self._transport.handle_async_request(request)
        raw = response.headers.raw
        return Answer(response.status_code, raw, response.stream, response.aclose)


def _package(transport: Any) -> Any:
    """Return the package that the transport belongs to: httpx2, or the older httpx."""
    for base in type(transport).__mro__:
        name = base.__module__.partition(".")[0]
        if name in {"httpx", "httpx2"}:
            return importlib.import_module(name)
    return importlib.import_module("httpx2")

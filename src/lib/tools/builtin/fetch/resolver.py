"""From a host to addresses that may be reached: all of a name's addresses pass, or none is used."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from lib.errors import FetchBlocked, ToolError
from lib.tools.builtin.fetch.address import Address, read
from lib.tools.builtin.fetch.callers import adapted
from lib.tools.builtin.fetch.policy import Rules
from lib.tools.builtin.fetch.threads import MAX_ALL_THREADS, MAX_THREADS, LookupThreads

log = logging.getLogger(__name__)

MAX_ADDRESSES: Final = 8
"""How many addresses of a name are tried."""


class Resolver(Protocol):
    """Looks up names."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a host, the preferred one first; none if it has none.

        Raises:
            OSError: it could not be looked up.
        """
        ...


Resolve = Callable[..., Any]
"""A function of (host, port) or of (host) that does so: async, or one that blocks.

It may return addresses as str, bytes, objects of `ipaddress` or entries of `getaddrinfo`, or one.
"""


class SystemResolver(LookupThreads):
    """Asks `getaddrinfo`."""

    def __init__(
        self, max_threads: int = MAX_THREADS, *, max_all_threads: int = MAX_ALL_THREADS
    ) -> None:
        """Prepare; threads start with lookups and end with the last one."""
        super().__init__(_look_up, max_threads=max_threads, max_all_threads=max_all_threads)


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(entry[4][0]) for entry in found]


SYSTEM_RESOLVER: Final = SystemResolver()


class LookupFailedError(ToolError):
    """A host could not be looked up; the message goes on after its name."""


class Addresses:
    """Finds the addresses of hosts, and lets none through that a policy forbids."""

    def __init__(self, rules: Rules, resolver: Resolver | Resolve | None) -> None:
        """Take a resolver, or a function that does what its `resolve` does.

        Raises:
            TypeError: it cannot be called with a host, or with a host and a port.
        """
        self._rules = rules
        self._resolve = adapted(SYSTEM_RESOLVER if resolver is None else resolver)

    async def of(self, host: str, port: int, *, timeout_s: float) -> tuple[Address, ...]:
        """Return where a host may be reached, at least one address; a literal is judged, too.

        Raises:
            FetchBlocked: one of its addresses may not be reached.
            LookupFailedError: it could not be looked up ("unavailable"), or not in time
                ("timeout").
        """
        literal = read(host)
        if literal is not None:
            self._rules.check_addresses(None, (literal,))
            return (literal,)
        answers = await self._ask(host, port, timeout_s)
        addresses = [read(answer) for answer in answers]
        known = [address for address in addresses if address is not None]
        if len(known) < len(addresses):
            raise FetchBlocked("address not public", host=host)
        if not known:
            raise LookupFailedError("unavailable", "could not be found")
        log.debug("%s has the addresses %s", host, known)
        self._rules.check_addresses(host, known)
        return tuple(dict.fromkeys(known))[:MAX_ADDRESSES]

    async def _ask(self, host: str, port: int, timeout_s: float) -> list[str]:
        """Return the resolver's answers. What it says in an error is not for a model."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._resolve(host, port)
        except TimeoutError:
            fault = LookupFailedError("timeout", f"took over {timeout_s:g} s to look up")
        except Exception as error:  # noqa: BLE001 - a resolver of others raises what it likes
            log.debug("%s could not be looked up: %s", host, error)
            fault = LookupFailedError("unavailable", "could not be found")
        raise fault

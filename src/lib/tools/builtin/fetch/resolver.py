"""From a host to addresses that may be reached: all of a name's addresses pass, or none is used."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, cast

from lib.errors import FetchBlocked, ToolError
from lib.tools.builtin.fetch.address import Address, read
from lib.tools.builtin.fetch.policy import Rules

log = logging.getLogger(__name__)

MAX_THREADS: Final = 8
"""How many names are looked up at once, in the whole process."""

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


Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


@dataclass(slots=True, eq=False)
class _Lookup:
    host: str
    port: int
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[list[str]]


class SystemResolver:
    """Asks `getaddrinfo`, in few threads of its own.

    A lookup cannot be stopped, so that names whose servers never answer would use up any pool:
    these threads serve nothing else, their number is bounded, waiting ends with the caller's
    deadline, and none of them keeps the process from ending.
    """

    def __init__(self, max_threads: int = MAX_THREADS) -> None:
        """Prepare; threads start with lookups and end with the last one."""
        self._max_threads = max_threads
        self._waiting: deque[_Lookup] = deque()
        self._lock = threading.Lock()
        self._threads = 0
        self._process = os.getpid()

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host, as the system orders them.

        Raises:
            OSError: it could not be looked up.
        """
        loop = asyncio.get_running_loop()
        lookup = _Lookup(host, port, loop, loop.create_future())
        self._start(lookup)
        try:
            return await lookup.done
        finally:
            with self._lock, suppress(ValueError):  # nobody waits for it any more
                self._waiting.remove(lookup)

    def _start(self, lookup: _Lookup) -> None:
        with self._lock:
            if self._process != os.getpid():  # a fork has none of its parent's threads
                self._waiting, self._threads, self._process = deque(), 0, os.getpid()
            self._waiting.append(lookup)
            if self._threads < self._max_threads:
                self._threads += 1
                threading.Thread(target=self._work, name="lib-resolver", daemon=True).start()

    def _work(self) -> None:
        while (lookup := self._next()) is not None:
            found: list[str] | Exception
            try:
                found = _look_up(lookup.host, lookup.port)
            except (OSError, UnicodeError) as error:
                found = error
            with suppress(RuntimeError):  # its event loop has ended
                lookup.loop.call_soon_threadsafe(_tell, lookup, found)

    def _next(self) -> _Lookup | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None


SYSTEM_RESOLVER: Final = SystemResolver()


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(entry[4][0]) for entry in found]


def _tell(lookup: _Lookup, found: list[str] | Exception) -> None:
    if lookup.done.done():
        return
    if isinstance(found, Exception):
        lookup.done.set_exception(found)
    else:
        lookup.done.set_result(found)


class Addresses:
    """Finds the addresses of hosts, and lets none through that a policy forbids."""

    def __init__(self, rules: Rules, resolver: Resolver | Resolve | None) -> None:
        """Take a resolver, or a function that does what its `resolve` does."""
        self._rules = rules
        chosen = SYSTEM_RESOLVER if resolver is None else resolver
        self._resolve = cast(Resolve, getattr(chosen, "resolve", chosen))

    async def of(self, host: str, port: int, *, timeout_s: float) -> tuple[Address, ...]:
        """Return where a host may be reached, at least one address; a literal is judged, too.

        Raises:
            FetchBlocked: one of its addresses may not be reached.
            ToolError: it could not be looked up ("unavailable"), or not in time ("timeout").
        """
        literal = read(host)
        if literal is not None:
            self._rules.check_addresses(None, (literal,))
            return (literal,)
        answers = await self._ask(host, port, timeout_s)
        addresses = [read(str(answer)) for answer in answers]
        known = [address for address in addresses if address is not None]
        if len(known) < len(addresses):
            raise FetchBlocked("address not public", host=host)
        if not known:
            raise ToolError("unavailable", f"the host {host!r} could not be found")
        log.debug("%s has the addresses %s", host, known)
        self._rules.check_addresses(host, known)
        return tuple(dict.fromkeys(known))[:MAX_ADDRESSES]

    async def _ask(self, host: str, port: int, timeout_s: float) -> Sequence[str]:
        """Return the resolver's answers. What it says in an error is not for a model."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._resolve(host, port)
        except TimeoutError:
            fault = ToolError("timeout", f"looking up {host!r} took over {timeout_s:g} s")
        except Exception as error:  # noqa: BLE001 - a resolver of others raises what it likes
            log.debug("%s could not be looked up: %s", host, error)
            fault = ToolError("unavailable", f"the host {host!r} could not be found")
        raise fault

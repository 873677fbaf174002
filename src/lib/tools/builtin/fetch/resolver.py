"""From a host to addresses that may be reached: all of a name's addresses pass, or none is used."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import socket
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias, cast

from lib.errors import FetchBlocked, ToolError
from lib.tools.builtin.fetch.address import Address, read
from lib.tools.builtin.fetch.policy import Rules

MAX_THREADS: Final = 8
"""How many names are looked up at once for callers that still wait, in the whole process."""

MAX_ALL_THREADS: Final = 64
"""How many are looked up at once with abandoned lookups."""

MAX_THREADS_PER_HOST: Final = 2
"""How many of them may be lookups of one name."""


@dataclass(slots=True, eq=False)
class _Lookup:
    host: str
    port: int
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[list[str]]
    running: bool = False


class LookupThreads:
    """Calls a function that blocks.

    A lookup cannot be stopped, so that names whose servers never answer would use up any pool:
    these threads serve nothing else, waiting ends with the caller's deadline, and none of them
    keeps the process from ending. An abandoned lookup makes room for another
    one, up to a hard bound, and lookups of one name take only so many threads.
    """

    def __init__(
        self,
        look_up: Callable[[str, int], list[str]],
        *,
        max_threads: int = MAX_THREADS,
        max_all_threads: int = MAX_ALL_THREADS,
    ) -> None:
        """Prepare; threads start with lookups and end with the last one."""
        self._look_up = look_up
        self._max_threads, self._max_all_threads = max_threads, max_all_threads
        self._lock = threading.Lock()
        self._forget()

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return what the function does for a host and a port.

        Raises:
            OSError: it could not be looked up.
        """
        loop = asyncio.get_running_loop()
        lookup = _Lookup(host, port, loop, loop.create_future())
        with self._lock:
            if self._process != os.getpid():  # a fork has none of its parent's threads
                self._forget()
            self._waiting.append(lookup)
            self._grow()
        try:
            return await lookup.done
        finally:
            self._leave(lookup)

    def _forget(self) -> None:
        self._waiting: deque[_Lookup] = deque()
        self._left: set[_Lookup] = set()  # running, but abandoned
        self._hosts: Counter[str] = Counter()
        self._threads, self._process = 0, os.getpid()

    def _grow(self) -> None:
        """Start a thread if another lookup may run."""
        busy = self._threads - len(self._left)
        if busy < self._max_threads and self._threads < self._max_all_threads:
            self._threads += 1
            threading.Thread(target=self._work, name="lib-resolver", daemon=True).start()

    def _leave(self, lookup: _Lookup) -> None:
        """Note that the caller of a lookup no longer waits."""
        with self._lock:
            with suppress(ValueError):
                self._waiting.remove(lookup)
            if lookup.running:
                self._left.add(lookup)
                if self._waiting:
                    self._grow()

    def _work(self) -> None:
        lookup: _Lookup | None = None
        while (lookup := self._next(lookup)) is not None:
            found: list[str] | OSError
            try:
                found = self._look_up(lookup.host, lookup.port)
            except OSError as error:
                found = error
            except Exception as error:  # noqa: BLE001 - a resolver of others raises what it likes
                found = OSError(repr(error))
            with self._lock:
                lookup.running = False
            with suppress(RuntimeError):  # its event loop has ended
                lookup.loop.call_soon_threadsafe(_tell, lookup, found)

    def _next(self, ended: _Lookup | None) -> _Lookup | None:
        """Return what to look up now; None ends the thread."""
        with self._lock:
            if ended is not None:
                self._left.discard(ended)
                self._hosts[ended.host] -= 1
                self._hosts += Counter()  # drops what is zero
            if self._threads - len(self._left) <= self._max_threads:
                for lookup in self._waiting:
                    if self._hosts[lookup.host] < MAX_THREADS_PER_HOST and not lookup.done.done():
                        self._waiting.remove(lookup)
                        self._hosts[lookup.host] += 1
                        lookup.running = True
                        return lookup
            self._threads -= 1
            return None


def _tell(lookup: _Lookup, found: list[str] | OSError) -> None:
    if lookup.done.done():
        return
    if isinstance(found, OSError):
        lookup.done.set_exception(found)
    else:
        lookup.done.set_result(found)


log: Final = logging.getLogger(__name__)

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
        self._resolve = adapt_resolver(SYSTEM_RESOLVER if resolver is None else resolver)

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
        usable = [address for address in addresses if address is not None]
        if len(usable) < len(addresses):
            raise FetchBlocked("address not public", host=host)
        if not usable:
            raise LookupFailedError("unavailable", "could not be found")
        log.debug("%s has the addresses %s", host, usable)
        self._rules.check_addresses(host, usable)
        return tuple(dict.fromkeys(usable))[:MAX_ADDRESSES]

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


MAX_ANSWERS: Final = 4_096
"""How many addresses a name may have."""

Lookup: TypeAlias = Callable[[str, int], Awaitable[list[str]]]

_SHAPE: Final = (
    "resolver is a function of (host) or (host, port), or has a method `resolve` that is one"
)
_GETADDRINFO_FIELDS: Final = 5


def adapt_resolver(resolver: Any) -> Lookup:
    """Return a resolver as one function, whatever its shape; what blocks runs in a thread.

    Raises:
        TypeError: it cannot be called with a host, or with a host and a port.
    """
    function = getattr(resolver, "resolve", resolver)
    if isinstance(resolver, type) or not callable(function):
        raise TypeError(f"{_SHAPE}, not {type(resolver).__name__}")
    with_port = _takes_port(function)

    def call(host: str, port: int) -> Any:
        return function(host, port) if with_port else function(host)

    if not _is_async(function):
        return _in_threads(call)

    async def look_up(host: str, port: int) -> list[str]:
        return answers(await call(host, port))

    return look_up


def answers(found: Any) -> list[str]:
    """Return the addresses that a resolver has found, as text.

    Args:
        found: addresses as str, bytes, objects of `ipaddress` or entries of `getaddrinfo`; or one.

    Raises:
        TypeError: it is something else.
        ValueError: it is too much, or not ASCII.
    """
    kind = type(found).__name__
    if isinstance(found, str | bytes | IPv4Address | IPv6Address):
        return [_answer(found)]
    if isinstance(found, Mapping) or not isinstance(found, Iterable):
        raise TypeError(f"a resolver returned {kind}")
    listed = [_answer(one) for one in islice(cast(Iterable[Any], found), MAX_ANSWERS + 1)]
    if len(listed) > MAX_ANSWERS:
        raise ValueError("a resolver returned too many addresses")
    return listed


def _in_threads(call: Callable[[str, int], Any]) -> Lookup:
    """Return a function that blocks as one that does not; what it returns may be awaitable."""

    def block(host: str, port: int) -> list[Any]:
        found = call(host, port)
        return [found] if inspect.isawaitable(found) else answers(found)

    threads = LookupThreads(block)

    async def look_up(host: str, port: int) -> list[str]:
        found: list[Any] = await threads.resolve(host, port)
        if len(found) == 1 and inspect.isawaitable(found[0]):
            return answers(await found[0])
        return found

    return look_up


def _answer(one: Any) -> str:
    if isinstance(one, tuple):
        entry = cast(tuple[Any, ...], one)
        if len(entry) != _GETADDRINFO_FIELDS or not isinstance(entry[4], tuple):
            raise TypeError("a resolver returned tuples that are not those of getaddrinfo")
        one = cast(tuple[Any, ...], entry[4])[0]
    if isinstance(one, bytes):
        return one.decode("ascii")
    if isinstance(one, str | IPv4Address | IPv6Address):
        return str(one)
    raise ValueError(f"a resolver returned {type(one).__name__} for an address")


def _is_async(function: Callable[..., Any]) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004 - of an object
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _takes_port(function: Callable[..., Any]) -> bool:
    """Return True if to call it with a port, too.

    Raises:
        TypeError: neither way is possible, or it does not tell its parameters.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:
        raise TypeError(f"{_SHAPE}: {function!r} does not tell its parameters, wrap it") from None
    positional = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind not in {parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD}
    ]
    # A second parameter that may be left out can be anything: a family, a record's type.
    second = positional[1] if len(positional) > 1 else None
    wanted = second is not None and (second.default is second.empty or "port" in second.name)
    var = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in positional[:2])
    with_port = wanted or var
    try:
        signature.bind(*("host", 0)[: 1 + with_port])
    except TypeError:
        raise TypeError(f"{_SHAPE}, not one of {signature}") from None
    return with_port

"""Lookups in few threads of their own, for resolvers that block."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

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

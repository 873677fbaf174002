"""Waiting until Pinecone's searches show what was written.

A write is accepted before searches show it. Its answer tells the write's number in the log of its
namespace, and every query's answer tells up to which number that query has seen. So a write waits,
here, until a query has seen it: then not only this store reads it, but everybody does. A wait that
fails or is cancelled is taken up again by the next call that reads the namespace. If that one ends
without a sight of the namespace, too, it is no longer expected: another process may have erased it.

Where Pinecone tells no numbers (an index of pods), nothing can be waited for; that is logged once.
Source: https://docs.pinecone.io/guides/index-data/check-data-freshness (2026-11).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from lib._util.clock import Clock
from lib.errors import ConsistencyTimeout, StoreUnavailable

WRITTEN: Final = "x-pinecone-request-lsn"
SEEN: Final = "x-pinecone-max-indexed-lsn"

_FIRST_S: Final = 0.05
_GROWTH: Final = 1.5
_LONGEST_S: Final = 2.0
_log = logging.getLogger(__name__)


class Freshness:
    """The writes to each namespace that searches have not shown yet."""

    def __init__(
        self,
        look: Callable[[str], Awaitable[Mapping[str, str] | None]],
        *,
        timeout_s: float,
        clock: Clock,
    ) -> None:
        """Begin with nothing to wait for.

        Args:
            look: queries a namespace and returns the answer's headers, or None if the
                namespace does not exist; it costs a read unit.
            timeout_s: how long a wait may take.
            clock: measures and waits.
        """
        self._look, self._timeout_s, self._clock = look, timeout_s, clock
        self._unseen: dict[str, int] = {}
        self._filled: set[str] = set()
        self._warned = False

    def wrote(self, namespace: str, headers: Mapping[str, str], *, fills: bool) -> None:
        """Note a write by its answer's headers.

        Args:
            namespace: where.
            headers: of the answer.
            fills: True if the namespace exists as soon as searches show the write.
        """
        (self._filled.add if fills else self._filled.discard)(namespace)
        position = _position(headers, WRITTEN)
        if position is None:
            self._warn_once()
        else:
            self._unseen[namespace] = max(position, self._unseen.get(namespace, position))

    async def settle(self, namespace: str, *, again: bool = True) -> None:
        """Return once searches show all that was noted; at once if there is nothing.

        Args:
            namespace: where.
            again: True if an earlier call was the first to wait for it.

        Raises:
            ConsistencyTimeout: they do not in time. What was written stays written.
        """
        wanted = self._unseen.get(namespace)
        if wanted is None:
            return
        started, delay_s = self._clock.monotonic(), _FIRST_S
        while True:
            seen = self._position_seen(namespace, wanted, await self._look(namespace))
            if seen is not None and seen >= wanted:
                break
            if self._clock.monotonic() - started + delay_s > self._timeout_s:
                if seen is None and again:
                    self._filled.discard(namespace)
                raise ConsistencyTimeout(
                    namespace=namespace, wanted=wanted, seen=seen, timeout_s=self._timeout_s
                )
            await self._clock.sleep(delay_s)
            delay_s = min(delay_s * _GROWTH, _LONGEST_S)
        if self._unseen.get(namespace, seen + 1) <= seen:
            del self._unseen[namespace]

    async def settle_all(self) -> None:
        """Do so for every namespace."""
        for namespace in [*self._unseen]:
            await self.settle(namespace)

    def _position_seen(
        self, namespace: str, wanted: int, headers: Mapping[str, str] | None
    ) -> int | None:
        """Return how far searches see; None if they do not see the namespace yet."""
        if headers is None:  # Pinecone deletes a namespace together with all that it holds
            return None if namespace in self._filled else wanted
        seen = _position(headers, SEEN)
        if seen is None:
            self._warn_once()
            return wanted
        return seen

    def _warn_once(self) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("this Pinecone index tells no log positions: reads may lag behind writes")


def _position(headers: Mapping[str, str], name: str) -> int | None:
    text = headers.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise StoreUnavailable("Pinecone tells a log position that is no number") from None

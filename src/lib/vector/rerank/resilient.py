"""Rerankers that stand in for each other, each behind a breaker and a limiter."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.contexts import AsyncClosable
from lib.resilience import CircuitBreaker, RateLimiter, RetryPolicy
from lib.resilience.protect import Protection
from lib.resilience.services import CallPolicy
from lib.vector.rerank.contract import Reranker


class ResilientReranker(AsyncClosable):
    """Reranks only with services that work, and only as fast as an account may.

    A reranker of this package that asks a server makes each request an attempt of its own, retries
    included; a call of another one is one attempt. For an `LLMReranker`, put a `ResilientClient`
    before its model.

    Attributes:
        rerankers: the first is called; each next one when those before it fail.
    """

    def __init__(
        self,
        rerankers: Reranker | Sequence[Reranker],
        *,
        breaker: CircuitBreaker | None = None,
        limiter: RateLimiter | None = None,
        retries: RetryPolicy | None = None,
        deadline_s: float | None = None,
        hedge_after_s: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Put what protects a service before it.

        Args:
            rerankers: one, or several that stand in for each other; closing this closes them.
            breaker: of the service; several services have one each, in a `ResilientReranker` each.
            limiter: of the account.
            retries: beside those that the reranker makes itself; None for none.
            deadline_s: seconds for a whole call, all attempts and waits together.
            hedge_after_s: seconds until a second attempt begins beside a slow one; the first result
                counts, and both may cost. None for never.
            clock: measures and waits.
            jitter: returns numbers from 0 up to 1, to spread the waits.

        Raises:
            ValueError: there is no reranker, a time is not above 0, or a breaker or a limiter
                would stand before several services.
        """
        self._protection = Protection(breaker, limiter)
        self.rerankers: tuple[Reranker, ...] = self._protection.services(rerankers, "rerank")
        self._policy = CallPolicy(
            retries=retries,
            deadline_s=deadline_s,
            hedge_after_s=hedge_after_s,
            clock=clock,
            jitter=jitter,
        )

    def __getattr__(self, name: str) -> Any:
        """Return what the first reranker has beyond `Reranker`, such as its model."""
        if name == "rerankers":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.rerankers[0], name)

    async def rerank(self, query: str, texts: Sequence[str], k: int) -> list[int]:
        """Return the places of the k most relevant texts, best first; see `Reranker`.

        Raises:
            CircuitOpen: the service is not called now.
            RateLimited: the turn of the call would come too late.
            DeadlineExceeded: there was no result in time.
            LLMError: as the reranker does.
        """
        calls = [partial(self._rerank, each, query, texts, k) for each in self.rerankers]
        return await self._policy.call(calls)

    async def aclose(self) -> None:
        """Close the rerankers."""
        await self._protection.close(self.rerankers)

    async def _rerank(
        self, reranker: Reranker, query: str, texts: Sequence[str], k: int
    ) -> list[int]:
        async with self._protection.around(reranker, (len(query) + sum(map(len, texts))) // 4):
            return await reranker.rerank(query, texts, k)

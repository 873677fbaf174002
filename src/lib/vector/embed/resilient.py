"""Embedders of one model at several services, each behind a breaker and a limiter."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.contexts import AsyncClosable
from lib.errors import DimensionMismatch
from lib.resilience import CircuitBreaker, RateLimiter, RetryPolicy
from lib.resilience.protect import Protection
from lib.resilience.services import CallPolicy
from lib.vector.contract import Embedder, Purpose


class ResilientEmbedder(AsyncClosable):
    """Embeds only with services that work, and only as fast as an account may.

    Several embedders must be the same model at several servers: vectors of different models have
    nothing to do with each other. An embedder of this package makes each of its requests an attempt
    of its own, retries included; a call of another one is one attempt.

    Attributes:
        embedders: the first is called; each next one when those before it fail.
    """

    def __init__(
        self,
        embedders: Embedder | Sequence[Embedder],
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
            embedders: one, or several that stand in for each other; closing this closes them.
            breaker: of the service; several services have one each, in a `ResilientEmbedder` each.
            limiter: of the account.
            retries: beside those that the embedder makes itself; None for none.
            deadline_s: seconds for a whole call, all attempts and waits together.
            hedge_after_s: seconds until a second attempt begins beside a slow one; the first result
                counts, and both may cost. None for never.
            clock: measures and waits.
            jitter: returns numbers from 0 up to 1, to spread the waits.

        Raises:
            ValueError: there is no embedder, a time is not above 0, or a breaker or a limiter
                would stand before several services.
        """
        self._protection = Protection(breaker, limiter)
        self.embedders: tuple[Embedder, ...] = self._protection.services(embedders, "embed")
        self._policy = CallPolicy(
            retries=retries,
            deadline_s=deadline_s,
            hedge_after_s=hedge_after_s,
            clock=clock,
            jitter=jitter,
        )

    def __getattr__(self, name: str) -> Any:
        """Return what the first embedder has beyond `Embedder`, such as its model."""
        if name == "embedders":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.embedders[0], name)

    @property
    def dimension(self) -> int:
        """The length of every vector."""
        return self.embedders[0].dimension

    async def embed(
        self, texts: Sequence[str], *, purpose: Purpose = "document"
    ) -> NDArray[np.float32]:
        """Return one row of `dimension` floats per text, in their order; see `Embedder`.

        Raises:
            CircuitOpen: the service is not called now.
            RateLimited: the turn of the call would come too late.
            DeadlineExceeded: there was no result in time.
            DimensionMismatch: the embedders are not of one model.
            LLMError: as the embedder does.
        """
        calls = [partial(self._embed, each, texts, purpose) for each in self.embedders]
        return await self._policy.call(calls)

    async def aclose(self) -> None:
        """Close the embedders."""
        await self._protection.close(self.embedders)

    async def _embed(
        self, embedder: Embedder, texts: Sequence[str], purpose: Purpose
    ) -> NDArray[np.float32]:
        async with self._protection.around(embedder, sum(map(len, texts)) // 4):
            rows = await embedder.embed(texts, purpose=purpose)
        if embedder is not self.embedders[0] and len(rows) and rows.shape[1] != self.dimension:
            raise DimensionMismatch(expected=self.dimension, got=rows.shape[1])
        return rows

"""One attempt at a service, behind its breaker and its limiter."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass

from lib.errors import CircuitOpen, RateLimited, RemoteError
from lib.resilience.breaker import CircuitBreaker
from lib.resilience.limiter import Permit, RateLimiter


@dataclass(frozen=True, slots=True)
class Protection:
    """The breaker and the limiter before the attempts at one service; each may be shared.

    Attributes:
        breaker: refuses calls while the service fails.
        limiter: makes calls wait for their turn.
    """

    breaker: CircuitBreaker | None = None
    limiter: RateLimiter | None = None

    @asynccontextmanager
    async def attempt(self, tokens: int = 0) -> AsyncGenerator[Attempt]:
        """Make one attempt in the block, once its turn has come.

        An attempt that the circuit refuses waits for nothing. A wait that the server asks for is
        one for all callers of the limiter.

        Args:
            tokens: how many it is estimated to use.

        Raises:
            CircuitOpen: the service is not called now.
            RateLimited: the turn would come too late.
        """
        if self.breaker is not None:
            self.breaker.check()
        permit = None if self.limiter is None else await self.limiter.acquire(tokens)
        attempt = Attempt()
        try:
            with nullcontext() if self.breaker is None else self.breaker.attempt():
                yield attempt
        except RemoteError as error:
            if self.limiter is not None and permit is not None:
                await _failed(self.limiter, permit, error)
            raise
        if self.limiter is not None and permit is not None and attempt.tokens is not None:
            await self.limiter.settle(permit, attempt.tokens)


async def _failed(limiter: RateLimiter, permit: Permit, error: RemoteError) -> None:
    if isinstance(error, CircuitOpen):  # another call has opened it during the wait
        await limiter.cancel(permit)
    elif error.retry_after_s and not isinstance(error, RateLimited):
        await limiter.pause(error.retry_after_s)


@dataclass(slots=True)
class Attempt:
    """An attempt that is being made.

    Attributes:
        tokens: how many it has used, once that is known.
    """

    tokens: int | None = None

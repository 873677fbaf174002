"""One attempt at a service, behind its breaker and its limiter."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard, TypeVar, cast

from lib.errors import CircuitOpen, RateLimited, RemoteError
from lib.resilience.breaker import CircuitBreaker
from lib.resilience.limiter import Permit, RateLimiter

S = TypeVar("S")


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

    def services(self, one_or_several: S | Sequence[S], method: str) -> tuple[S, ...]:
        """Return services that do the same, protected by themselves where they know how.

        Args:
            one_or_several: one, or several that stand in for each other.
            method: what each must have, such as "embed".

        Raises:
            ValueError: there is none, or several would share the protection of one.
            TypeError: one has no such method.
        """
        are_several = isinstance(one_or_several, list | tuple)
        several = cast("list[S]", [*one_or_several] if are_several else [one_or_several])
        if not several:
            raise ValueError("expected a service or several, got an empty list")
        for each in several:
            if not callable(getattr(each, method, None)):
                got = type(each).__name__
                raise TypeError(f"expected an object with a method {method!r}, got {got}")
        if self == Protection():
            return tuple(several)
        if len(several) > 1:
            raise ValueError(
                f"a breaker and a limiter stand before one service, got {len(several)}: "
                "give each its own, and a list of those"
            )
        return tuple(each.protected(self) if _protects(each) else each for each in several)

    def around(self, service: object, tokens: int = 0) -> AbstractAsyncContextManager[object]:
        """Make one attempt in the block, unless the service makes its own attempts."""
        return nullcontext() if _protects(service) else self.attempt(tokens)

    async def close(self, services: Iterable[object]) -> None:
        """Close those services that can be closed."""
        async with AsyncExitStack() as stack:
            for service in services:
                if close := getattr(service, "aclose", None):
                    stack.push_async_callback(close)


class MakesAttempts(Protocol):
    """A service that makes several requests for one call, and protects each."""

    def protected(self, protection: Protection) -> Any:
        """Return the same service behind a breaker and a limiter: each request is one attempt."""
        ...


def _protects(service: object) -> TypeGuard[MakesAttempts]:
    return hasattr(type(service), "protected")  # of its own, not of what it wraps


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

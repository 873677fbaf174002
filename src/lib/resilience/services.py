"""One call over several services that do the same: attempts, fallbacks, a hedge, a deadline."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from lib._util.attempts import count
from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.errors import CircuitOpen, LibError, RateLimited
from lib.resilience.deadlines import deadline
from lib.resilience.hedge import hedged
from lib.resilience.retry import RetryPolicy, is_retryable, retry

T = TypeVar("T")
Retryable: TypeAlias = Callable[[LibError], tuple[bool, float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPolicy:
    """The bounds of a call: attempts, times and services.

    Attributes:
        retries: for each service; None for one attempt.
        deadline_s: seconds for a whole call; None for no limit.
        hedge_after_s: seconds until a second attempt begins beside a slow one, at the next service
            or, without one, at the same; None for never.
        clock: measures and waits.
        jitter: returns numbers from 0 up to 1, to spread the waits.
        is_retryable: see `retry`; an error that may pass goes to the next service at last.

    Raises:
        ValueError: a time is not above 0.
    """

    retries: RetryPolicy | None = None
    deadline_s: float | None = None
    hedge_after_s: float | None = None
    clock: Clock = SYSTEM_CLOCK
    jitter: Callable[[], float] = random.random
    is_retryable: Retryable = is_retryable

    def __post_init__(self) -> None:
        """Refuse times at which nothing could happen."""
        for name in ("deadline_s", "hedge_after_s"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise ValueError(f"expected {name} above 0, got {seconds!r}")

    async def call(self, services: Sequence[Callable[[], Awaitable[T]]]) -> T:
        """Return the result of the first service that has one.

        Args:
            services: each makes one attempt at a service; at least one.

        Raises:
            DeadlineExceeded: no result in time.
            LibError: what the last service raised, or the first whose error will not pass.
        """
        async with deadline(self.deadline_s, clock=self.clock):
            for place, service in enumerate(services[:-1]):
                try:
                    return await self._try(service, services[place + 1], is_last=False)
                except LibError as error:
                    if not self.is_retryable(error)[0]:
                        raise
                    count("fallbacks")
            return await self._try(services[-1], services[-1], is_last=True)

    async def _try(
        self,
        service: Callable[[], Awaitable[T]],
        beside: Callable[[], Awaitable[T]],
        *,
        is_last: bool,
    ) -> T:
        async def attempt() -> T:
            return await hedged(
                lambda _: service(),
                lambda _: beside(),
                after_s=self.hedge_after_s,
                clock=self.clock,
            )

        return await retry(
            attempt,
            policy=self.retries or RetryPolicy(attempts=1),
            clock=self.clock,
            random=self.jitter,
            is_retryable=self.is_retryable if is_last else elsewhere(self.is_retryable),
        )


def elsewhere(is_retryable: Retryable = is_retryable) -> Retryable:
    """Return the same, but a call that was refused unsent is not tried again: another is called."""

    def here(error: LibError) -> tuple[bool, float | None]:
        return (
            (False, None) if isinstance(error, CircuitOpen | RateLimited) else is_retryable(error)
        )

    return here

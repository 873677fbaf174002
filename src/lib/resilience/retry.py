"""Retries with backoff: when to try again, and how long to wait before.

Delays have "full jitter": anything between nothing and an exponentially growing bound. Many
callers that failed together then come back spread out instead of together.

Source: M. Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015-03-04.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from lib._util.attempts import count
from lib._util.clock import Clock
from lib.errors import LibError, RemoteError
from lib.resilience.deadlines import time_left_s

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Limits of retries: attempts, waits and a deadline.

    Attributes:
        attempts: calls at most, the first one included.
        base_s: the first delay is at most this; the bound doubles with each further one.
        cap_s: no bound is above this.
        deadline_s: no attempt starts later than this after the first one has.

    Raises:
        ValueError: fewer than one attempt, or a negative time.
    """

    attempts: int = 4
    base_s: float = 0.5
    cap_s: float = 20.0
    deadline_s: float = 120.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"a policy needs at least 1 attempt, got {self.attempts}")
        if min(self.base_s, self.cap_s, self.deadline_s) < 0:
            raise ValueError("base_s, cap_s and deadline_s are not negative")

    def delay_s(
        self, failed: int, *, elapsed_s: float, jitter: float, retry_after_s: float | None = None
    ) -> float | None:
        """Return how long to wait before the next attempt, None to give up.

        A wait that the server requests is never cut short, even above `cap_s`; the jitter then
        comes on top, since the server sends the same wait to every client.

        Args:
            failed: attempts made so far, from 1.
            elapsed_s: time since the first of them started.
            jitter: a random number, 0 <= jitter < 1.
            retry_after_s: the wait that the server requests.
        """
        if failed >= self.attempts:
            return None
        # Beyond 2**64 every bound is the cap; the limit keeps the power a small number.
        bound = min(self.cap_s, self.base_s * 2.0 ** min(failed - 1, 64))
        delay = max(retry_after_s or 0.0, 0.0) + bound * jitter
        return delay if elapsed_s + delay <= self.deadline_s else None


def is_retryable(error: LibError) -> tuple[bool, float | None]:
    """Return whether the same call may succeed later, and the wait that the server requests."""
    if isinstance(error, RemoteError):
        return error.retryable, error.retry_after_s
    return False, None


async def retry(
    call: Callable[[], Awaitable[T]],
    *,
    policy: RetryPolicy,
    clock: Clock,
    random: Callable[[], float],
    is_retryable: Callable[[LibError], tuple[bool, float | None]] = is_retryable,
    on_retry: Callable[[int, LibError, float], None] | None = None,
) -> T:
    """Return what `call` returns, calling it again after errors that may pass.

    Nothing is waited for that would come after the caller's `deadline`.

    Args:
        call: makes one attempt.
        policy: how often and how long.
        clock: measures and waits.
        random: returns numbers from 0 up to 1, for the jitter.
        is_retryable: returns for an error whether to try again, and the server's wait or None.
        on_retry: called before each wait with the attempts made, the last error and the seconds.

    Raises:
        LibError: what the last attempt raised. Other errors are never retried.
    """
    started, failed = clock.monotonic(), 0
    while True:
        try:
            return await call()
        except LibError as error:
            failed += 1
            again, server_wait_s = is_retryable(error)
            if not again:
                raise
            elapsed_s = clock.monotonic() - started
            delay_s = policy.delay_s(
                failed, elapsed_s=elapsed_s, jitter=random(), retry_after_s=server_wait_s
            )
            left_s = time_left_s()
            if delay_s is None or (left_s is not None and delay_s > left_s):
                raise
            if on_retry is not None:
                on_retry(failed, error, delay_s)
        count("retries")
        await clock.sleep(delay_s)

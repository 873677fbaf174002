"""Calls of services that fail: retries, circuit breakers, rate limits, deadlines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lib._util.lazy import lazy_exports
from lib.resilience.retry import RetryPolicy, is_retryable, retry

if TYPE_CHECKING:
    from lib.resilience.breaker import CircuitBreaker, CircuitState
    from lib.resilience.deadlines import deadline, time_left_s
    from lib.resilience.limiter import Permit, RateLimiter, SharedMarks

__all__ = [
    "CircuitBreaker",
    "CircuitState",
    "Permit",
    "RateLimiter",
    "RetryPolicy",
    "SharedMarks",
    "deadline",
    "is_retryable",
    "retry",
    "time_left_s",
]

if not TYPE_CHECKING:  # type checkers are to see misspelt names
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "CircuitBreaker": "lib.resilience.breaker",
            "CircuitState": "lib.resilience.breaker",
            "Permit": "lib.resilience.limiter",
            "RateLimiter": "lib.resilience.limiter",
            "SharedMarks": "lib.resilience.limiter",
            "deadline": "lib.resilience.deadlines",
            "time_left_s": "lib.resilience.deadlines",
        },
    )

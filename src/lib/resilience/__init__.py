"""Retries of calls that fail: later, and not for ever."""

from __future__ import annotations

from lib.resilience.retry import RetryPolicy, is_retryable, retry

__all__ = ["RetryPolicy", "is_retryable", "retry"]

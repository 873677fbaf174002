"""Tools of services that fail: behind a breaker and a limiter, tried again, with stand-ins."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.errors import (
    CircuitOpen,
    DeadlineExceeded,
    LibError,
    RateLimited,
    RemoteError,
    ToolError,
)
from lib.resilience import CircuitBreaker, RateLimiter, RetryPolicy
from lib.resilience.protect import Protection
from lib.resilience.retry import is_retryable
from lib.resilience.services import CallPolicy
from lib.tools.definition import Tool, ToolContext

_MAY_PASS: Final = frozenset({"rate_limited", "timeout", "unavailable"})


def resilient_tool(
    tools: Tool | Sequence[Tool],
    *,
    breaker: CircuitBreaker | None = None,
    limiter: RateLimiter | None = None,
    retries: RetryPolicy | None = None,
    deadline_s: float | None = None,
    hedge_after_s: float | None = None,
    clock: Clock = SYSTEM_CLOCK,
    jitter: Callable[[], float] = random.random,
) -> Tool:
    """Return a tool that is called only while its service works, and as fast as it allows.

    A call of a `once` tool is one attempt, whatever comes of it. A call of an `idempotent` one may
    be made again, with the same idempotency key. Another tool stands in only for one that only
    reads (`none`): what a failed call has done at the first service, a second one does not know.

    What may pass is a `ToolError` with the code "rate_limited", "timeout" or "unavailable", a
    `RemoteError` that says so, and Python's own errors of connections and time-outs. The tool's
    `timeout_s` bounds all attempts and waits together.

    Args:
        tools: a tool, or several with the same parameters; the model sees the first.
        breaker: of the service; several tools have one each, in a `resilient_tool` each.
        limiter: of the account; a call uses no tokens.
        retries: None for one attempt.
        deadline_s: seconds for a whole call; None for the tool's `timeout_s` alone.
        hedge_after_s: seconds until a second attempt begins beside a slow one; None for never.
        clock: measures and waits.
        jitter: returns numbers from 0 up to 1, to spread the waits.

    Raises:
        ValueError: a tool with effects would be called more often than it may, tools differ in
            their parameters, there is none, a time is not above 0, or a breaker or a limiter would
            stand before several.
    """
    protection = Protection(breaker, limiter)
    services = protection.services(tools, "call")
    policy = CallPolicy(
        retries=retries,
        deadline_s=deadline_s,
        hedge_after_s=hedge_after_s,
        clock=clock,
        jitter=jitter,
        is_retryable=_is_retryable,
    )
    _check_effects(services, policy)

    async def call(arguments: Mapping[str, Any], context: ToolContext) -> Any:
        attempts: list[Callable[[], Awaitable[Any]]] = [
            partial(_attempt, protection, each, arguments, context) for each in services
        ]
        try:
            return await policy.call(attempts)
        except (CircuitOpen, RateLimited) as error:
            code = "unavailable" if isinstance(error, CircuitOpen) else "rate_limited"
            raise ToolError(code, f"not called: {error}") from error
        except DeadlineExceeded as error:
            raise ToolError("timeout", str(error)) from error

    first = services[0]
    untrusted = any(each.untrusted_output for each in services)
    return replace(first, call=call, untrusted_output=untrusted)


def _check_effects(tools: Sequence[Tool], policy: CallPolicy) -> None:
    first = tools[0]
    repeats = policy.hedge_after_s is not None or (policy.retries and policy.retries.attempts > 1)
    if first.effects == "once" and repeats:
        raise ValueError(
            f"tool {first.name!r} is called at most once: leave out retries and hedge_after_s, or "
            "declare effects='idempotent' if its service knows a repeated call by its key"
        )
    for other in tools[1:]:
        if (first.effects, other.effects) != ("none", "none"):
            raise ValueError(
                f"tools {first.name!r} and {other.name!r} cannot stand in for each other: only "
                "tools with effects='none' can"
            )
        if other.input_schema != first.input_schema:
            raise ValueError(
                f"tools {first.name!r} and {other.name!r} cannot stand in for each other: "
                "their parameters differ"
            )


async def _attempt(
    protection: Protection, tool: Tool, arguments: Mapping[str, Any], context: ToolContext
) -> Any:
    async with protection.around(tool):
        try:
            return await tool.call(arguments, context)
        except (ConnectionError, TimeoutError) as error:
            code = "timeout" if isinstance(error, TimeoutError) else "unavailable"
            raise ToolError(code, f"{type(error).__name__}: {error}") from error


def _is_retryable(error: LibError) -> tuple[bool, float | None]:
    if isinstance(error, ToolError):
        return error.code in _MAY_PASS, None
    return is_retryable(error) if isinstance(error, RemoteError) else (False, None)

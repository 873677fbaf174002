"""The answers of a tool's `check=`: the outcome of a call whose process died."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Happened:
    """The call had its effect.

    Attributes:
        output: its result, as the tool would have returned it; the model reads it.
    """

    output: Any = None


@dataclass(frozen=True, slots=True)
class DidNotHappen:
    """The call had no effect, and cannot have one any more: it is made now."""


@dataclass(frozen=True, slots=True)
class CannotTell:
    """Nothing is known: the outcome stays unknown, and the call is not repeated.

    Attributes:
        reason: why, for the log.
    """

    reason: str = ""


CheckResult = Happened | DidNotHappen | CannotTell
CheckCallable = Callable[..., CheckResult | Awaitable[CheckResult]]


async def ask_check(
    check: CheckCallable, arguments: Mapping[str, Any], context: object
) -> CheckResult:
    """Return what a check answers; a plain function runs in a thread.

    Args:
        check: takes the arguments and, if it has two parameters, the context.
        arguments: of the call.
        context: the call's `ToolContext`.

    Raises:
        TypeError: it answers something else.
    """
    positional = (arguments, context) if _takes_context(check) else (arguments,)
    if inspect.iscoroutinefunction(check):
        answer: Any = await check(*positional)
    else:
        answer = await asyncio.to_thread(check, *positional)
        if inspect.isawaitable(answer):
            answer = await answer
    if not isinstance(answer, CheckResult):
        raise TypeError(
            "a check returns Happened(output), DidNotHappen() or CannotTell(), "
            f"got {type(answer).__name__}"
        )
    return answer


def _takes_context(check: CheckCallable) -> bool:
    """Return True if a check takes two arguments."""
    try:
        inspect.signature(check).bind(None, None)
    except TypeError:
        return False
    return True

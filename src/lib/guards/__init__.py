"""Checks of what models read, say and do: what a guard is, and those that come with the library.

A guard sees content and allows or blocks it. `LLMHandler(client, guards=[…])` lets guards see what
is new to the model before a call ("input") and what it answers before anything else sees that
("output"); `ToolHandler(tools, guards=[…])` lets them see the arguments of a call before its effect
("tool_call") and what came of it before the model does ("tool_result").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lib._util.lazy import lazy_exports
from lib.guards.guard import STAGES, Guard, GuardContent, Stage, Verdict
from lib.guards.run import Check, Checks, check_all

if TYPE_CHECKING:
    from lib.guards.injection import InjectionGuard
    from lib.guards.judge import LLMGuard
    from lib.guards.sensitive import SensitiveDataGuard

__all__ = [
    "STAGES",
    "Check",
    "Checks",
    "Guard",
    "GuardContent",
    "InjectionGuard",
    "LLMGuard",
    "SensitiveDataGuard",
    "Stage",
    "Verdict",
    "check_all",
]

if not TYPE_CHECKING:  # type checkers are to see misspelt names
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "InjectionGuard": "lib.guards.injection",
            "LLMGuard": "lib.guards.judge",
            "SensitiveDataGuard": "lib.guards.sensitive",
        },
    )

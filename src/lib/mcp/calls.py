"""The steps of a call of a tool: its arguments, a person's approval, and its time-out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from lib._util.json import canonical, copied
from lib.errors import ToolError
from lib.llm.schema import violations
from lib.mcp.inputs import INPUTS, InputRequired, form
from lib.mcp.sdk import MCPError, types
from lib.tools import FunctionTool, Tool, ToolContext
from lib.tools.output import clip

_log = logging.getLogger("lib.mcp")

_MAX_PROBLEMS: Final = 5
_MAX_SHOWN_CHARS: Final = 2_000
_APPROVAL: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Allow it"}},
    "required": ["approve"],
}


def check_arguments(tool: Tool, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that do not fit the schema; tools of `@tool` check theirs themselves.

    Raises:
        ToolError: they do not, or the schema cannot be read.
    """
    if isinstance(tool, FunctionTool):
        return
    try:
        problems = [*islice(violations(dict(arguments), tool.input_schema), _MAX_PROBLEMS)]
    except ValueError as error:
        _log.warning("the input schema of tool %r cannot be read: %s", tool.name, error)
        raise ToolError("invalid_arguments", "the schema of the tool cannot be read") from error
    if problems:
        raise ToolError("invalid_arguments", "; ".join(problems))


def approval_question(name: str, arguments: Mapping[str, Any]) -> types.ElicitRequest:
    """Return the question to a person whether a tool may be called."""
    shown, _ = clip(canonical(arguments), _MAX_SHOWN_CHARS)
    return form(f"Allow the call of {name!r} with {shown}?", _APPROVAL)


def is_approved(answer: types.InputResponse) -> bool:
    """Return True if the answer to an `approval_question` is a clear yes."""
    match answer:
        case types.ElicitResult(action="accept", content={"approve": True}):
            return True
        case _:
            return False


def can_approve(tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """Return True if a call needs no approval, or its client can ask a person for it."""
    needed = tool.needs_approval(copied(dict(arguments)))
    return not needed or INPUTS.get().can_ask(approval_question(tool.name, arguments))


def require_approval(tool: Tool, arguments: Mapping[str, Any]) -> None:
    """Let a call pass that a person has approved, or that needs no approval.

    Raises:
        InputRequired: the person behind the client must decide.
        ToolError: the person has refused, or cannot be reached.
    """
    if not tool.needs_approval(copied(dict(arguments))):
        return
    question = approval_question(tool.name, arguments)
    inputs = INPUTS.get()
    if not inputs.can_ask(question):
        raise ToolError("denied", "not called: a person must approve it, whom nothing can ask here")
    if not is_approved(inputs.ask({"approval": question}, sealed=True)["approval"]):
        raise ToolError("denied", "not called: a person has refused it")


async def call_tool(tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Any:
    """Return what a tool returns.

    Raises:
        ToolError: every failure, in words that any client may read.
    """
    deadline = asyncio.timeout(tool.timeout_s)
    try:
        async with deadline:
            return await tool.call(arguments, context)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise ToolError("failed", "the tool was cancelled by something of its own") from error
    except (ToolError, MCPError, InputRequired):
        raise
    # Around a tool call: whatever it raises is a result, even that it wants to exit.
    except (Exception, SystemExit) as error:
        if deadline.expired():
            raise ToolError("timeout", f"no answer within {tool.timeout_s:g} s") from error
        _log.exception("tool %r failed", tool.name)
        raise ToolError("failed", "the tool failed; the log of its server says why") from error

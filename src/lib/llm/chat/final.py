"""Asked outputs by way of a tool, for servers that cannot constrain a reply and take tools at once.

Ollama and llama.cpp constrain the whole reply to the schema, which leaves no token with which the
model could call a tool. So the answer becomes the arguments of one more tool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lib.llm.client import Output, Reply, ToolSpec
from lib.llm.output import output_schema
from lib.llm.parts import Part, Text, ToolCall
from lib.llm.pieces import arguments_text

NAME: Final = "final_answer"
_DESCRIPTION: Final = "Give the final answer. Call this once you have it, instead of writing text."


def with_final_tool(
    output: Output, tools: Sequence[ToolSpec], settings: Mapping[str, Any] | None
) -> tuple[Sequence[ToolSpec], Mapping[str, Any]]:
    """Return the tools and settings that make the model answer through a tool."""
    final = ToolSpec(NAME, _DESCRIPTION, output_schema(output))
    return (*tools, final), {"tool_choice": "required" if tools else NAME, **(settings or {})}


def without_final_call(reply: Reply) -> Reply:
    """Return the reply with the answer as its text.

    An answer beside calls of other tools is dropped: it cannot rest on their results.
    """
    finals = [call for call in reply.tool_calls if call.name == NAME]
    if not finals:
        return reply
    others = [part for part in reply.parts if part not in finals]
    if any(isinstance(part, ToolCall) for part in others):
        return replace(reply, parts=tuple(others))
    thinking: list[Part] = [part for part in others if not isinstance(part, Text)]
    stop = "stop" if reply.stop == "tool_calls" else reply.stop
    return replace(reply, parts=(*thinking, Text(arguments_text(finals[0]))), stop=stop)

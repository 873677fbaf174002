"""Tools by which people see, correct and erase in a conversation what is remembered of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from lib.errors import ToolError
from lib.memory.facts import Fact, iso, words_of
from lib.tools import Tool, ToolContext, tool

if TYPE_CHECKING:
    from lib.llm import LLMClient
    from lib.memory.memory import Memory

MAX_LISTED: Final = 50
CHANGING_TOOLS: Final = frozenset({"correct_memory", "forget_memories"})
"""The tools that change a memory: of the user's words in such a run nothing is remembered."""


class MemoryTools:
    """Offers `list_memories`, `correct_memory` and `forget_memories` to an agent.

    `Agent(model, memory=memory, tools=[MemoryTools(memory)])`: the user asks what is known of them,
    and has it corrected or forgotten. The tools reach the memory of the run's own user alone. What
    a user says in a run in which they changed their memory is not remembered: "forget that I live
    in Berlin" says that they do.
    """

    def __init__(self, memory: Memory, *, approval: bool = True) -> None:
        """Describe the tools; nothing is opened yet.

        Args:
            memory: whose facts they show and change.
            approval: whether a person confirms each change, whose arguments are the words of the
                facts. False leaves the decision to the model, which may have read what strangers
                write.
        """
        self._memory = memory
        self._approval = approval

    def open_tools(self, models: Sequence[LLMClient]) -> OpenMemoryTools:
        """Return the tools for one engine, with a connection of their own."""
        return OpenMemoryTools(self._memory.open(), self._approval)


class OpenMemoryTools:
    """The tools of a memory as one engine uses them.

    Attributes:
        tools: the three.
    """

    def __init__(self, memory: Memory, approval: bool) -> None:
        """Make them; `MemoryTools` does."""
        self._memory = memory
        self.tools: Sequence[Tool] = _tools(memory, approval)

    async def refresh(self) -> None:
        """Do nothing: they never change."""

    async def aclose(self) -> None:
        """Close the connection of the memory."""
        await self._memory.aclose()


def _tools(memory: Memory, approval: bool) -> Sequence[Tool]:
    @tool(effects="none", untrusted_output=True)
    async def list_memories(
        context: ToolContext,
        about: Annotated[str, Field(description="What to look for; empty for the newest.")] = "",
    ) -> dict[str, Any]:
        """Return what is remembered of the user from earlier conversations, with dates."""
        whose = _whose(memory, context)
        if about.strip():
            facts = await memory.recall(about, **whose, k=MAX_LISTED)
        else:
            facts = await memory.list(**whose)
        shown = [{"text": fact.text, "said_at": iso(fact.said_at)} for fact in facts[:MAX_LISTED]]
        left_out = len(facts) - len(shown)
        return {"memories": shown, **({"left_out": left_out} if left_out else {})}

    @tool(effects="idempotent", approval=approval)
    async def correct_memory(
        context: ToolContext,
        memory_text: Annotated[str, Field(description="What is remembered, word by word.")],
        correction: Annotated[str, Field(description="What is true, in one sentence.")],
    ) -> dict[str, Any]:
        """Put what is true in the place of something remembered that the user says is wrong."""
        whose = _whose(memory, context)
        found = await _find(memory, memory_text, whose)
        if not found:
            raise ToolError(
                "not_found",
                "nothing is remembered in these words: list_memories returns what is, word by word",
            )
        try:
            fact = await memory.correct(found[0].id, correction, **whose)
        except ValueError as error:
            raise ToolError("invalid_arguments", f"{error}") from error
        return {"memory": fact.text}

    @tool(effects="idempotent", approval=approval)
    async def forget_memories(
        context: ToolContext,
        memories: Annotated[
            list[str],
            Field(description="What to forget, word by word.", min_length=1, max_length=MAX_LISTED),
        ],
    ) -> dict[str, Any]:
        """Delete for good what the user wants to be forgotten."""
        whose = _whose(memory, context)
        found = {text: await _find(memory, text, whose) for text in dict.fromkeys(memories)}
        await memory.forget([fact.id for facts in found.values() for fact in facts], **whose)
        unknown = [text for text, facts in found.items() if not facts]
        gone = [text for text, facts in found.items() if facts]
        return {"forgotten": gone, **({"not_remembered": unknown} if unknown else {})}

    return (list_memories, correct_memory, forget_memories)


def _whose(memory: Memory, context: ToolContext) -> dict[str, Any]:
    """Return tenant and user of the run."""
    if context.user is None and not memory.shared:
        raise ToolError("unavailable", "nothing is remembered here: this run names no user")
    return {"tenant": context.tenant, "user": context.user}


async def _find(memory: Memory, text: str, whose: dict[str, Any]) -> Sequence[Fact]:
    """Return the facts of these words, current ones first."""
    wanted = words_of(text)
    facts = await memory.list(**whose, superseded=True)
    found = [fact for fact in facts if words_of(fact.text) == wanted]
    return sorted(found, key=lambda fact: not fact.current)

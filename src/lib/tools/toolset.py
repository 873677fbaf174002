"""Toolsets: tools that others define and may change, such as those of a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lib.llm import LLMClient
from lib.tools.definition import Tool


class OpenToolset(Protocol):
    """The tools of a toolset as one engine uses them."""

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools as they were last found; none before the first `refresh`."""
        ...

    async def refresh(self) -> None:
        """Find the tools again if what is known of them is too old.

        An engine awaits it before a model gets the tools. It ends within a time-out of its own and
        raises nothing: while their owner is down, the tools are those found before.
        """
        ...

    async def aclose(self) -> None:
        """Release everything; an engine awaits it when it closes. Safe to repeat."""
        ...


class Toolset(Protocol):
    """A description of where tools come from; each engine opens it for itself."""

    def open_tools(self, models: Sequence[LLMClient]) -> OpenToolset:
        """Return the tools for one engine; nothing is connected yet.

        Args:
            models: those of the agent that uses the tools.
        """
        ...

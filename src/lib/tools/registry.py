"""The tools of an agent, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Final, cast

from lib.errors import ToolError
from lib.tools.definition import Tool

_SHOWN_CHARS: Final = 64


class ToolRegistry:
    """Tools with distinct names, in the order in which they were given."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        """Keep the tools.

        Raises:
            TypeError: one is no `Tool`, or a single one or its name was given.
            ValueError: two of them have one name.
        """
        if isinstance(tools, Tool):
            raise TypeError(f"tools are given as a list: write [{tools.name}]")
        if isinstance(tools, str) or not hasattr(tools, "__iter__"):
            got = type(tools).__name__
            raise TypeError(f"tools are given as a list, such as [refund], got {got}")
        self._tools: dict[str, Tool] = {}
        for tool in cast(Iterable[object], tools):
            if not isinstance(tool, Tool):
                raise TypeError(f"{tool!r:.100} is no tool: write @tool before the function")
            if tool.name in self._tools:
                raise ValueError(f"two tools are named {tool.name!r}: rename one of them")
            self._tools[tool.name] = tool

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def get(self, name: str, *, among: Sequence[str] | None = None) -> Tool:
        """Return the tool of this name.

        Args:
            name: as the model wrote it.
            among: the names that it may use, None for all.

        Raises:
            ToolError: there is none; the message names a close one.
        """
        usable = [known for known in self._tools if among is None or known in among]
        if name in usable:
            return self._tools[name]
        close = get_close_matches(name, usable, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there is {', '.join(usable) or 'none'}"
        raise ToolError("not_found", f"no tool is named {name[:_SHOWN_CHARS]!r}: {hint}")

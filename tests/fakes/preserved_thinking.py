"""The seals of a fake server of Claude models: bound to the model and to all that stood before.

A block of thinking is taken back only by its model and behind the same instructions, tools and
messages; marks of the cache are left out of the comparison. A block behind one that is missing or
has changed is bound to another conversation, too. Models with a budget for thinking (type
"enabled") are older: they do not compare, and their last turn must begin with its thinking while
its calls are answered.

Source: Anthropic, "Preserved thinking" and "Prefix checks on thinking blocks"
(platform.claude.com, 2026-11), for accounts created since 2026-08-31; AWS says the same of Bedrock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

Block = Mapping[str, Any]


class PreservedThinking:
    """The seals of a server, and the places that they belong to."""

    def __init__(
        self,
        seal_of: Callable[[Block], str | None],
        conditions: Callable[[Mapping[str, Any]], Sequence[Any]],
        marks: Sequence[str],
    ) -> None:
        """Take what differs between wires.

        Args:
            seal_of: returns the seal of a block, None if it is no thinking.
            conditions: returns the instructions and the tools of a request.
            marks: members of blocks, and blocks, that mark the cache.
        """
        self._seal_of, self._conditions, self._marks = seal_of, conditions, marks
        self._places: dict[tuple[str, str], set[str]] = {}

    def seal(self, body: Mapping[str, Any], blocks: Sequence[Block]) -> None:
        """Remember where the thinking of a reply stands."""
        earlier: list[str] = []
        for seal in filter(None, map(self._seal_of, blocks)):
            place = self._place(body, body["messages"], earlier)
            self._places.setdefault((body["model"], seal), set()).add(place)
            earlier.append(seal)

    def problems(self, body: Mapping[str, Any], thinking: Mapping[str, Any]) -> Iterator[str]:
        """Yield what is wrong with the thinking in a request.

        Args:
            body: with the model.
            thinking: the setting of that name.
        """
        messages, compares = body["messages"], thinking.get("type") != "enabled"
        for number, message in enumerate(messages):
            earlier: list[str] = []
            for at, block in enumerate(_blocks(message)):
                if (seal := self._seal_of(block)) is None:
                    continue
                invalid = f"messages.{number}.content.{at}: Invalid `signature` in `thinking` block"
                places = self._places.get((body["model"], seal))
                if places is None:
                    yield invalid
                elif compares and self._place(body, messages[:number], earlier) not in places:
                    yield (
                        f"{invalid}. The block is bound to a different conversation. Remove the "
                        "block, or set `thinking.block_binding.prefix_mismatch_behavior` to "
                        '"drop_block".'
                    )
                earlier.append(seal)
        first = _blocks(messages[-2])[0] if _answers_calls(messages) else None
        if first is not None and not compares and self._seal_of(first) is None:
            yield (
                f"messages.{len(messages) - 2}.content.0.type: Expected `thinking` or "
                "`redacted_thinking`. When `thinking` is enabled, a final `assistant` message must "
                "start with a thinking block"
            )

    def _place(
        self, body: Mapping[str, Any], messages: Sequence[Block], earlier: Sequence[str]
    ) -> str:
        return json.dumps(
            [self._unmarked([*self._conditions(body), *messages]), earlier], sort_keys=True
        )

    def _unmarked(self, value: Any) -> Any:
        match value:
            case list():
                items = [self._unmarked(each) for each in cast(list[Any], value)]
                return [each for each in items if each != {}]
            case dict():
                members = cast(dict[str, Any], value).items()
                return {name: self._unmarked(of) for name, of in members if name not in self._marks}
            case _:
                return value


def _answers_calls(messages: Sequence[Block]) -> bool:
    last = _blocks(messages[-1])
    return any(block.get("type") == "tool_result" or "toolResult" in block for block in last)


def _blocks(message: Block) -> Sequence[Block]:
    """Return the blocks of a message, none of one whose content is a text."""
    content = message["content"]
    return cast("list[Block]", content) if isinstance(content, list) else ()

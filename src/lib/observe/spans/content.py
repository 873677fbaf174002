"""Content of spans: hidden, or cut to a limit. Pure.

Sizes are characters, of a text itself and of the JSON of everything else. What is too long keeps
its shape: texts are cut, the last items of lists and the largest of objects are left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from lib._util.json import canonical

MARK: Final = "…"
"""Ends a text that was cut."""

_MAX_DEPTH: Final = 32
_DESCRIBED: Final = ("type", "name", "description")
_WHOLE: Final = (*_DESCRIBED, "parameters")


Definitions = Callable[[Sequence[str], str], Sequence[Mapping[str, Any]] | None]
"""Takes names of tools and the digest of their definitions as sent to a model; returns these
definitions, objects with name, description and parameters, or None if they are not available."""


class Content:
    """Cuts or hides pieces of content."""

    def __init__(
        self, *, capture: bool, limit: int, definitions: Definitions | None = None
    ) -> None:
        """Set what may be shown.

        Args:
            capture: whether anything may be.
            limit: characters of each piece.
            definitions: of tools, of which a log holds the names.

        Raises:
            ValueError: the limit is negative.
        """
        if limit < 0:
            raise ValueError(f"content_limit={limit!r} is negative: 0 shows nothing")
        self.capture = capture
        self._limit = limit
        self._definitions = definitions

    def show(self, value: Any) -> Any:
        """Return the value as far as it may be shown, else None."""
        if not self.capture or value is None:
            return None
        if isinstance(value, str):
            return _cut(value, self._limit)
        fitted = _fit(value, self._limit)
        return None if fitted is None else fitted[0]

    def tools(self, names: Sequence[str], tools_digest: str) -> Any:
        """Return the tools that a model may call, as far as they may be shown.

        What is too long together is left out of all of them: parameters first, then descriptions.
        """
        if not self.capture or not names:
            return None
        whole = self._definitions and self._definitions(names, tools_digest)
        for fields in (_WHOLE, _DESCRIBED):
            tools = [{name: each[name] for name in fields if name in each} for each in whole or ()]
            if tools and len(canonical(tools)) <= self._limit:
                return tools
        return self.show([{"type": "function", "name": name} for name in names])

    def newest(self, conversation: Conversation) -> tuple[Any, int]:
        """Return the newest messages that may be shown together, and how many older ones may not.

        At least the last message is shown, in part if need be.
        """
        if not conversation.messages:
            return None, 0
        shown = conversation.fitting(self._limit)
        if shown:
            return conversation.messages[-shown:], len(conversation.messages) - shown
        return self.show(conversation.messages[-1:]), len(conversation.messages) - 1


class Conversation:
    """The messages of a run so far, each once, with its size."""

    def __init__(self, *, kept: bool) -> None:
        """Create an empty conversation.

        Args:
            kept: whether to keep messages at all.
        """
        self._kept = kept
        self.messages: list[Any] = []
        self._sizes: list[int] = []
        self._calls: dict[str, Any] = {}

    def add(self, message: Any) -> None:
        """Add a message as the log holds it."""
        if not self._kept:
            return
        self.messages.append(message)
        self._sizes.append(len(canonical(message)))

    def call(self, key: str) -> None:
        """Note a call whose answer belongs to the conversation."""
        if self._kept:
            self._calls[key] = None

    def answer(self, key: str, message: Any) -> None:
        """Note the answer of a call."""
        if self._kept:
            self._calls[key] = message

    def add_answers(self) -> None:
        """Add the answers so far in the order of their calls, before a model call."""
        for key, message in list(self._calls.items()):
            if message is not None:
                self.add(message)
                del self._calls[key]

    def fitting(self, limit: int) -> int:
        """Return how many of the newest messages fit together, looking at no others."""
        room, count = limit - 1, 0
        for size in reversed(self._sizes):
            room -= size + 1
            if room < 0:
                break
            count += 1
        return count


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: max(limit - 1, 0)]}{MARK}"[:limit]


def _fit(value: Any, room: int, depth: int = 0) -> tuple[Any, int] | None:
    """Return as much of a value as takes `room` characters of JSON, and how many it takes."""
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, str):
        return _fit_text(value, room)
    if isinstance(value, Mapping):
        return _fit_object(cast("Mapping[str, Any]", value), room, depth)
    if isinstance(value, list | tuple):
        return _fit_list(cast("Sequence[Any]", value), room, depth)
    size = len(canonical(value))
    return (value, size) if size <= room else None


def _fit_text(text: str, room: int) -> tuple[str, int] | None:
    if len(text) < room and (size := len(canonical(text))) <= room:
        return text, size

    def size_of(kept: int) -> int:  # not a sum: escapes take more than one character
        return len(canonical(text[:kept] + MARK))

    fitting = bisect_right(range(max(min(len(text), room), 0)), room, key=size_of)
    return (text[: fitting - 1] + MARK, size_of(fitting - 1)) if fitting else None


def _fit_list(items: Sequence[Any], room: int, depth: int) -> tuple[list[Any], int] | None:
    used, kept = 2, list[Any]()
    for item in items:
        comma = 1 if kept else 0
        fitted = _fit(item, room - used - comma, depth + 1)
        if fitted is None:
            break
        kept.append(fitted[0])
        used += comma + fitted[1]
    return (kept, used) if used <= room else None


def _fit_object(
    items: Mapping[str, Any], room: int, depth: int
) -> tuple[dict[str, Any], int] | None:
    used, kept = 2, dict[str, Any]()
    for key in sorted(items, key=lambda key: (len(canonical(items[key])), key)):
        name = len(canonical(key)) + (2 if kept else 1)  # with its colon and its comma
        fitted = _fit(items[key], room - used - name, depth + 1)
        if fitted is None:
            break
        kept[key] = fitted[0]
        used += name + fitted[1]
    return ({key: kept[key] for key in sorted(kept)}, used) if used <= room else None

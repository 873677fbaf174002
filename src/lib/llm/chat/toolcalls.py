"""Tool calls from their fragments, in every dialect that servers speak.

The reference is OpenAI's: the first fragment of a call has an index, an id and the name, the next
ones have the index and a piece of the arguments' JSON. Others leave out the index (Ollama before
0.4.7), give every call the index 0 (Ollama, Dynamo), repeat id and name on each fragment (vLLM),
give no id or the same one to each call, send a call whole, or its arguments as an object. Hence:

- A fragment with a name begins a call, unless it repeats the head of one that has begun: it has
  the same name, no other id, and the arguments of that call are not complete yet.
- A fragment without a name continues the call with its index and id, else with its id, else with
  its index, else, having no index, the last one.
- An id that is missing or was already used in the conversation is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from lib.errors import InvalidReply
from lib.llm.chat.request import KEPT
from lib.llm.client import ToolCallDelta
from lib.llm.parts import ToolCall
from lib.llm.wire import fields
from lib.llm.wire.arguments import arguments_text, read_arguments


@dataclass(slots=True)
class _Open:
    """A call that is still being written."""

    place: int
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    kept: dict[str, Any] = field(default_factory=dict[str, Any])

    def is_complete(self) -> bool:
        text = "".join(self.pieces)
        return bool(text.strip()) and read_arguments(text)[1] is None

    def is_begun_by(self, call_id: str, name: str, arguments: str) -> bool:
        """Tell whether a fragment with a name repeats or completes the head of this call."""
        if self.name not in {"", name} or (self.id and call_id not in {"", self.id}):
            return False
        return not (arguments.lstrip().startswith("{") and self.is_complete())


class ToolCallAssembler:
    """Takes fragments and gives calls."""

    def __init__(self) -> None:
        self._calls: list[_Open] = []
        self._by_index: dict[int | None, _Open] = {}
        self._by_id: dict[str, _Open] = {}

    def add(self, fragment: Mapping[str, Any], *, whole: bool = False) -> ToolCallDelta:
        """Take one item of a `tool_calls` list and return what it adds.

        Args:
            fragment: the item.
            whole: it is a call of its own, not a piece of one.
        """
        function = fields.mapping(fragment, "function")
        call_id, name = fields.text(fragment, "id"), fields.text(function, "name")
        arguments = arguments_text(function.get("arguments"))
        index = fragment.get("index")
        index = index if isinstance(index, int) else None
        call = None if whole else self._find(index, call_id, name, arguments)
        if call is None:
            call = _Open(len(self._calls))
            self._calls.append(call)
            self._by_index[index] = call
        call.id, call.name = call.id or call_id, call.name or name
        if call_id:
            self._by_id.setdefault(call_id, call)
        call.pieces.append(arguments)
        for key in KEPT:
            if fragment.get(key) is not None and fields.is_shallow(fragment[key]):
                call.kept[key] = fragment[key]
        return ToolCallDelta(call.place, call_id, name, arguments)

    def calls(
        self, used_ids: Collection[str], new_id: Callable[[], str], *, cut_off: bool = False
    ) -> list[ToolCall]:
        """Return the calls, each with an id that is not among `used_ids`.

        Args:
            used_ids: which the conversation already has.
            new_id: makes others.
            cut_off: the model had no room to end: a last call whose arguments have not begun is
                invalid, and none without arguments.

        Raises:
            InvalidReply: a call has no name.
        """
        taken = set(used_ids)
        out: list[ToolCall] = []
        for call in self._calls:
            if not call.name:
                raise InvalidReply("the reply holds a tool call without a name", retryable=True)
            call_id = call.id if call.id and call.id not in taken else new_id()
            taken.add(call_id)
            text = "".join(call.pieces)
            arguments, invalid = read_arguments(text)
            if cut_off and call is self._calls[-1] and not text.strip():
                invalid = text
            out.append(ToolCall(call_id, call.name, arguments, invalid, extra=call.kept))
        return out

    def _find(self, index: int | None, call_id: str, name: str, arguments: str) -> _Open | None:
        indexed, known = self._by_index.get(index), self._by_id.get(call_id)
        if name:
            call = known if index is None else indexed
            return call if call and call.is_begun_by(call_id, name, arguments) else None
        if indexed and call_id == indexed.id:
            return indexed
        last = self._calls[-1] if self._calls and index is None else None
        return known or indexed or last

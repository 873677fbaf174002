"""A reply that comes in numbered blocks, some of them in pieces."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from lib.errors import InvalidReply
from lib.llm.api.fields import read_arguments
from lib.llm.client import Delta, Stop, ToolCallDelta
from lib.llm.parts import Part, Text, Thinking, ToolCall


@dataclass(slots=True)
class _Block:
    kind: str
    pieces: list[str] = field(default_factory=list[str])
    signature: str | None = None
    id: str = ""
    name: str = ""
    place: int = 0
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    part: Part | None = None


class Blocks:
    """Takes what a server adds to its blocks, gives deltas, and in the end the parts."""

    def __init__(self, used_ids: Collection[str], new_id: Callable[[], str]) -> None:
        """Start.

        Args:
            used_ids: ids of tool calls that the conversation already has.
            new_id: makes ids for tool calls that come without a usable one.
        """
        self._used_ids, self._new_id = used_ids, new_id
        self._blocks: dict[int, _Block] = {}
        self._calls = 0

    def __len__(self) -> int:
        return len(self._blocks)

    def text(self, number: int, piece: str) -> list[Delta]:
        """Add text."""
        self._block(number, "text").pieces.append(piece)
        return [Delta(text=piece)] if piece else []

    def thinking(self, number: int, piece: str) -> list[Delta]:
        """Add thinking."""
        self._block(number, "thinking").pieces.append(piece)
        return [Delta(thinking=piece)] if piece else []

    def sign(self, number: int, signature: str | None) -> None:
        """Note the server's seal on thinking, text or a call."""
        block = self._block(number, "thinking")
        block.signature = signature or block.signature

    def note(self, number: int, key: str, value: Any) -> None:
        """Add to what belongs to a text or a call and has no field."""
        self._block(number, "text").extra.setdefault(key, []).append(value)

    def call(self, number: int, call_id: str, name: str, arguments: str = "") -> list[Delta]:
        """Begin a tool call."""
        block = self._blocks[number] = _Block("call", id=call_id, name=name, place=self._calls)
        self._calls += 1
        head = Delta(tool_call=ToolCallDelta(block.place, call_id, name))
        return [head, *self.arguments(number, arguments)]

    def arguments(self, number: int, piece: str) -> list[Delta]:
        """Add to the arguments of a tool call."""
        block = self._block(number, "call")
        block.pieces.append(piece)
        shown = piece and block.kind == "call"
        return [Delta(tool_call=ToolCallDelta(block.place, arguments=piece))] if shown else []

    def keep(self, number: int, part: Part) -> None:
        """Add a part that came whole."""
        self._blocks[number] = _Block("part", part=part)

    def parts(self, *, cut_off: bool = False) -> tuple[Part, ...]:
        """Return the parts, each call with an id that the conversation does not have.

        Args:
            cut_off: the model had no room to end: a last call whose arguments have not begun is
                invalid, and none without arguments.

        Raises:
            InvalidReply: a call has no name.
        """
        taken, out = set(self._used_ids), list[Part]()
        blocks = [block for _, block in sorted(self._blocks.items())]
        for block in blocks:
            text = "".join(block.pieces)
            match block.kind:
                case "call":
                    begun = bool(text.strip()) or not (cut_off and block is blocks[-1])
                    call = self._tool_call(block, text, taken, begun=begun)
                    taken.add(call.id)
                    out.append(call)
                case "thinking":
                    if text or block.signature:
                        out.append(Thinking(text, block.signature))
                case "part" if block.part is not None:
                    out.append(block.part)
                case _:
                    if text or block.signature:
                        out.append(Text(text, extra=_extra(block)))
        return tuple(out)

    def end(
        self, stop: Stop, *, complete: bool, cut_off: bool = False
    ) -> tuple[tuple[Part, ...], Stop]:
        """Return the parts, and why the model stopped: to call tools, if there are calls.

        Args:
            stop: the reason that the server gives.
            complete: the server has sent the whole reply.
            cut_off: see `parts`.

        Raises:
            InvalidReply: it has not, or a call has no name.
        """
        if not complete:
            raise InvalidReply("the stream ended before the reply did", retryable=True)
        calls = self._calls and stop == "stop"
        return self.parts(cut_off=cut_off), "tool_calls" if calls else stop

    def _tool_call(
        self, block: _Block, text: str, taken: Collection[str], *, begun: bool
    ) -> ToolCall:
        if not block.name:
            raise InvalidReply("the reply holds a tool call without a name", retryable=True)
        call_id = block.id if block.id and block.id not in taken else self._new_id()
        arguments, invalid = read_arguments(text)
        return ToolCall(
            call_id, block.name, arguments, invalid if begun else text, extra=_extra(block)
        )

    def _block(self, number: int, kind: str) -> _Block:
        """Return a block; one that has begun stays what it is, whatever comes for it."""
        return self._blocks.setdefault(number, _Block(kind))


def _extra(block: _Block) -> dict[str, Any]:
    sealed = {} if block.signature is None else {"signature": block.signature}
    return {**block.extra, **sealed}

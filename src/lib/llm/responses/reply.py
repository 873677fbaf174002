"""A reply from a response: from the events of a stream, or at once.

What a stream shows on the way is for display. The reply is made of the finished items: of
those in the response that ends the stream, or, where a server leaves them out there, of those that
it has called done.

Source: OpenAI API reference, "Streaming events" and "The response object"
(developers.openai.com, 2026-11), and the types of openai-python 3.52.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from lib.errors import InvalidReply, LLMError
from lib.llm.api import fields
from lib.llm.api.conversation import Origin, provider_block, sealed
from lib.llm.api.fields import arguments_text, read_arguments
from lib.llm.client import Delta, Reply, Stop, ToolCallDelta, Usage
from lib.llm.parts import Part, Text, Thinking, ToolCall
from lib.llm.responses.request import PHASE, WIRE
from lib.llm.responses.state import handle, ignored, reported

_TEXT: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})
_THINKING: Final = frozenset(
    {"response.reasoning_summary_text.delta", "response.reasoning_text.delta"}
)
_BEGUN: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_ENDED: Final = frozenset(
    {"response.cancelled", "response.completed", "response.failed", "response.incomplete"}
)
_STOPS: Final[Mapping[str, Stop]] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}
_PARAGRAPH: Final = "\n\n"

_Object = Mapping[str, Any]


class ReplyBuilder:
    """Takes the server's JSON objects and gives deltas, then the reply.

    Attributes:
        complete: the response has ended, so that the reply is whole.
        ended: the same; nothing follows.
    """

    def __init__(
        self,
        *,
        used_ids: Collection[str],
        new_id: Callable[[], str],
        server: str,
        store: bool,
        previous: str,
        ignored: Callable[[], LLMError] = ignored,
    ) -> None:
        """Start.

        Args:
            used_ids: ids of tool calls that the conversation already has.
            new_id: makes ids for tool calls that come without a usable one.
            server: the host of the request.
            store: whether it may keep the conversation.
            previous: the id of the response that the request continues, "" for none.
            ignored: makes the error of a server that has gone on from nothing.
        """
        self._used_ids, self._new_id = used_ids, new_id
        self._server, self._store, self._previous = server, store, previous
        self._ignored = ignored
        self._items: dict[int, _Object] = {}
        self._places: dict[int, int] = {}
        self._shown: set[int] = set()
        self._thought = (-1, -1)
        self._response: _Object = {}
        self._status = ""
        self.complete: bool = False
        self.ended: bool = False
        self.request_id: str = ""

    def add(self, chunk: Any, *, whole: bool = False, name: str = "") -> list[Delta]:
        """Take one JSON value and return what it adds.

        Args:
            chunk: an event of the stream.
            whole: it is a response, the answer to a request for no stream.
            name: what the stream calls the event, for servers that do not repeat it in there.

        Raises:
            LLMError: it is an error that the server reports; `state_lost` where that is for the
                handle, or where the server has answered without it.
            InvalidReply: it is neither.
        """
        if not isinstance(chunk, dict):
            raise _unreadable()
        event = cast(_Object, chunk)
        if whole:
            return [*self._end(event, "")]
        kind = fields.text(event, "type") or name
        if "error" in {kind, name} or (event.get("error") and not kind):
            error = {key: value for key, value in event.items() if value != "error"}
            raise reported(error, previous=self._previous)
        if kind in _BEGUN:
            self._begin(fields.mapping(event, "response"))
        if kind in _ENDED:
            status = kind.removeprefix("response.")
            return [*self._end(fields.mapping(event, "response"), status)]
        return [*self._piece(kind, event)]

    def reply(self) -> Reply:
        """Return the reply.

        Raises:
            InvalidReply: it is not complete, or holds a tool call without a name.
        """
        if not self.complete:
            raise InvalidReply("the stream ended before the reply did", retryable=True)
        parts, own_ids = self._parts(self._finished())
        response_id = fields.text(self._response, "id")
        kept = self._store and self._response.get("store") is not False
        state = None
        if kept and own_ids and response_id and self._status == "completed":
            state = handle(response_id, self._server)
        return Reply(
            parts,
            _usage(fields.mapping(self._response, "usage")),
            self._stop(parts),
            fields.text(self._response, "model"),
            response_id,
            state,
        )

    # -- what comes ----------------------------------------------------------------------------

    def _begin(self, response: _Object) -> None:
        """Notice early that the server goes on from nothing, before any of that is shown."""
        if "previous_response_id" in response:
            self._check(response)

    def _check(self, response: _Object) -> None:
        if self._previous and response.get("previous_response_id") != self._previous:
            raise self._ignored()

    def _piece(self, kind: str, event: _Object) -> Iterator[Delta]:
        number, delta = fields.count(event, "output_index"), fields.text(event, "delta")
        if kind in _TEXT and delta:
            self._shown.add(number)
            yield Delta(text=delta)
        elif kind in _THINKING and delta:
            yield Delta(thinking=self._paragraph(event, number) + delta)
            self._shown.add(number)
        elif kind == "response.function_call_arguments.delta" and delta:
            self._shown.add(number)
            yield Delta(tool_call=ToolCallDelta(self._place(number), arguments=delta))
        elif kind == "response.output_item.added":
            yield from self._head(number, fields.mapping(event, "item"))
        elif kind == "response.output_item.done":
            self._items[number] = fields.mapping(event, "item")
            yield from self._rest(number, self._items[number])

    def _end(self, response: _Object, status: str) -> Iterator[Delta]:
        status = fields.text(response, "status") or status or "completed"
        if response.get("error") or status == "failed":
            raise reported(response.get("error"), previous=self._previous)
        if not (response.get("output") or self._items or response.get("status")):
            raise _unreadable()
        if status not in {"completed", "incomplete"}:
            raise InvalidReply("the server has not finished the response", retryable=True)
        self._check(response)
        self._response, self._status = response, status
        self.complete = self.ended = True
        if not self._shown:
            for number, item in enumerate(self._finished()):
                yield from self._rest(number, item)

    # -- what is shown -------------------------------------------------------------------------

    def _paragraph(self, event: _Object, number: int) -> str:
        """Return what stands between this piece of thinking and the one before it."""
        index = max(fields.count(event, "summary_index"), fields.count(event, "content_index"))
        before, self._thought = self._thought, (number, index)
        return _PARAGRAPH if before[0] == number and before[1] != index else ""

    def _place(self, number: int) -> int:
        return self._places.setdefault(number, len(self._places))

    def _head(self, number: int, item: _Object) -> Iterator[Delta]:
        if item.get("type") == "function_call" and number not in self._places:
            call_id, name = fields.text(item, "call_id"), fields.text(item, "name")
            yield Delta(tool_call=ToolCallDelta(self._place(number), call_id, name))

    def _rest(self, number: int, item: _Object) -> Iterator[Delta]:
        """Yield what of a finished item was not shown while it was written."""
        yield from self._head(number, item)
        if number in self._shown:
            return
        self._shown.add(number)
        arguments = arguments_text(item.get("arguments"))
        if item.get("type") == "function_call" and arguments:
            yield Delta(tool_call=ToolCallDelta(self._place(number), arguments=arguments))
        if text := _message_text(item):
            yield Delta(text=text)
        if thinking := _reasoning_text(item):
            yield Delta(thinking=thinking)

    # -- what is made of it --------------------------------------------------------------------

    def _finished(self) -> Sequence[_Object]:
        return fields.mappings(self._response, "output") or [
            item for _, item in sorted(self._items.items())
        ]

    def _parts(self, items: Sequence[_Object]) -> tuple[tuple[Part, ...], bool]:
        """Return the parts, and whether all tool calls have the ids that the server knows."""
        parts, taken, own_ids = list[Part](), set(self._used_ids), True
        for item in items:
            match item.get("type"):
                case "message":
                    parts += _message(item)
                case "reasoning":
                    parts += _reasoning(item, self._server)
                case "function_call":
                    call_id = fields.text(item, "call_id")
                    if not call_id or call_id in taken:
                        call_id, own_ids = self._new_id(), False
                    taken.add(call_id)
                    parts.append(_tool_call(item, call_id))
                case str() if fields.is_shallow(item):
                    parts.append(provider_block(WIRE, Origin(self._server), item))
                case _:
                    pass
        return tuple(parts), own_ids

    def _stop(self, parts: Sequence[Part]) -> Stop:
        if any(_is_refused(item) for item in self._finished()):
            return "content_filter"
        if self._status == "incomplete":
            details = fields.mapping(self._response, "incomplete_details")
            return _STOPS.get(fields.text(details, "reason"), "other")
        return "tool_calls" if any(isinstance(part, ToolCall) for part in parts) else "stop"


def _message(item: _Object) -> Iterator[Part]:
    if text := _message_text(item):
        phase = fields.text(item, PHASE)
        yield Text(text, extra={PHASE: phase} if phase else {})


def _reasoning(item: _Object, server: str) -> Iterator[Part]:
    text = _reasoning_text(item)
    item_id, encrypted = fields.text(item, "id"), fields.text(item, "encrypted_content")
    signature = sealed(WIRE, Origin(server), item_id, encrypted)
    if text or signature:
        yield Thinking(text, signature)


def _tool_call(item: _Object, call_id: str) -> ToolCall:
    name, text = fields.text(item, "name"), arguments_text(item.get("arguments"))
    if not name:
        raise InvalidReply("the reply holds a tool call without a name", retryable=True)
    arguments, invalid = read_arguments(text)
    if item.get("status") == "incomplete" and not text.strip():
        invalid = text  # cut off before its first argument, which is not to have none
    return ToolCall(call_id, name, arguments, invalid)


def _message_text(item: _Object) -> str:
    if item.get("type") != "message":
        return ""
    parts = fields.mappings(item, "content")
    return "".join([fields.text(part, "text") or fields.text(part, "refusal") for part in parts])


def _is_refused(item: _Object) -> bool:
    parts = fields.mappings(item, "content")
    return item.get("type") == "message" and any(fields.text(part, "refusal") for part in parts)


def _reasoning_text(item: _Object) -> str:
    if item.get("type") != "reasoning":
        return ""
    parts = fields.mappings(item, "summary") or fields.mappings(item, "content")
    return _PARAGRAPH.join([text for part in parts if (text := fields.text(part, "text"))])


def _usage(value: _Object) -> Usage:
    read = fields.mapping(value, "input_tokens_details")
    written = fields.mapping(value, "output_tokens_details")
    return Usage(
        input_tokens=fields.count(value, "input_tokens"),
        output_tokens=fields.count(value, "output_tokens"),
        cache_read_tokens=fields.count(read, "cached_tokens"),
        cache_write_tokens=fields.count(read, "cache_write_tokens"),
        reasoning_tokens=fields.count(written, "reasoning_tokens"),
        cost=fields.amount(value, "cost"),  # from OpenRouter
    )


def _unreadable() -> InvalidReply:
    return InvalidReply("the server's answer is not a response", retryable=True)

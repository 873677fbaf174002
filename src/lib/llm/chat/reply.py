"""A reply from the server's JSON: chunk by chunk from a stream, or at once.

A whole answer is read as one chunk, so that both forms have the same rules.

Source: OpenAI API reference, "Chat completion chunk object" (platform.openai.com, 2026-11), and
what compatible servers send instead: `reasoning_content` (llama.cpp, DeepSeek, SGLang) or
`reasoning` (vLLM, Ollama, OpenRouter), usage in a choice (Moonshot) or under `x_groq`, content as
a list of parts (Mistral), errors in place of a chunk or of a choice, and `reasoning_details`
(OpenRouter).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from lib.errors import InvalidReply, LLMError
from lib.http.failures import reported_error
from lib.llm.api import fields
from lib.llm.api.fields import arguments_text, read_arguments
from lib.llm.chat.reasoning import DETAILS, add_detail
from lib.llm.chat.request import KEPT
from lib.llm.client import Delta, Reply, Stop, ToolCallDelta, Usage
from lib.llm.parts import Part, Text, Thinking, ToolCall

_THINKING: Final = ("reasoning_content", "reasoning")
_STOPS: Final[Mapping[str, Stop]] = {
    "stop": "stop",
    "eos": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "model_length": "length",
    "content_filter": "content_filter",
}


class ReplyBuilder:
    """Takes the server's JSON objects and gives deltas, then the reply.

    Attributes:
        complete: the server has sent why the model stopped, so that the reply is whole.
        ended: the server has sent its mark of the end.
    """

    def __init__(
        self,
        *,
        used_ids: Collection[str],
        new_id: Callable[[], str],
        seal: Callable[[str], str | None] = lambda _: None,
        keep_details: Callable[[Sequence[Mapping[str, Any]]], Part] | None = None,
    ) -> None:
        """Start.

        Args:
            used_ids: ids of tool calls that the conversation already has.
            new_id: makes ids for tool calls that come without a usable one.
            seal: makes the signature of a `Thinking` of what the server has signed it with.
            keep_details: makes a part of `reasoning_details`; None leaves them out.
        """
        self._seal, self._keep_details = seal, keep_details
        self._details: list[dict[str, Any]] = []
        self._used_ids, self._new_id = used_ids, new_id
        self._texts: list[_Stretch] = []
        self._calls = ToolCallAssembler()
        self._usage = Usage()
        self._id = self._model = self._finish = ""
        self._refused = False
        self.complete: bool = False
        self.ended: bool = False
        self.request_id: str = ""

    def add(self, chunk: Any, *, whole: bool = False) -> list[Delta]:
        """Take one chunk and return what it adds.

        Args:
            chunk: a JSON value of the stream.
            whole: it is the one object of an answer that is not a stream.

        Raises:
            LLMError: the object is an error that the server reports.
            InvalidReply: it is neither a chunk nor an error.
        """
        if not isinstance(chunk, dict):
            raise reported_error(chunk, LLMError) if isinstance(chunk, list) else _unreadable()
        answer = cast(dict[str, Any], chunk)
        if answer.get("error") or answer.get("object") == "error":
            raise reported_error(answer, LLMError)
        self._id = self._id or fields.text(answer, "id")
        self._model = self._model or fields.text(answer, "model")
        self._count(answer)
        self._count(fields.mapping(answer, "x_groq"))
        deltas: list[Delta] = []
        choices = [each for each in fields.mappings(answer, "choices") if not each.get("index")]
        if whole and not choices:
            raise _unreadable()
        for choice in choices:
            if choice.get("error") or choice.get("finish_reason") == "error":
                raise reported_error(choice, LLMError)
            self._count(choice)
            deltas += self._choice(choice, whole=whole)
        return deltas

    def end(self) -> None:
        """Take the server's word that nothing follows."""
        self.complete = self.ended = True

    def reply(self) -> Reply:
        """Return the reply.

        Raises:
            InvalidReply: it is not complete, or holds a tool call without a name.
        """
        if not self.complete:
            raise InvalidReply("the stream ended before the reply did", retryable=True)
        parts = [each.part() for each in self._texts]
        if self._details and self._keep_details is not None:
            parts.insert(0, self._keep_details(self._details))
        stop = _STOPS.get(self._finish, "other") if self._finish else "stop"
        calls = self._calls.calls(self._used_ids, self._new_id, cut_off=stop == "length")
        if calls and stop == "stop":
            stop = "tool_calls"
        if self._refused:
            stop = "content_filter"
        return Reply((*parts, *calls), self._usage, stop, self._model, self._id)

    def _choice(self, choice: Mapping[str, Any], *, whole: bool) -> Iterator[Delta]:
        message = fields.mapping(choice, "delta") or fields.mapping(choice, "message")
        pieces = fields.mappings(message, DETAILS)
        detailed = "".join([add_detail(self._details, each) for each in pieces])
        thinking = next((text for name in _THINKING if (text := fields.text(message, name))), "")
        thinking = thinking or detailed
        if thinking:
            self._append(Thinking, thinking)
            yield Delta(thinking=thinking)
        beside = fields.mapping(message, "provider_specific_fields")  # LiteLLM's
        refusal = fields.text(message, "refusal") or fields.text(beside, "refusal")
        self._refused = self._refused or bool(refusal)
        # Of an answer that is spoken; its sound is not kept, and the transcript goes back as text.
        spoken = fields.text(fields.mapping(message, "audio"), "transcript")
        texts = ((Text, spoken, ""), (Text, refusal, ""))
        for kind, text, signature in (*_content(message.get("content")), *texts):
            if text or signature:
                self._append(kind, text, signature)
                yield Delta(text=text) if kind is Text else Delta(thinking=text)
        for fragment in fields.mappings(message, "tool_calls"):
            yield Delta(tool_call=self._calls.add(fragment, whole=whole))
        self._finish = fields.text(choice, "finish_reason") or self._finish
        self.complete = self.complete or whole or bool(self._finish)

    def _append(self, kind: type[Text | Thinking], text: str, signature: str = "") -> None:
        if not self._texts or not self._texts[-1].takes(kind):
            self._texts.append(_Stretch(kind))
        self._texts[-1].pieces.append(text)
        if signature:
            self._texts[-1].signature = self._seal(signature)

    def _count(self, holder: Mapping[str, Any]) -> None:
        if usage := fields.mapping(holder, "usage"):
            self._usage = _usage(usage)


def _usage(value: Mapping[str, Any]) -> Usage:
    read = fields.mapping(value, "prompt_tokens_details")
    written = fields.mapping(value, "completion_tokens_details")
    return Usage(
        input_tokens=fields.count(value, "prompt_tokens"),
        output_tokens=fields.count(value, "completion_tokens"),
        cache_read_tokens=fields.count(read, "cached_tokens")
        or fields.count(value, "prompt_cache_hit_tokens"),
        cache_write_tokens=fields.count(read, "cache_write_tokens"),
        reasoning_tokens=fields.count(written, "reasoning_tokens"),
        cost=fields.amount(value, "cost"),
    )


def _content(value: Any) -> Iterator[tuple[type[Text | Thinking], str, str]]:
    """Yield the texts of a content, with the signature of those that have one."""
    if isinstance(value, str):
        yield Text, value, ""
    for part in fields.mappings({"": value}, ""):
        if part.get("type") == "thinking":
            texts = [fields.text(each, "text") for each in fields.mappings(part, "thinking")]
            yield Thinking, "".join(texts), fields.text(part, "signature")
        else:
            yield Text, fields.text(part, "text"), ""


def _unreadable() -> InvalidReply:
    return InvalidReply("the server's answer is not a chat completion", retryable=True)


@dataclass(slots=True)
class _Stretch:
    """Text or thinking that is still being written; a signature ends it."""

    kind: type[Text | Thinking]
    pieces: list[str] = field(default_factory=list[str])
    signature: str | None = None

    def takes(self, kind: type[Text | Thinking]) -> bool:
        return self.kind is kind and self.signature is None

    def part(self) -> Part:
        text = "".join(self.pieces)
        return Text(text) if self.kind is Text else Thinking(text, self.signature)


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
        """Return True if a fragment with a name repeats or completes the head of this call."""
        if self.name not in {"", name} or (self.id and call_id not in {"", self.id}):
            return False
        return not (arguments.lstrip().startswith("{") and self.is_complete())


class ToolCallAssembler:
    """Takes fragments of tool calls, in every dialect that servers speak, and gives calls.

    The reference is OpenAI's: the first fragment of a call has an index, an id and the name, the
    next ones have the index and a piece of the arguments' JSON. Others leave out the index (Ollama
    before 0.4.7), give every call the index 0 (Ollama, Dynamo), repeat id and name on each fragment
    (vLLM), give no id or the same one to each call, send a call whole, or its arguments as an
    object. Hence:

    - A fragment with a name begins a call, unless it repeats the head of one that has begun: it has
      the same name, no other id, and the arguments of that call are not complete yet.
    - A fragment without a name continues the call with its index and id, else with its id, else
      with its index, else, having no index, the last one.
    - An id that is missing or was already used in the conversation is replaced.
    """

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
        indexed, identified = self._by_index.get(index), self._by_id.get(call_id)
        if name:
            call = identified if index is None else indexed
            return call if call and call.is_begun_by(call_id, name, arguments) else None
        if indexed and call_id == indexed.id:
            return indexed
        last = self._calls[-1] if self._calls and index is None else None
        return identified or indexed or last

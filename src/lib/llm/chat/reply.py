"""A reply from the server's JSON: chunk by chunk from a stream, or at once.

A whole answer is read as one chunk, so that both forms have the same rules.

Source: OpenAI API reference, "Chat completion chunk object" (platform.openai.com, 2026-11), and
what compatible servers send instead: `reasoning_content` (llama.cpp, DeepSeek, SGLang) or
`reasoning` (vLLM, Ollama, OpenRouter), usage in a choice (Moonshot) or under `x_groq`, content as
a list of parts (Mistral), errors in place of a chunk or of a choice (OpenRouter).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, cast

from lib.errors import InvalidReply, LLMError
from lib.http.failures import reported_error
from lib.llm.chat.toolcalls import ToolCallAssembler
from lib.llm.client import Delta, Reply, Stop, Usage
from lib.llm.parts import Part, Text, Thinking
from lib.llm.wire import fields

_THINKING: Final = ("reasoning_content", "reasoning")
_STOPS: Final[Mapping[str, Stop]] = {
    "stop": "stop",
    "eos": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}


class ReplyBuilder:
    """Takes the server's JSON objects and gives deltas, then the reply.

    Attributes:
        complete: the server has said why the model stopped, so that the reply is whole.
        ended: the server has said that nothing follows.
    """

    def __init__(self, *, used_ids: Collection[str], new_id: Callable[[], str]) -> None:
        """Start.

        Args:
            used_ids: ids of tool calls that the conversation already has.
            new_id: makes ids for tool calls that come without a usable one.
        """
        self._used_ids, self._new_id = used_ids, new_id
        self._texts: list[tuple[type[Text | Thinking], list[str]]] = []
        self._calls = ToolCallAssembler()
        self._usage = Usage()
        self._id = self._model = self._finish = ""
        self._refused = False
        self.complete = self.ended = False

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
        said = cast(dict[str, Any], chunk)
        if said.get("error") or said.get("object") == "error":
            raise reported_error(said, LLMError)
        self._id = self._id or fields.text(said, "id")
        self._model = self._model or fields.text(said, "model")
        self._count(said)
        self._count(fields.mapping(said, "x_groq"))
        deltas: list[Delta] = []
        choices = [each for each in fields.mappings(said, "choices") if not each.get("index")]
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
        parts: list[Part] = [kind("".join(pieces)) for kind, pieces in self._texts]
        stop = _STOPS.get(self._finish, "other") if self._finish else "stop"
        calls = self._calls.calls(self._used_ids, self._new_id, cut_off=stop == "length")
        if calls and stop == "stop":
            stop = "tool_calls"
        if self._refused:
            stop = "content_filter"
        return Reply((*parts, *calls), self._usage, stop, self._model, self._id)

    def _choice(self, choice: Mapping[str, Any], *, whole: bool) -> Iterator[Delta]:
        said = fields.mapping(choice, "delta") or fields.mapping(choice, "message")
        thinking = next((text for name in _THINKING if (text := fields.text(said, name))), "")
        if thinking:
            self._append(Thinking, thinking)
            yield Delta(thinking=thinking)
        refusal = fields.text(said, "refusal")
        self._refused = self._refused or bool(refusal)
        for text in (_content(said.get("content")), refusal):
            if text:
                self._append(Text, text)
                yield Delta(text=text)
        for fragment in fields.mappings(said, "tool_calls"):
            yield Delta(tool_call=self._calls.add(fragment, whole=whole))
        self._finish = fields.text(choice, "finish_reason") or self._finish
        self.complete = self.complete or whole or bool(self._finish)

    def _append(self, kind: type[Text | Thinking], text: str) -> None:
        if not self._texts or self._texts[-1][0] is not kind:
            self._texts.append((kind, []))
        self._texts[-1][1].append(text)

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


def _content(value: Any) -> str:
    if isinstance(value, list):
        return "".join([fields.text(part, "text") for part in fields.mappings({"": value}, "")])
    return value if isinstance(value, str) else ""


def _unreadable() -> InvalidReply:
    return InvalidReply("the server's answer is not a chat completion", retryable=True)

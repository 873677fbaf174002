"""`OllamaClient`: models behind Ollama's own API.

What the compatible form loses: the size of the context (`num_ctx`), how long a model stays loaded,
thinking as a switch of its own, arguments as objects, and outputs by schema in every version.

Source: Ollama, "API reference" (github.com/ollama/ollama, docs/api.md, 2026-11), and the types of
ollama 0.6.3.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, ClassVar, Final, Unpack, cast

from lib.errors import InvalidReply, LLMError
from lib.http.failures import reported_error
from lib.llm.api import fields
from lib.llm.api.blocks import Blocks
from lib.llm.api.client import ClientOptions, used_ids
from lib.llm.api.conversation import (
    Origin,
    arguments_object,
    base64_of,
    misplaced,
    sealed,
    text_only,
    unsealed,
)
from lib.llm.api.endpoint import JSON_HEADERS, Endpoint, checked_address, checked_key
from lib.llm.api.fields import arguments_text
from lib.llm.api.streams import Decoder, ServerEvent, read_json
from lib.llm.api.wire import ModelCall, Settings, WireClient, read_settings, stops
from lib.llm.chat.request import tool_json
from lib.llm.client import Delta, Reply, Stop, Usage
from lib.llm.messages import Message
from lib.llm.output import output_schema
from lib.llm.parts import Image, Opaque, Part, Text, Thinking, ToolCall, ToolResult

URL: Final = "http://127.0.0.1:11434"

_WIRE: Final = "ollama"
_RESERVED: Final = frozenset({"format", "messages", "model", "stream", "tools"})
_OPTIONS: Final[Mapping[str, str]] = {
    "frequency_penalty": "frequency_penalty",
    "num_ctx": "num_ctx",
    "presence_penalty": "presence_penalty",
    "seed": "seed",
    "stop": "stop",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
}
"""Settings that stand in `options`."""

_STOPS: Final[Mapping[str, Stop]] = {"stop": "stop", "length": "length"}


class OllamaClient(WireClient):
    """Speaks `/api/chat` of Ollama.

    See `WireClient` for what all such clients have in common. The server has no choice of tools:
    "none" leaves them out, any other is left to the model. It counts no cached tokens and none of
    thinking. `think` and `keep_alive` are settings.
    """

    name = _WIRE
    carries: ClassVar[frozenset[str]] = frozenset({"text", "image"})

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        modalities: frozenset[str] = frozenset({"text"}),
        context_tokens: int | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Prepare a client; nothing is opened before the first call.

        Args:
            model: the model of calls that name none.
            api_key: defaults to OLLAMA_API_KEY; a server of your own needs none.
            base_url: defaults to OLLAMA_HOST, else http://127.0.0.1:11434.
            modalities: "image" for a model that sees.
            context_tokens: the size of the context; None leaves it to the server, whose default
                is small: what does not fit is cut off without an error.
            **options: see `ClientOptions`.

        Raises:
            ValueError: a key or address that cannot be one, a modality that the wire cannot carry,
                or both `http` and `transport`.
        """
        address, _ = checked_address(base_url or _host(os.environ.get("OLLAMA_HOST", "")) or URL)
        key = checked_key(api_key, "OLLAMA_API_KEY")
        headers = {**JSON_HEADERS, **({"authorization": f"Bearer {key}"} if key else {})}
        endpoint = Endpoint(address=address.removesuffix("/v1"), headers=headers, provider="ollama")
        super().__init__(model, endpoint, modalities=modalities, **options)
        self._context_tokens = context_tokens

    def _path(self, call: ModelCall) -> str:
        return "/api/chat"

    def _body(self, call: ModelCall) -> dict[str, Any]:
        return build_body(call, origin=Origin(self._server), context_tokens=self._context_tokens)

    def _builder(self, call: ModelCall, body: Mapping[str, Any]) -> OllamaBuilder:
        ids = used_ids(call.messages)
        return OllamaBuilder(used_ids=ids, new_id=self._new_id, origin=Origin(self._server))

    def _decoder(self) -> Decoder:
        return LineDecoder()


def _host(variable: str) -> str:
    """Return an address for what OLLAMA_HOST may hold, such as a host or "0.0.0.0:11434"."""
    host = variable.replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - nothing is bound
    if not host or host.startswith(("http://", "https://")):
        return host
    return f"http://{host}" if ":" in host else f"http://{host}:11434"


# -- the request -------------------------------------------------------------------------------


def build_body(
    call: ModelCall, *, origin: Origin, context_tokens: int | None = None
) -> dict[str, Any]:
    """Return the body as plain data, the same for the same conversation.

    Raises:
        ValueError: a setting has a parameter of its own.
        LLMError: a message holds what the wire cannot carry in its role.
    """
    settings = read_settings(call, _RESERVED)
    settings.rest.pop("tool_choice", None)
    options = _options(settings, context_tokens)
    names = {part.id: part.name for message in call.messages for part in message.tool_calls}
    messages = [entry for each in call.messages for entry in _entries(each, origin, names)]
    body: dict[str, Any] = {"model": call.model, "messages": messages, **settings.rest}
    if call.tools and settings.choice != "none":
        body["tools"] = [*map(tool_json, call.tools)]
    if call.output is not None:
        body["format"] = output_schema(call.output)
    if options:
        body["options"] = options
    return {**body, "stream": call.stream}


def _options(settings: Settings, context_tokens: int | None) -> dict[str, Any]:
    """Return the fields of `options`, and take them out of the other settings."""
    rest = settings.rest
    options: dict[str, Any] = {"num_ctx": context_tokens} if context_tokens else {}
    options |= fields.mapping(rest, "options")
    rest.pop("options", None)
    if "stop" in rest:
        rest["stop"] = stops(rest["stop"])
    options |= {name: rest.pop(key) for key, name in _OPTIONS.items() if key in rest}
    return options | ({"num_predict": settings.max_tokens} if settings.max_tokens else {})


def _entries(
    message: Message, origin: Origin, names: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    match message.role:
        case "system":
            yield {"role": "system", "content": text_only(message, _WIRE)}
        case "assistant":
            yield from _assistant(message, origin)
        case "tool":
            for part in message.parts:
                yield _tool_result(part, names)
        case _:
            yield _user(message)


def _user(message: Message) -> dict[str, Any]:
    entry: dict[str, Any] = {"role": "user", "content": message.text}
    images: list[str] = []
    for part in message.parts:
        if isinstance(part, Image):
            images.append(base64_of(part, _WIRE))
        elif not isinstance(part, Text):
            raise misplaced(part, "user", _WIRE)
    return {**entry, "images": images} if images else entry


def _tool_result(part: Part, names: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(part, ToolResult):
        raise misplaced(part, "tool", _WIRE)
    # The wire has no field for a failure, and a model that does not see one believes the text.
    content = f"Error: {part.content}" if part.is_error else part.content
    name = names.get(part.call_id, "unknown")
    return {"role": "tool", "tool_name": name, "content": content}


def _assistant(message: Message, origin: Origin) -> Iterator[dict[str, Any]]:
    """Yield the message, unless nothing of it is for this server."""
    thinking: list[str] = []
    for part in message.parts:
        match part:
            case Thinking(text, signature):
                thinking += [text] if unsealed(_WIRE, origin, signature) else []
            case Text() | ToolCall() | Opaque():
                pass
            case _:
                raise misplaced(part, "assistant", _WIRE)
    entry: dict[str, Any] = {"role": "assistant", "content": message.text}
    if thinking:
        entry["thinking"] = "".join(thinking)
    if message.tool_calls:
        entry["tool_calls"] = [
            {"function": {"name": call.name, "arguments": arguments_object(call)}}
            for call in message.tool_calls
        ]
    if any(entry.get(name) for name in ("content", "thinking", "tool_calls")):
        yield entry


# -- the reply ---------------------------------------------------------------------------------


class LineDecoder:
    """Takes bytes and gives their lines, each the JSON of an event."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Yield the lines that these bytes complete."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            yield ServerEvent(line.decode("utf-8", "replace"))

    def end(self) -> Iterator[ServerEvent]:
        """Yield the line that has no end."""
        return self.feed(b"\n")


class OllamaBuilder:
    """Takes the server's JSON objects and gives deltas, then the reply.

    Attributes:
        complete: the model has stopped, so that the reply is whole.
        ended: the same; nothing follows.
    """

    def __init__(
        self, *, used_ids: Collection[str], new_id: Callable[[], str], origin: Origin
    ) -> None:
        """Start.

        Args:
            used_ids: ids of tool calls that the conversation already has.
            new_id: makes ids for tool calls, which come without.
            origin: the server, whose thinking goes back to it.
        """
        self._blocks = Blocks(used_ids, new_id)
        self._origin, self._new_id = origin, new_id
        self._open = ""
        self._usage = Usage()
        self._stop = self._model = ""
        self.complete: bool = False
        self.ended: bool = False
        self.request_id: str = ""

    def add(self, chunk: Any, *, whole: bool = False) -> list[Delta]:
        """Take one object and return what it adds.

        Raises:
            LLMError: it is an error that the server reports.
            InvalidReply: it is neither.
        """
        if not isinstance(chunk, dict):
            raise _unreadable()
        value = cast(dict[str, Any], chunk)
        if value.get("error"):
            raise reported_error(value, LLMError)
        if "message" not in value and "done" not in value:
            raise _unreadable()
        self._model = self._model or fields.text(value, "model")
        message = fields.mapping(value, "message")
        deltas = self._text("thinking", fields.text(message, "thinking"))
        deltas += self._text("text", fields.text(message, "content"))
        for call in fields.mappings(message, "tool_calls"):
            function = fields.mapping(call, "function")
            name, arguments = fields.text(function, "name"), function.get("arguments")
            self._open = ""
            number = len(self._blocks)
            deltas += self._blocks.call(
                number, fields.text(call, "id"), name, arguments_text(arguments)
            )
        if value.get("done") is True:
            self._stop, self._usage = fields.text(value, "done_reason") or "stop", _usage(value)
            self.complete = self.ended = True
        return deltas

    def take(self, event: ServerEvent) -> list[Delta]:
        """Take a line of the stream; see `add`."""
        return self.add(read_json(event.data)) if event.data.strip() else []

    def reply(self) -> Reply:
        """Return the reply; it has no id of the server's own.

        Raises:
            InvalidReply: it is not complete, or holds a tool call without a name.
        """
        stop: Stop = _STOPS.get(self._stop, "other")
        parts, stop = self._blocks.end(stop, complete=self.complete, cut_off=stop == "length")
        return Reply(parts, self._usage, stop, self._model)

    def _text(self, kind: str, piece: str) -> list[Delta]:
        if not piece:
            return []
        number = len(self._blocks) - (1 if self._open == kind else 0)
        self._open = kind
        if kind == "text":
            return self._blocks.text(number, piece)
        deltas = self._blocks.thinking(number, piece)
        self._blocks.sign(number, sealed(_WIRE, self._origin, "thinking", "own"))
        return deltas


def _usage(value: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=fields.count(value, "prompt_eval_count"),
        output_tokens=fields.count(value, "eval_count"),
    )


def _unreadable() -> InvalidReply:
    return InvalidReply("the server's answer is not one of Ollama", retryable=True)

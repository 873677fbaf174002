"""`MistralClient`: models behind Mistral's chat API.

The wire is OpenAI's but for what the compatible form loses: thinking comes in chunks with a
signature and goes back in them, documents and audio are chunks, ids of calls have nine characters,
and a message of the user never follows a result.

Source: Mistral API reference, "Chat completion" (docs.mistral.ai, 2026-11), and the types of
mistralai 3.7.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Unpack

from lib._util.json import canonical
from lib.llm.api.client import ClientOptions, used_ids
from lib.llm.api.conversation import (
    Origin,
    arguments_object,
    base64_of,
    data_url,
    fitting_id,
    misplaced,
    sealed,
    text_only,
    unsealed,
)
from lib.llm.api.endpoint import JSON_HEADERS, Endpoint, checked_address, checked_key
from lib.llm.api.streams import ServerEvent
from lib.llm.api.wire import ModelCall, Settings, WireClient, read_settings
from lib.llm.chat.client import take_event
from lib.llm.chat.reply import ReplyBuilder
from lib.llm.chat.request import response_format, tool_json
from lib.llm.client import Delta
from lib.llm.messages import Message
from lib.llm.parts import (
    Attachment,
    Audio,
    File,
    Image,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

URL: Final = "https://api.mistral.ai/v1"

_WIRE: Final = "mistral"
_CALL_ID: Final = re.compile(r"[a-zA-Z0-9]{9}")
_RESERVED: Final = frozenset({"messages", "model", "n", "response_format", "stream", "tools"})
_BETWEEN: Final = {"role": "assistant", "content": "(interrupted)"}
"""Stands between a result and a message of the user, which the server refuses otherwise."""


class MistralClient(WireClient):
    """Speaks `/chat/completions` as Mistral does.

    See `WireClient` for what all such clients have in common. `seed` goes in under the name that
    the server has for it.
    """

    name = _WIRE
    carries: ClassVar[frozenset[str]] = frozenset({"text", "image", "audio", "file"})

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        modalities: frozenset[str] = frozenset({"text"}),
        **options: Unpack[ClientOptions],
    ) -> None:
        """Prepare a client; nothing is opened before the first call.

        Args:
            model: the model of calls that name none.
            api_key: defaults to MISTRAL_API_KEY.
            base_url: up to and with `/v1`; defaults to Mistral's.
            modalities: what the model takes beside "text".
            **options: see `ClientOptions`.

        Raises:
            ValueError: no key for Mistral, a key or address that cannot be one, a modality that the
                wire cannot carry, or both `http` and `transport`.
        """
        address, _ = checked_address(base_url or URL)
        key = checked_key(api_key, "MISTRAL_API_KEY")
        if not key and address == URL:
            raise ValueError("Mistral needs a key: set MISTRAL_API_KEY or pass api_key=")
        headers = {**JSON_HEADERS, **({"authorization": f"Bearer {key}"} if key else {})}
        endpoint = Endpoint(address=address, headers=headers, provider="mistral_ai")
        super().__init__(model, endpoint, modalities=modalities, **options)

    def _path(self, call: ModelCall) -> str:
        return "/chat/completions"

    def _body(self, call: ModelCall) -> dict[str, Any]:
        return build_body(call, origin=Origin(self._server, call.model))

    def _builder(self, call: ModelCall, body: Mapping[str, Any]) -> MistralBuilder:
        origin = Origin(self._server, call.model)
        return MistralBuilder(
            used_ids=used_ids(call.messages),
            new_id=self._new_id,
            seal=lambda signature: sealed(_WIRE, origin, "thinking", signature),
        )


class MistralBuilder(ReplyBuilder):
    """The builder of chat completions, for this base of clients."""

    def take(self, event: ServerEvent) -> list[Delta]:
        """Take an event of the stream and return what it adds."""
        return take_event(event, self)


# -- the request -------------------------------------------------------------------------------


def build_body(call: ModelCall, *, origin: Origin) -> dict[str, Any]:
    """Return the body as plain data, the same for the same conversation.

    Raises:
        ValueError: a setting has a parameter of its own.
        LLMError: a message holds what the wire cannot carry in its role.
    """
    settings = read_settings(call, _RESERVED)
    body: dict[str, Any] = {"model": call.model, "messages": _entries(call, origin)}
    body |= settings.rest
    if "seed" in body:
        body["random_seed"] = body.pop("seed")
    if settings.max_tokens:
        body["max_tokens"] = settings.max_tokens
    if call.tools:
        body["tools"] = [*map(tool_json, call.tools)]
        body |= _tool_choice(settings)
    if call.output is not None:
        body["response_format"] = response_format(call.output)
    if call.stream:
        body["stream"] = True
    return body


def _tool_choice(settings: Settings) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if settings.parallel is not None:
        out["parallel_tool_calls"] = settings.parallel
    if settings.tool:
        out["tool_choice"] = {"type": "function", "function": {"name": settings.tool}}
    elif settings.choice:
        out["tool_choice"] = "any" if settings.choice == "required" else settings.choice
    return out


def _entries(call: ModelCall, origin: Origin) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    names = {part.id: part.name for message in call.messages for part in message.tool_calls}
    for message in call.messages:
        for entry in _entry(message, origin, names):
            if out and (out[-1]["role"], entry["role"]) == ("tool", "user"):
                out.append(_BETWEEN)
            out.append(entry)
    return out


def _entry(message: Message, origin: Origin, names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    match message.role:
        case "system":
            yield {"role": "system", "content": text_only(message, _WIRE)}
        case "assistant":
            yield from _assistant(message, origin)
        case "tool":
            for part in message.parts:
                yield _tool_result(part, names)
        case _:
            yield {"role": "user", "content": _content(message)}


def _tool_result(part: Part, names: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(part, ToolResult):
        raise misplaced(part, "tool", _WIRE)
    # The wire has no field for a failure, and a model that does not see one believes the text.
    content = f"Error: {part.content}" if part.is_error else part.content
    name = {"name": names[part.call_id]} if part.call_id in names else {}
    return {"role": "tool", "tool_call_id": _call_id(part.call_id), **name, "content": content}


def _assistant(message: Message, origin: Origin) -> Iterator[dict[str, Any]]:
    """Yield the message, unless nothing of it is for this server."""
    chunks: list[dict[str, Any]] = []
    for part in message.parts:
        match part:
            case Text(text):
                chunks += [{"type": "text", "text": text}] if text else []
            case Thinking(text, signature):
                if opened := unsealed(_WIRE, origin, signature):
                    inside = [{"type": "text", "text": text}]
                    chunks.append({"type": "thinking", "thinking": inside, "signature": opened[1]})
            case ToolCall() | Opaque():
                pass
            case _:
                raise misplaced(part, "assistant", _WIRE)
    plain = all(chunk["type"] == "text" for chunk in chunks)
    calls = {"tool_calls": [*map(_tool_call, message.tool_calls)]} if message.tool_calls else {}
    if chunks or calls:
        yield {"role": "assistant", "content": message.text if plain else chunks, **calls}


def _tool_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": canonical(arguments_object(call))}
    return {"id": _call_id(call.id), "type": "function", "function": function}


def _call_id(call_id: str) -> str:
    return fitting_id(call_id, _CALL_ID, 9)


def _content(message: Message) -> str | list[dict[str, Any]]:
    if all(isinstance(part, Text) for part in message.parts):
        return message.text
    return [_chunk(part) for part in message.parts]


def _chunk(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image():
            return {"type": "image_url", "image_url": _url(part)}
        case Audio():
            return {"type": "input_audio", "input_audio": part.url or base64_of(part, _WIRE)}
        case File():
            name = {"document_name": part.name} if part.name else {}
            return {"type": "document_url", "document_url": _url(part), **name}
        case _:
            raise misplaced(part, "user", _WIRE)


def _url(part: Attachment) -> str:
    return part.url or data_url(part, _WIRE)

"""`GeminiClient`: models of Google, behind the Gemini API or Vertex AI.

A signature belongs to the part that it came with, and goes back on that part to the model that made
it: servers have refused those of another one as corrupted. Models from Gemini 3 on refuse calls
without one, so that calls which another model made carry the mark that Google documents for them.

Source: Google, "Generating content" and "Thought signatures" (ai.google.dev, 2026-11), and the
types of google-genai 3.4.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Unpack, cast

from lib._util.json import canonical
from lib.errors import InvalidReply, LLMError
from lib.http.failures import reported_error
from lib.llm.api import fields
from lib.llm.api.blocks import Blocks
from lib.llm.api.client import ClientOptions, used_ids
from lib.llm.api.conversation import (
    Origin,
    arguments_object,
    base64_of,
    merged,
    misplaced,
    of_another_model,
    own_block,
    provider_block,
    sealed,
    text_only,
    unsealed,
)
from lib.llm.api.endpoint import (
    JSON_HEADERS,
    VERTEX,
    Endpoint,
    TokenSource,
    bearer,
    checked_address,
    checked_key,
    vertex_address,
    vertex_publisher,
)
from lib.llm.api.fields import arguments_text
from lib.llm.api.streams import ServerEvent, read_json
from lib.llm.api.wire import ModelCall, Settings, WireClient, read_settings, stops
from lib.llm.client import Delta, Reply, Stop, Usage
from lib.llm.messages import Message
from lib.llm.output import output_schema
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

URL: Final = "https://generativelanguage.googleapis.com/v1beta"

_WIRE: Final = "gemini"
_UNSIGNED: Final = "skip_thought_signature_validator"
"""What Google documents for calls that another model has made."""

_GENERATION: Final = re.compile(r"gemini-(\d+)")
_SIGNED_SINCE: Final = 3
_RESERVED: Final = frozenset({"contents", "model", "stream", "systemInstruction", "tools"})
_CONFIG: Final[Mapping[str, str]] = {
    "frequency_penalty": "frequencyPenalty",
    "max_tokens": "maxOutputTokens",
    "presence_penalty": "presencePenalty",
    "seed": "seed",
    "stop": "stopSequences",
    "temperature": "temperature",
    "thinkingConfig": "thinkingConfig",
    "top_k": "topK",
    "top_p": "topP",
}
"""Settings that stand in `generationConfig`."""

_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_STOPS: Final[Mapping[str, Stop]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",  # no field is documented for the token that fetches the rest
}
_FILTERED: Final = frozenset(
    {"BLOCKLIST", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "IMAGE_SAFETY", "LANGUAGE"}
    | {"MODEL_ARMOR", "PROHIBITED_CONTENT", "RECITATION", "SAFETY", "SPII"}
)
_MALFORMED: Final = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"})


class GeminiClient(WireClient):
    """Speaks `:generateContent`, of the Gemini API or, with a project, of Vertex AI.

    See `WireClient` for what all such clients have in common. `parallel_tool_calls` has no field
    here and is left out; all other settings of `generationConfig` go in as `generationConfig`.
    With `cachedContent`, the name of a cache that you have made, its instructions and tools count:
    those of the call are left out.
    """

    name = _WIRE
    carries: ClassVar[frozenset[str]] = frozenset({"text", "image", "audio", "file"})

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        project: str | None = None,
        location: str = "global",
        token: TokenSource | None = None,
        modalities: frozenset[str] = carries,
        output_with_tools: bool = True,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Prepare a client; nothing is opened before the first call.

        Args:
            model: the model of calls that name none.
            api_key: defaults to GEMINI_API_KEY, else GOOGLE_API_KEY.
            base_url: up to the version; defaults to Google's.
            project: of Google Cloud, for Vertex AI instead of the Gemini API.
            location: of Vertex AI, such as "europe-west4".
            token: an OAuth token in place of a key, or what returns one. It is called for each
                request, in a thread unless it is a coroutine function, and should keep the token.
            modalities: what the model takes beside "text".
            output_with_tools: False for models before Gemini 3, which constrain a reply or take
                tools: with tools, the shape of an output then stands in the instructions.
            **options: see `ClientOptions`.

        Raises:
            ValueError: no key or token for Google, a key or address that cannot be one, a modality
                that the wire cannot carry, or both `http` and `transport`.
        """
        endpoint = _endpoint(api_key, base_url, project, location, has_token=token is not None)
        super().__init__(model, endpoint, modalities=modalities, **options)
        self._token, self._output_with_tools = token, output_with_tools

    def _path(self, call: ModelCall) -> str:
        name = call.model if "/" in call.model else f"models/{call.model}"
        method = "streamGenerateContent?alt=sse" if call.stream else "generateContent"
        return f"/{name}:{method}"

    def _body(self, call: ModelCall) -> dict[str, Any]:
        return build_body(
            call, origin=Origin(self._server, call.model), output_with_tools=self._output_with_tools
        )

    def _builder(self, call: ModelCall, body: Mapping[str, Any]) -> ReplyBuilder:
        ids = used_ids(call.messages)
        return ReplyBuilder(
            used_ids=ids, new_id=self._new_id, origin=Origin(self._server, call.model)
        )

    async def _authorized(self, url: str, content: bytes) -> Mapping[str, str]:
        return {} if self._token is None else await bearer(self._token)


def _endpoint(
    api_key: str | None,
    base_url: str | None,
    project: str | None,
    location: str,
    *,
    has_token: bool,
) -> Endpoint:
    default = vertex_address(location, "v1beta1") if project else URL
    address, _ = checked_address(base_url or default)
    if project:
        address = vertex_publisher(address, project, location, "google")
    key = "" if has_token else checked_key(api_key, "GEMINI_API_KEY", "GOOGLE_API_KEY")
    if not key and not has_token and base_url is None:
        way = "pass token=" if project else "set GEMINI_API_KEY, or pass api_key= or token="
        raise ValueError(f"Google needs a key or a token: {way}")
    headers = {**JSON_HEADERS, **({"x-goog-api-key": key} if key else {})}
    provider = VERTEX if project else "gcp.gemini"
    return Endpoint(address=address, headers=headers, provider=provider)


# -- the request -------------------------------------------------------------------------------


def build_body(
    call: ModelCall, *, origin: Origin, output_with_tools: bool = True
) -> dict[str, Any]:
    """Return the body as plain data, the same for the same conversation.

    Raises:
        ValueError: a setting has a parameter of its own.
        LLMError: a message holds what the wire cannot carry in its role.
    """
    settings = read_settings(call, _RESERVED)
    instructions = [*_instructions(call.messages)]
    config = _config(settings)
    if call.output is not None:
        schema = output_schema(call.output)
        if call.tools and not output_with_tools:
            instructions.append(f"Reply with nothing but JSON that fits: {canonical(schema)}")
        else:
            config |= {"responseMimeType": "application/json", "responseJsonSchema": schema}
    body: dict[str, Any] = {}
    cached = "cachedContent" in settings.rest  # by name: it holds instructions and tools
    if instructions and not cached:
        body["systemInstruction"] = {"parts": [{"text": text} for text in instructions]}
    body["contents"] = _contents(call, origin)
    choice = _tool_config(settings)
    if call.tools and not cached:
        body["tools"] = [{"functionDeclarations": [*map(_declaration, call.tools)]}]
        body |= choice
    if config:
        body["generationConfig"] = config
    return {**body, **settings.rest}


def _config(settings: Settings) -> dict[str, Any]:
    """Return the fields of `generationConfig`, and take them out of the other settings."""
    rest = settings.rest
    config = dict(fields.mapping(rest, "generationConfig"))
    rest.pop("generationConfig", None)
    if "stop" in rest:
        rest["stop"] = stops(rest["stop"])
    config |= {name: rest.pop(key) for key, name in _CONFIG.items() if key in rest}
    return config | ({"maxOutputTokens": settings.max_tokens} if settings.max_tokens else {})


def _declaration(spec: Any) -> dict[str, Any]:
    named = {"name": spec.name, "description": spec.description}
    return {**named, "parametersJsonSchema": spec.input_schema}


def _tool_config(settings: Settings) -> dict[str, Any]:
    own = settings.rest.pop("tool_choice", None)
    wanted: dict[str, Any] = {}
    if isinstance(own, Mapping):
        wanted = dict(cast(Mapping[str, Any], own))
    elif settings.tool:
        wanted = {"mode": "ANY", "allowedFunctionNames": [settings.tool]}
    elif settings.choice:
        wanted = {"mode": _MODES[settings.choice]}
    return {"toolConfig": {"functionCallingConfig": wanted}} if wanted else {}


def _instructions(messages: Sequence[Message]) -> Iterator[str]:
    """Yield all texts of the system: the conversation itself has no role for them."""
    for message in messages:
        if message.role == "system" and (text := text_only(message, _WIRE)):
            yield text


def _contents(call: ModelCall, origin: Origin) -> list[dict[str, Any]]:
    names = {
        part.id: part.name
        for message in call.messages
        for part in message.parts
        if isinstance(part, ToolCall)
    }
    found = _GENERATION.search(call.model)
    signs = found is not None and int(found[1]) >= _SIGNED_SINCE
    entries = (
        (message.role, [*_parts(message, origin, names, signs=signs)])
        for message in call.messages
        if message.role != "system"
    )
    # Results stand alone: the server counts them against the calls.
    return [
        {"role": "model" if role == "assistant" else "user", "parts": parts}
        for role, parts in merged(entries)
    ]


def _parts(
    message: Message, origin: Origin, names: Mapping[str, str], *, signs: bool
) -> Iterator[dict[str, Any]]:
    match message.role:
        case "assistant":
            parts = [each for part in message.parts for each in _of_model(part, origin)]
            yield from _signed(parts) if signs else parts
        case "tool":
            for part in message.parts:
                if not isinstance(part, ToolResult):
                    raise misplaced(part, message.role, _WIRE)
                yield _result(part, names)
        case role:
            yield from [_of_user(part, role) for part in message.parts if part != Text("")]


def _signed(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the parts of a message, its first call marked if no part has a signature."""
    calls = [part for part in parts if "functionCall" in part]
    if calls and not any("thoughtSignature" in part for part in parts):
        calls[0]["thoughtSignature"] = _UNSIGNED
    return parts


def _of_model(part: Part, origin: Origin) -> Iterator[dict[str, Any]]:
    match part:
        case Text(text):
            signature = _signature(part.extra.get("signature"), origin)
            if text or signature:
                yield {"text": text, **signature}
        case Thinking(text, seal):
            if signature := _signature(seal, origin):
                yield {"text": text, "thought": True, **signature}
        case ToolCall(call_id, name):
            called = {"id": call_id, "name": name, "args": arguments_object(part)}
            yield {"functionCall": called, **_signature(part.extra.get("signature"), origin)}
        case Opaque():
            block = own_block(_WIRE, origin, part)
            if block is not None and of_another_model(origin, part):
                block.pop("thoughtSignature", None)
            yield from [] if block is None else [block]
        case _:
            yield _of_user(part, "assistant")


def _signature(seal: object, origin: Origin) -> dict[str, str]:
    opened = unsealed(_WIRE, origin, seal)
    return {"thoughtSignature": opened[1]} if opened else {}


def _result(part: ToolResult, names: Mapping[str, str]) -> dict[str, Any]:
    response = {"error" if part.is_error else "output": part.content}
    named = {"id": part.call_id, "name": names.get(part.call_id, "unknown")}
    return {"functionResponse": {**named, "response": response}}


def _of_user(part: Part, role: str) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"text": text}
        case Image() | Audio() | File():
            return _attachment(part)
        case _:
            raise misplaced(part, role, _WIRE)


def _attachment(part: Attachment) -> dict[str, Any]:
    kind = {"mimeType": part.media_type} if part.media_type else {}
    if part.url is not None:
        return {"fileData": {**kind, "fileUri": part.url}}
    return {"inlineData": {**kind, "data": base64_of(part, _WIRE)}}


# -- the reply ---------------------------------------------------------------------------------


class ReplyBuilder:
    """Takes responses, of which a stream has several, and gives deltas, then the reply.

    Attributes:
        complete: the server has sent why the model stopped, so that the reply is whole.
        ended: never; the wire has no mark of the end, and the usage may come last.
    """

    def __init__(
        self, *, used_ids: Collection[str], new_id: Callable[[], str], origin: Origin
    ) -> None:
        """Start.

        Args:
            used_ids: ids of tool calls that the conversation already has.
            new_id: makes ids for tool calls that come without a usable one.
            origin: the server and the model, which alone can open what they have sealed.
        """
        self._blocks = Blocks(used_ids, new_id)
        self._origin = origin
        self._open = ""
        self._usage = Usage()
        self._id = self._model = self._finish = ""
        self._blocked = False
        self.complete: bool = False
        self.ended: bool = False
        self.request_id: str = ""

    def add(self, chunk: Any, *, whole: bool = False) -> list[Delta]:
        """Take a response and return what it adds.

        Raises:
            LLMError: it is an error that the server reports.
            InvalidReply: it is neither.
        """
        if not isinstance(chunk, dict):
            raise reported_error(chunk, LLMError) if isinstance(chunk, list) else _unreadable()
        response = cast(dict[str, Any], chunk)
        if response.get("error"):
            raise reported_error(response["error"], LLMError)
        if not response.keys() & {"candidates", "promptFeedback", "usageMetadata"}:
            raise _unreadable()
        self._id = self._id or fields.text(response, "responseId")
        self._model = self._model or fields.text(response, "modelVersion")
        if usage := fields.mapping(response, "usageMetadata"):
            self._usage = _usage(usage)
        if fields.text(fields.mapping(response, "promptFeedback"), "blockReason"):
            self._blocked = self.complete = True
        deltas: list[Delta] = []
        for candidate in fields.mappings(response, "candidates")[:1]:
            for part in fields.mappings(fields.mapping(candidate, "content"), "parts"):
                deltas += self._part(part)
            self._finish = fields.text(candidate, "finishReason") or self._finish
        self.complete = self.complete or bool(self._finish)
        return deltas

    def take(self, event: ServerEvent) -> list[Delta]:
        """Take an event of the stream; see `add`."""
        return self.add(read_json(event.data)) if event.data.strip() else []

    def reply(self) -> Reply:
        """Return the reply.

        Raises:
            InvalidReply: it is not complete, or the model wrote a call that cannot be read.
        """
        if self._finish in _MALFORMED:
            raise InvalidReply("the model wrote what the server cannot read", retryable=True)
        stop: Stop = _STOPS.get(self._finish, "other")
        if self._blocked or self._finish in _FILTERED:
            stop = "content_filter"
        parts, stop = self._blocks.end(stop, complete=self.complete)
        return Reply(parts, self._usage, stop, self._model, self._id)

    def _part(self, part: Mapping[str, Any]) -> list[Delta]:
        signature = sealed(_WIRE, self._origin, "part", fields.text(part, "thoughtSignature"))
        if isinstance(part.get("text"), str):
            return self._text(part, signature)
        self._open = ""
        number = len(self._blocks)
        if call := fields.mapping(part, "functionCall"):
            name, arguments = fields.text(call, "name"), arguments_text(call.get("args"))
            deltas = self._blocks.call(number, fields.text(call, "id"), name, arguments)
            self._blocks.sign(number, signature)
            return deltas
        kept = _inline(part) or provider_block(_WIRE, self._origin, part)
        if fields.is_shallow(part):
            self._blocks.keep(number, kept)
        return []

    def _text(self, part: Mapping[str, Any], signature: str | None) -> list[Delta]:
        """Add text to the one before it, unless a signature belongs to one of them."""
        kind = "thinking" if part.get("thought") is True else "text"
        goes_on = self._open == kind and signature is None
        number = len(self._blocks) - (1 if goes_on else 0)
        add = self._blocks.thinking if kind == "thinking" else self._blocks.text
        deltas = add(number, part["text"])
        self._blocks.sign(number, signature)
        self._open = "" if signature else kind
        return deltas


def _inline(part: Mapping[str, Any]) -> Image | Audio | File | None:
    """Return what the model made beside text, None for anything else."""
    inline = fields.mapping(part, "inlineData")
    media_type, data = fields.text(inline, "mimeType"), fields.text(inline, "data")
    if not media_type or not data or "thoughtSignature" in part:
        return None
    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        return None
    kind = {"image": Image, "audio": Audio}.get(media_type.partition("/")[0], File)
    return kind(data=content, media_type=media_type)


def _usage(value: Mapping[str, Any]) -> Usage:
    thoughts = fields.count(value, "thoughtsTokenCount")
    tool_use = fields.count(value, "toolUsePromptTokenCount")
    return Usage(
        input_tokens=fields.count(value, "promptTokenCount") + tool_use,
        output_tokens=fields.count(value, "candidatesTokenCount") + thoughts,
        cache_read_tokens=fields.count(value, "cachedContentTokenCount"),
        reasoning_tokens=thoughts,
    )


def _unreadable() -> InvalidReply:
    return InvalidReply("the server's answer is not a response of Gemini", retryable=True)

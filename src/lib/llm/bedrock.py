"""`BedrockClient`: models of all makers behind Amazon Bedrock's Converse.

A request is signed by botocore, or carries a key of Bedrock's own and then needs no botocore.

Source: Amazon Bedrock API reference, "Converse" and "ConverseStream" (docs.aws.amazon.com,
2026-11), the service model of botocore 1.44, and AWS, "Event stream encoding".
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import struct
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar, Final, Literal, Unpack, cast
from urllib.parse import quote

from lib._util.json import canonical
from lib.errors import InvalidReply, LLMError, MissingDriver, UnsupportedModality
from lib.http.failures import reported_error
from lib.llm.api import fields
from lib.llm.api.blocks import Blocks
from lib.llm.api.client import ClientOptions, used_ids
from lib.llm.api.conversation import (
    Origin,
    arguments_object,
    base64_of,
    fitting_id,
    misplaced,
    of_another_model,
    own_block,
    provider_block,
    sealed,
    text_only,
    unsealed,
)
from lib.llm.api.endpoint import JSON_HEADERS, Endpoint, checked_address, checked_key
from lib.llm.api.fields import arguments_text
from lib.llm.api.prefixes import (
    Block,
    Bound,
    Prefix,
    bound_messages,
    bound_name,
    needed_thinking,
    request_digest,
)
from lib.llm.api.streams import Decoder, ServerEvent, read_json
from lib.llm.api.wire import ModelCall, Settings, WireClient, read_settings, stops
from lib.llm.client import Delta, Output, Reply, Stop, ToolSpec, Usage
from lib.llm.messages import Message
from lib.llm.output import output_schema
from lib.llm.parts import (
    Attachment,
    File,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from lib.llm.schema import strict_shape

Cache = Literal["5m", "1h"]

_WIRE: Final = "bedrock"
_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CACHING: Final = re.compile(r"anthropic\.claude|amazon\.nova")
_RESERVED: Final = frozenset({"messages", "modelId", "system", "toolConfig", "tools"})
_INFERENCE: Final = {"temperature": "temperature", "top_p": "topP", "stop": "stopSequences"}
_FORMATS: Final[Mapping[str, str]] = {
    "application/msword": "doc",
    "application/pdf": "pdf",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "audio/aac": "aac",
    "audio/flac": "flac",
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "audio/opus": "opus",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "image/gif": "gif",
    "image/jpeg": "jpeg",
    "image/png": "png",
    "image/webp": "webp",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "text/plain": "txt",
}
_STOPS: Final[Mapping[str, Stop]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
}
_MALFORMED: Final = frozenset({"malformed_model_output", "malformed_tool_use"})
_STATUSES: Final = {
    "serviceUnavailableException": 503,
    "throttlingException": 429,
    "validationException": 400,
}
_EMPTY: Final = "(empty)"


class BedrockClient(WireClient):
    """Speaks Converse of Amazon Bedrock.

    See `WireClient` for what all such clients have in common. `parallel_tool_calls` has no field
    here and is left out. Settings beside those go in as they are, such as
    `additionalModelRequestFields` for thinking, or `guardrailConfig`.
    """

    name = _WIRE
    carries: ClassVar[frozenset[str]] = frozenset({"text", "image", "audio", "file"})
    _accept = "application/vnd.amazon.eventstream"

    def __init__(
        self,
        model: str,
        *,
        region: str | None = None,
        api_key: str | None = None,
        profile: str | None = None,
        base_url: str | None = None,
        modalities: frozenset[str] = frozenset({"text"}),
        cache: Cache | None = "5m",
        **options: Unpack[ClientOptions],
    ) -> None:
        """Prepare a client; nothing is opened before the first call.

        Args:
            model: the model of calls that name none: an id, an ARN or an inference profile.
            region: of AWS; defaults to AWS_REGION, else AWS_DEFAULT_REGION.
            api_key: of Bedrock's own; defaults to AWS_BEARER_TOKEN_BEDROCK. Without one, botocore
                finds credentials as it does for all of AWS, and signs.
            profile: of AWS's own files, for botocore.
            base_url: in place of the region's address.
            modalities: what the model takes beside "text".
            cache: how long the server keeps the beginning of a conversation for the next call, for
                models that can; None marks nothing.
            **options: see `ClientOptions`.

        Raises:
            ValueError: no region, a key or address that cannot be one, a modality that the wire
                cannot carry, or both `http` and `transport`.
            MissingDriver: there is no key, and botocore is not installed.
        """
        place = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        if not place:
            raise ValueError("Bedrock needs a region: set AWS_REGION or pass region=")
        address, _ = checked_address(base_url or f"https://bedrock-runtime.{place}.amazonaws.com")
        key = checked_key(api_key, "AWS_BEARER_TOKEN_BEDROCK")
        headers = {**JSON_HEADERS, **({"authorization": f"Bearer {key}"} if key else {})}
        endpoint = Endpoint(address=address, headers=headers, provider="aws.bedrock")
        super().__init__(model, endpoint, modalities=modalities, **options)
        self._cache: Cache | None = cache
        self._sign = None if key else _signer(place, profile)

    def _path(self, call: ModelCall) -> str:
        method = "converse-stream" if call.stream else "converse"
        return f"/model/{quote(call.model, safe='')}/{method}"

    def _body(self, call: ModelCall) -> dict[str, Any]:
        cache = self._cache if _CACHING.search(call.model) else None
        return build_body(call, origin=Origin(self._server, call.model), cache=cache)

    def _builder(self, call: ModelCall, body: Mapping[str, Any]) -> ReplyBuilder:
        return ReplyBuilder(
            used_ids=used_ids(call.messages),
            new_id=self._new_id,
            origin=Origin(self._server, call.model),
            model=call.model,
            request=body,
        )

    def _decoder(self) -> Decoder:
        return EventStreamDecoder()

    async def _authorized(self, url: str, content: bytes) -> Mapping[str, str]:
        if self._sign is None:
            return {}
        # In a thread: credentials come from files, other processes and servers, and expire.
        return await asyncio.to_thread(self._sign, url, content)


def _signer(region: str, profile: str | None) -> Callable[[str, bytes], Mapping[str, str]]:
    """Return what makes the headers that sign a request.

    Raises:
        MissingDriver: botocore is not installed.
    """
    try:
        names = ("botocore.auth", "botocore.awsrequest", "botocore.session")
        auth, awsrequest, sessions = (cast(Any, import_module(name)) for name in names)
    except ImportError as error:
        raise MissingDriver("BedrockClient", driver="botocore", extra="bedrock") from error
    session = sessions.Session(profile=profile)

    def sign(url: str, content: bytes) -> Mapping[str, str]:
        credentials = session.get_credentials()
        if credentials is None:
            raise LLMError("AWS has no credentials here: set them, or AWS_BEARER_TOKEN_BEDROCK")
        headers = {"content-type": JSON_HEADERS["content-type"]}
        request = awsrequest.AWSRequest("POST", url, headers=headers, data=content)
        auth.SigV4Auth(credentials.get_frozen_credentials(), "bedrock", region).add_auth(request)
        return {name.lower(): value for name, value in request.headers.items()}

    return sign


# -- the request -------------------------------------------------------------------------------


def build_body(call: ModelCall, *, origin: Origin, cache: Cache | None = None) -> dict[str, Any]:
    """Return the body as plain data, the same for the same conversation.

    Raises:
        ValueError: a setting has a parameter of its own.
        LLMError: a message holds what the wire cannot carry in its role.
    """
    settings = read_settings(call, _RESERVED)
    config = _tool_config(call, settings)
    body = _parameters(settings) | ({"toolConfig": config} if config else {})
    system = [{"text": text} for text in _instructions(call.messages)]
    constraint = [*_constraint(body, call.output)]
    prefix = Prefix(config.get("tools", ()), (*system, *constraint))
    messages = _messages(call.messages, origin, prefix, body)
    if cache is not None:
        _mark(system, messages, cache)
    system += constraint
    return {**body, **({"system": system} if system else {}), "messages": messages}


def _constraint(body: Block, output: Output | None) -> Iterator[Block]:
    """Put the shape of the answer into the body, or yield an instruction where it cannot be."""
    if output is None:
        return
    schema = output_schema(output)
    if (shape := strict_shape(schema)) is not None:
        body["outputConfig"] = {**fields.mapping(body, "outputConfig"), **_format(shape)}
        return
    text = f"Reply with nothing but JSON that fits this JSON schema: {canonical(schema)}"
    yield {"text": text}


def _parameters(settings: Settings) -> dict[str, Any]:
    """Return what is neither the conversation nor about tools."""
    rest = {name: value for name, value in settings.rest.items() if name != "tool_choice"}
    if "stop" in rest:
        rest["stop"] = stops(rest["stop"])
    inference = dict(fields.mapping(rest, "inferenceConfig"))
    inference |= {name: rest.pop(key) for key, name in _INFERENCE.items() if key in rest}
    if settings.max_tokens:
        inference["maxTokens"] = settings.max_tokens
    return {**rest, **({"inferenceConfig": inference} if inference else {})}


def _format(shape: dict[str, Any]) -> dict[str, Any]:
    held = {"jsonSchema": {"schema": json.dumps(shape), "name": "output"}}
    return {"textFormat": {"type": "json_schema", "structure": held}}


def _tool_config(call: ModelCall, settings: Settings) -> dict[str, Any]:
    """Return the tools and their choice; there is no word for none but to leave them out."""
    usable = settings.choice != "none"
    tools = call.used_tools() if usable else replace(call, tools=()).used_tools()
    choice = _choice(settings.choice, settings.tool) or settings.rest.get("tool_choice")
    if not tools:
        return {}
    return {"tools": [*map(_tool, tools)], **({"toolChoice": choice} if choice and usable else {})}


def _choice(choice: str, tool: str) -> dict[str, Any] | None:
    if tool:
        return {"tool": {"name": tool}}
    words: dict[str, dict[str, Any]] = {"auto": {"auto": {}}, "required": {"any": {}}}
    return words.get(choice)


def _tool(spec: ToolSpec) -> dict[str, Any]:
    # The server refuses an empty description.
    described = {"description": spec.description} if spec.description else {}
    held = {"name": spec.name, **described, "inputSchema": {"json": spec.input_schema}}
    return {"toolSpec": held}


def _instructions(messages: Sequence[Message]) -> Iterator[str]:
    """Yield all texts of the system: the conversation itself has no role for them."""
    for message in messages:
        if message.role == "system" and (text := text_only(message, _WIRE).strip()):
            yield text


def _messages(
    messages: Sequence[Message], origin: Origin, prefix: Prefix, body: Mapping[str, Any]
) -> list[Block]:
    documents: list[None] = []
    turns = [message for message in messages if message.role != "system"]
    entries = (
        (
            "assistant" if message.role == "assistant" else "user",
            [*_blocks(message, origin, documents)],
        )
        for message in turns
    )
    own = fields.mapping(body, "additionalModelRequestFields")
    needed = needed_thinking(turns, fields.mapping(own, "thinking"))
    return bound_messages(entries, prefix, needed_from=needed)


def _mark(
    system: list[dict[str, Any]], messages: Sequence[Mapping[str, Any]], cache: Cache
) -> None:
    """Mark where the next call is certain to begin alike, and where the last one ended."""
    point = {"cachePoint": {"type": "default"} | ({"ttl": cache} if cache != "5m" else {})}
    if system:
        system.append(point)
    ends = [message["content"] for message in messages if message["role"] == "user"]
    for content in ends[-2:]:
        content.append(point)


def _blocks(message: Message, origin: Origin, documents: list[None]) -> Iterator[Block | Bound]:
    for part in message.parts:
        if isinstance(part, Text):
            if part.text.strip():  # the server refuses what has nothing to read
                yield {"text": part.text}
        elif message.role == "assistant":
            yield from _of_model(part, origin)
        elif message.role == "tool" and isinstance(part, ToolResult):
            yield _tool_result(part)
        elif message.role == "user" and isinstance(part, Attachment):
            yield _attachment(part, documents)
        else:
            raise misplaced(part, message.role, _WIRE)


def _tool_result(part: ToolResult) -> dict[str, Any]:
    text = part.content if part.content.strip() else _EMPTY
    result = {"toolUseId": _call_id(part.call_id), "content": [{"text": text}]}
    return {"toolResult": {**result, **({"status": "error"} if part.is_error else {})}}


def _of_model(part: Part, origin: Origin) -> Iterator[Block | Bound]:
    match part:
        case ToolCall(call_id, name):
            called = {"toolUseId": _call_id(call_id), "name": name}
            yield {"toolUse": {**called, "input": arguments_object(part)}}
        case Thinking():
            yield from _reasoning(part, origin)
        case Opaque():
            block = own_block(_WIRE, origin, part)
            # Models of many vendors share the server, and not what they can read.
            if block is not None and not of_another_model(origin, part):
                yield block
        case _:
            raise misplaced(part, "assistant", _WIRE)


def _call_id(call_id: str) -> str:
    return fitting_id(call_id, _CALL_ID, 40)


def _reasoning(part: Thinking, origin: Origin) -> Iterator[Bound]:
    name, seal = unsealed(_WIRE, origin, part.signature) or ("", "")
    kind, _, prefix = name.partition("~")
    if kind == "thinking":
        content: Block = {"reasoningText": {"text": part.text, "signature": seal}}
        yield Bound({"reasoningContent": content}, prefix)
    elif kind == "redacted":
        yield Bound({"reasoningContent": {"redactedContent": seal}}, prefix)
    # What others think is only for reading.


def _attachment(part: Attachment, documents: list[None]) -> dict[str, Any]:
    form = _FORMATS.get(part.media_type)
    if form is None:
        kind, formats = f"{part.modality} of type {part.media_type}", frozenset(_FORMATS)
        raise UnsupportedModality(kind, client=_WIRE, supported=formats)
    stored = part.url is not None and part.url.startswith("s3://")
    source = {"s3Location": {"uri": part.url}} if stored else {"bytes": base64_of(part, _WIRE)}
    held: dict[str, Any] = {"format": form, "source": source}
    if not isinstance(part, File):
        return {part.modality: held}
    documents.append(None)
    # The model reads the name, which the user of an application may have written.
    return {"document": {**held, "name": f"document-{len(documents)}"}}


# -- the reply ---------------------------------------------------------------------------------


class EventStreamDecoder:
    """Takes bytes of AWS's event streams and gives events, exceptions as `exception:NAME`."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Yield the events that these bytes complete.

        Raises:
            InvalidReply: they are not of such a stream.
        """
        self._buffer += chunk
        while len(self._buffer) >= _PRELUDE.size:
            length, headers_length, check = _PRELUDE.unpack_from(self._buffer)
            if zlib.crc32(self._buffer[:8]) != check or length < _FRAME or headers_length > length:
                raise _unreadable()
            if len(self._buffer) < length:
                return
            frame = bytes(self._buffer[:length])
            del self._buffer[:length]
            if zlib.crc32(frame[:-4]) != int.from_bytes(frame[-4:], "big"):
                raise _unreadable()
            start = _PRELUDE.size + headers_length
            headers = dict(_headers(frame[_PRELUDE.size : start]))
            data = frame[start:-4].decode("utf-8", "replace")
            yield ServerEvent(data, _event_name(headers))

    def end(self) -> Iterator[ServerEvent]:
        """Yield nothing: a frame is whole or missing."""
        return iter(())


_PRELUDE: Final = struct.Struct(">III")
_FRAME: Final = 16
_SIZES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of a header's value by its type; those of 6 and 7 begin with their length."""


def _headers(content: bytes) -> Iterator[tuple[str, str]]:
    place = 0
    try:
        while place < len(content):
            end = place + 1 + content[place]
            name, kind = content[place + 1 : end].decode(), content[end]
            place = end + 1
            size = _SIZES.get(kind)
            if size is None:
                size = int.from_bytes(content[place : place + 2], "big")
                place += 2
            yield name, content[place : place + size].decode("utf-8", "replace")
            place += size
    except (IndexError, UnicodeDecodeError):
        raise _unreadable() from None


def _event_name(headers: Mapping[str, str]) -> str:
    if headers.get(":message-type", "event") == "event":
        return headers.get(":event-type", "")
    return f"exception:{headers.get(':exception-type') or headers.get(':error-code', '')}"


class ReplyBuilder:
    """Takes the server's events and gives deltas, then the reply.

    Attributes:
        request_id: the name of the request, and of its answer; it stands in a header.
        complete: the model has stopped, so that the reply is whole.
        ended: the usage has come, too.
    """

    def __init__(
        self,
        *,
        used_ids: Collection[str],
        new_id: Callable[[], str],
        origin: Origin,
        model: str,
        request: Mapping[str, Any],
    ) -> None:
        """Start.

        Args:
            used_ids: ids of tool calls that the conversation already has.
            new_id: makes ids for tool calls that come without a usable one.
            origin: the server and the model, which alone can open what they have sealed.
            model: the model that was called, which no answer names.
            request: the body that is answered, which thinking is bound to.
        """
        self._blocks = Blocks(used_ids, new_id)
        self._origin, self._model, self._request = origin, model, request
        self._usage = Usage()
        self._stop = ""
        self.request_id: str = ""
        self.complete: bool = False
        self.ended: bool = False

    def add(self, chunk: Any, *, whole: bool = False) -> list[Delta]:
        """Take the whole answer and return what it adds.

        Raises:
            InvalidReply: it is no answer of Converse.
        """
        answer = cast(dict[str, Any], chunk) if isinstance(chunk, dict) else {}
        message = fields.mapping(fields.mapping(answer, "output"), "message")
        if not message:
            raise _unreadable()
        deltas: list[Delta] = []
        for number, block in enumerate(fields.mappings(message, "content")):
            deltas += self._start(number, block)
        self._usage = _usage(fields.mapping(answer, "usage"))
        self._stop = fields.text(answer, "stopReason")
        self.complete = self.ended = True
        return deltas

    def take(self, event: ServerEvent) -> list[Delta]:
        """Take an event of the stream and return what it adds.

        Raises:
            LLMError: it is an exception that the server reports.
            InvalidReply: it is not JSON.
        """
        exception = event.event.partition(":")[2]
        if event.event.startswith("exception:"):
            status = _STATUSES.get(exception, 500)
            raise reported_error({"code": exception, "status": status}, LLMError)
        value = read_json(event.data or "{}")
        data = cast(dict[str, Any], value) if isinstance(value, dict) else {}
        number = fields.count(data, "contentBlockIndex")
        match event.event:
            case "contentBlockStart":
                return self._start(number, fields.mapping(data, "start"))
            case "contentBlockDelta":
                return self._piece(number, fields.mapping(data, "delta"))
            case "messageStop":
                self._stop, self.complete = fields.text(data, "stopReason"), True
            case "metadata":
                self._usage, self.ended = _usage(fields.mapping(data, "usage")), True
            case _:
                pass
        return []

    def reply(self) -> Reply:
        """Return the reply.

        Raises:
            InvalidReply: it is not complete, or the model wrote what cannot be read.
        """
        if self._stop in _MALFORMED:
            raise InvalidReply("the model wrote what the server cannot read", retryable=True)
        stop: Stop = _STOPS.get(self._stop, "other")
        parts, stop = self._blocks.end(stop, complete=self.complete, cut_off=stop == "length")
        return Reply(parts, self._usage, stop, self._model, self.request_id)

    def _start(self, number: int, block: Mapping[str, Any]) -> list[Delta]:
        """Take a block, or the start of one."""
        if call := fields.mapping(block, "toolUse"):
            call_id, name = fields.text(call, "toolUseId"), fields.text(call, "name")
            return self._blocks.call(number, call_id, name, arguments_text(call.get("input")))
        if "text" in block or "reasoningContent" in block:
            return self._piece(number, block)
        if cited := fields.mapping(block, "citationsContent"):
            return self._piece(number, {"text": _texts(cited)})
        if block and fields.is_shallow(block):
            self._blocks.keep(number, provider_block(_WIRE, self._origin, block))
        return []

    def _piece(self, number: int, delta: Mapping[str, Any]) -> list[Delta]:
        if isinstance(delta.get("text"), str):
            return self._blocks.text(number, delta["text"])
        if call := fields.mapping(delta, "toolUse"):
            return self._blocks.arguments(number, fields.text(call, "input"))
        if reasoning := fields.mapping(delta, "reasoningContent"):
            return self._reasoning(number, reasoning)
        if citation := fields.mapping(delta, "citation"):
            self._blocks.note(number, "citations", dict(citation))
        return []

    def _reasoning(self, number: int, value: Mapping[str, Any]) -> list[Delta]:
        """Take reasoning, in the form of a whole answer or of a stream."""
        held = fields.mapping(value, "reasoningText") or value
        if data := fields.text(held, "redactedContent"):
            self._seal(number, "redacted", data)
        if signature := fields.text(held, "signature"):
            self._seal(number, "thinking", signature)
        return self._blocks.thinking(number, fields.text(held, "text"))

    def _seal(self, number: int, name: str, signature: str) -> None:
        name = bound_name(name, self._digest)
        self._blocks.sign(number, sealed(_WIRE, self._origin, name, signature))

    @cached_property
    def _digest(self) -> str:
        request = self._request
        tools = fields.mapping(request, "toolConfig").get("tools", ())
        return request_digest(tools, request.get("system", ()), messages=request["messages"])


def _texts(cited: Mapping[str, Any]) -> str:
    return "".join([fields.text(each, "text") for each in fields.mappings(cited, "content")])


def _usage(value: Mapping[str, Any]) -> Usage:
    read = fields.count(value, "cacheReadInputTokens")
    written = fields.count(value, "cacheWriteInputTokens")
    return Usage(
        input_tokens=fields.count(value, "inputTokens") + read + written,
        output_tokens=fields.count(value, "outputTokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=sum(
            fields.count(each, "inputTokens")
            for each in fields.mappings(value, "cacheDetails")
            if each.get("ttl") == "1h"
        ),
    )


def _unreadable() -> InvalidReply:
    return InvalidReply("the server's answer is not one of Converse", retryable=True)

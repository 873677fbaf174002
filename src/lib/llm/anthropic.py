"""`AnthropicClient`: models behind Anthropic's messages API, or Claude on Vertex AI.

The log of a conversation only grows, so that each call repeats the one before it: the cache is
marked after the instructions, after the last message, and where the last message of the call before
stood. Thinking goes back with its seal to the model that made it, and to no other: the server drops
what its model cannot read, says "Preserved thinking" (2026-11), but has refused it as well
(anthropics/anthropic-sdk-python#1598). So each model sees a conversation that only grows, and where
one was cut, what was thought behind the cut stays out (`prefixes`).

Source: Anthropic API reference, "Messages" and "Streaming messages" (docs.anthropic.com, 2026-11),
and the types of anthropic-sdk-python 2.12.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, Unpack, cast
from urllib.parse import quote

from lib._util.json import canonical
from lib.errors import InvalidReply, LLMError, UnsupportedModality
from lib.http.failures import reported_error
from lib.llm.api import fields
from lib.llm.api.blocks import Blocks
from lib.llm.api.client import ClientOptions, used_ids
from lib.llm.api.conversation import (
    Origin,
    arguments_object,
    base64_of,
    fitting_id,
    leading_system,
    misplaced,
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
    provider_of,
    vertex_address,
    vertex_publisher,
)
from lib.llm.api.fields import arguments_text, read_arguments
from lib.llm.api.prefixes import (
    Block,
    Bound,
    Prefix,
    bound_messages,
    bound_name,
    needed_thinking,
    request_digest,
)
from lib.llm.api.streams import ServerEvent, read_json
from lib.llm.api.wire import ModelCall, Settings, WireClient, read_settings, stops
from lib.llm.client import Delta, Output, Reply, Stop, Usage
from lib.llm.messages import Message
from lib.llm.output import output_schema
from lib.llm.parts import File, Image, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from lib.llm.schema import strict_shape

URL: Final = "https://api.anthropic.com"
VERSION: Final = "2026-10-21"
MAX_TOKENS: Final = 16_384
"""Of an answer, thinking included, where a call does not say."""

_WIRE: Final = "anthropic"
_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PDF: Final = "application/pdf"
_RESERVED: Final = frozenset(
    {"anthropic_version", "messages", "model", "stream", "system", "tools"}
)
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}
_STOPS: Final[Mapping[str, Stop]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "refusal": "content_filter",
}

Cache = Literal["5m", "1h"]


class AnthropicClient(WireClient):
    """Speaks `/v1/messages`, as Anthropic and some gateways do, or `:rawPredict` of Vertex AI.

    See `WireClient` for what all such clients have in common. `max_tokens` is 16,384 unless a call
    has it as a setting: the wire requires one. `thinking` and `output_config` are settings, too. A
    block of a reply that has no part here, such as a search of the server's own, is kept and goes
    back to this server.
    """

    name = _WIRE
    carries: ClassVar[frozenset[str]] = frozenset({"text", "image", "file"})

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
        cache: Cache | None = "5m",
        version: str = VERSION,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Prepare a client; nothing is opened before the first call.

        Args:
            model: the model of calls that name none.
            api_key: defaults to ANTHROPIC_API_KEY, else ANTHROPIC_AUTH_TOKEN is sent.
            base_url: up to `/v1`; defaults to ANTHROPIC_BASE_URL, else Anthropic; with a project,
                to Vertex AI.
            project: of Google Cloud, for Vertex AI instead of Anthropic.
            location: of Vertex AI, such as "europe-west4", "eu" or "us".
            token: an OAuth token for Vertex AI, or what returns one; see `GeminiClient`.
            modalities: what the model takes beside "text".
            cache: how long the server keeps the beginning of a conversation for the next call;
                None marks nothing.
            version: of the API, as a header names it, or on Vertex AI the body.
            **options: see `ClientOptions`.

        Raises:
            ValueError: no key for Anthropic, a project without a token or a token without a
                project, a key or address that cannot be one, a modality that the wire cannot carry,
                or both `http` and `transport`.
        """
        if (project is None) != (token is None):
            raise ValueError("Claude on Vertex AI needs both project= and token=")
        if project is None:
            endpoint = _endpoint(api_key, base_url, version)
        else:
            endpoint = _vertex_endpoint(base_url, project, location)
        super().__init__(model, endpoint, modalities=modalities, **options)
        self._cache: Cache | None = cache
        self._token, self._version = token, version

    def _path(self, call: ModelCall) -> str:
        if self._token is None:
            return "/v1/messages"
        method = "streamRawPredict" if call.stream else "rawPredict"
        return f"/models/{quote(call.model, safe='@')}:{method}"

    def _body(self, call: ModelCall) -> dict[str, Any]:
        body = build_body(call, origin=Origin(self._server, call.model), cache=self._cache)
        if self._token is not None:  # whose path names the model
            del body["model"]
            body["anthropic_version"] = self._version
        return body

    def _builder(self, call: ModelCall, body: Mapping[str, Any]) -> ReplyBuilder:
        return ReplyBuilder(
            used_ids=used_ids(call.messages),
            new_id=self._new_id,
            origin=Origin(self._server, call.model),
            request=body,
        )

    async def _authorized(self, url: str, content: bytes) -> Mapping[str, str]:
        return {} if self._token is None else await bearer(self._token)


def _vertex_endpoint(base_url: str | None, project: str, location: str) -> Endpoint:
    address, _ = checked_address(base_url or vertex_address(location, "v1"))
    address = vertex_publisher(address, project, location, "anthropic")
    return Endpoint(address=address, headers=JSON_HEADERS, provider=VERTEX)


def _endpoint(api_key: str | None, base_url: str | None, version: str) -> Endpoint:
    address, host = checked_address(base_url or os.environ.get("ANTHROPIC_BASE_URL") or URL)
    key, headers = checked_key(api_key, "ANTHROPIC_API_KEY"), {"anthropic-version": version}
    if key:
        headers["x-api-key"] = key
    elif token := checked_key(None, "ANTHROPIC_AUTH_TOKEN"):
        headers["authorization"] = f"Bearer {token}"
    elif address == URL:
        raise ValueError("Anthropic needs a key: set ANTHROPIC_API_KEY or pass api_key=")
    return Endpoint(
        address=address.removesuffix("/v1"),
        headers={**JSON_HEADERS, **headers},
        provider=provider_of(host),
    )


# -- the request -------------------------------------------------------------------------------


def build_body(call: ModelCall, *, origin: Origin, cache: Cache | None) -> dict[str, Any]:
    """Return the body as plain data, the same for the same conversation.

    Raises:
        ValueError: a setting has a parameter of its own.
        LLMError: a message holds what the wire cannot carry in its role.
    """
    settings = read_settings(call, _RESERVED)
    body: dict[str, Any] = {"model": call.model, "max_tokens": settings.max_tokens or MAX_TOKENS}
    body |= settings.rest
    if "stop" in body:
        body["stop_sequences"] = stops(body.pop("stop"))
    if tools := call.used_tools():
        body["tools"] = [
            {"name": spec.name, "description": spec.description, "input_schema": spec.input_schema}
            for spec in tools
        ]
        body |= _tool_choice(settings, call)
    leading = leading_system(call.messages)
    system = [*_texts(leading)]
    constraint = [*_constraint(body, call.output)]
    prefix = Prefix(body.get("tools", ()), (*system, *constraint))
    rest = call.messages[len(leading) :]
    needed = needed_thinking(rest, fields.mapping(body, "thinking"))
    entries = ((_role(message), [*_blocks(message, origin)]) for message in rest)
    body["messages"] = messages = bound_messages(entries, prefix, needed_from=needed)
    if cache is not None:
        _mark(system or body.get("tools", []), messages, cache)
    if system or constraint:
        body["system"] = [*system, *constraint]
    if call.stream:
        body["stream"] = True
    return body


def _tool_choice(settings: Settings, call: ModelCall) -> dict[str, Any]:
    choice = _CHOICES.get(settings.choice) if call.tools else "none"
    wanted: dict[str, Any] = {"type": choice} if choice else {}
    if settings.tool:
        wanted = {"type": "tool", "name": settings.tool}
    if settings.parallel is False and wanted.get("type") != "none":
        wanted = {"type": "auto", **wanted, "disable_parallel_tool_use": True}
    return {"tool_choice": wanted} if wanted else {}


def _texts(messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    for message in messages:
        if text := text_only(message, _WIRE).strip():
            yield {"type": "text", "text": text}


def _role(message: Message) -> str:
    return "user" if message.role == "tool" else message.role


def _blocks(message: Message, origin: Origin) -> Iterator[Block | Bound]:
    for part in message.parts:
        if isinstance(part, Text):
            if part.text.strip():  # the server refuses what has nothing to read
                yield {"type": "text", "text": part.text}
        elif message.role == "assistant":
            yield from _of_model(part, origin)
        else:
            yield _of_caller(part, message.role)


def _of_caller(part: Part, role: str) -> dict[str, Any]:
    match role, part:
        case "user", Image():
            return {"type": "image", "source": _source(part)}
        case "user", File():
            title = {"title": part.name} if part.name else {}
            return {"type": "document", "source": _source(part), **title}
        case "tool", ToolResult():
            return _tool_result(part)
        case _:
            raise misplaced(part, role, _WIRE)


def _of_model(part: Part, origin: Origin) -> Iterator[Block | Bound]:
    match part:
        case ToolCall():
            yield _tool_use(part)
        case Thinking():
            yield from _thinking(part, origin)
        case Opaque():
            if (block := own_block(_WIRE, origin, part)) is not None:
                yield block
        case _:
            raise misplaced(part, "assistant", _WIRE)


def _tool_result(part: ToolResult) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": _call_id(part.call_id)}
    if part.content.strip():
        block["content"] = part.content
    return {**block, "is_error": True} if part.is_error else block


def _tool_use(call: ToolCall) -> dict[str, Any]:
    block = {"type": "tool_use", "id": _call_id(call.id), "name": call.name}
    return {**block, "input": arguments_object(call)}


def _call_id(call_id: str) -> str:
    return fitting_id(call_id, _CALL_ID, 40)


def _thinking(part: Thinking, origin: Origin) -> Iterator[Bound]:
    name, seal = unsealed(_WIRE, origin, part.signature) or ("", "")
    kind, _, prefix = name.partition("~")
    if kind == "thinking":
        yield Bound({"type": kind, "thinking": part.text, "signature": seal}, prefix)
    elif kind == "redacted":
        yield Bound({"type": "redacted_thinking", "data": seal}, prefix)
    # What others think is only for reading.


def _source(part: Image | File) -> dict[str, Any]:
    if part.url is not None:
        return {"type": "url", "url": part.url}
    if isinstance(part, Image) or part.media_type == _PDF:
        data = base64_of(part, _WIRE)
        return {"type": "base64", "media_type": part.media_type, "data": data}
    if not part.media_type.startswith("text/"):
        kind = f"file of type {part.media_type}"
        supported = frozenset({f"file of type {_PDF}", "file of type text"})
        raise UnsupportedModality(kind, client=_WIRE, supported=supported)
    if part.data is None:
        raise LLMError("an attachment's blob was not loaded before the call")
    text = part.data.decode("utf-8", "replace")
    return {"type": "text", "media_type": "text/plain", "data": text}


def _mark(instructions: Sequence[Block], messages: Sequence[Block], cache: Cache) -> None:
    """Mark where the next call is certain to begin in the same way, and where the last one ended.

    The wire allows four marks. Those of messages stand at the last and at the last but one that is
    not the model's, since only such a message ends a call.
    """
    ends = [message["content"][-1] for message in messages if message["role"] != "assistant"]
    for block in (*instructions[-1:], *ends[-2:]):
        block["cache_control"] = {"type": "ephemeral"} | ({"ttl": cache} if cache != "5m" else {})


def _constraint(body: Block, output: Output | None) -> Iterator[Block]:
    """Put the shape of the answer into the body, or yield an instruction where it cannot be."""
    if output is None:
        return
    schema = output_schema(output)
    if (shape := strict_shape(schema)) is not None:
        wanted = {"type": "json_schema", "schema": shape}
        body["output_config"] = {**fields.mapping(body, "output_config"), "format": wanted}
        return
    text = f"Reply with nothing but JSON that fits this JSON schema: {canonical(schema)}"
    yield {"type": "text", "text": text}


# -- the reply ---------------------------------------------------------------------------------


class ReplyBuilder:
    """Takes the server's events and gives deltas, then the reply.

    Attributes:
        complete: the message has ended, so that the reply is whole.
        ended: the same; nothing follows.
    """

    def __init__(
        self,
        *,
        used_ids: Collection[str],
        new_id: Callable[[], str],
        origin: Origin,
        request: Mapping[str, Any],
    ) -> None:
        """Start.

        Args:
            used_ids: ids of tool calls that the conversation already has.
            new_id: makes ids for tool calls that come without a usable one.
            origin: the server and the model, which alone can open what they have sealed.
            request: the body that is answered, which thinking is bound to.
        """
        self._blocks = Blocks(used_ids, new_id)
        self._origin, self._request = origin, request
        self._usage: dict[str, Any] = {}
        self._others: dict[int, tuple[Mapping[str, Any], list[str]]] = {}
        self._id = self._model = self._stop = ""
        self.complete: bool = False
        self.ended: bool = False
        self.request_id: str = ""

    def add(self, chunk: Any, *, whole: bool = False) -> list[Delta]:
        """Take an event, or the one message of an answer that is no stream; return what it adds.

        Raises:
            LLMError: it is an error that the server reports.
            InvalidReply: it is neither.
        """
        if not isinstance(chunk, dict):
            raise _unreadable()
        event = cast(dict[str, Any], chunk)
        if event.get("type") == "error":
            raise reported_error(event.get("error"), LLMError)
        if not whole:
            return self._event(event)
        if event.get("type") != "message":
            raise _unreadable()
        self._begin(event)
        blocks = fields.mappings(event, "content")
        deltas = [
            delta for number, block in enumerate(blocks) for delta in self._start(number, block)
        ]
        self._stop = fields.text(event, "stop_reason")
        self.complete = self.ended = True
        return deltas

    def take(self, event: ServerEvent) -> list[Delta]:
        """Take an event of the stream; see `add`."""
        return self.add(read_json(event.data)) if event.data.strip() else []

    def reply(self) -> Reply:
        """Return the reply.

        Raises:
            InvalidReply: it is not complete, or holds a tool call without a name.
        """
        stop: Stop = _STOPS.get(self._stop, "other")
        self._keep_others()
        parts, stop = self._blocks.end(stop, complete=self.complete, cut_off=stop == "length")
        return Reply(parts, _usage(self._usage), stop, self._model, self._id)

    def _event(self, event: Mapping[str, Any]) -> list[Delta]:
        number = fields.count(event, "index")
        match event.get("type"):
            case "message_start":
                self._begin(fields.mapping(event, "message"))
            case "content_block_start":
                return self._start(number, fields.mapping(event, "content_block"))
            case "content_block_delta":
                return self._piece(number, fields.mapping(event, "delta"))
            case "message_delta":
                self._stop = fields.text(fields.mapping(event, "delta"), "stop_reason")
                self._count(event)
            case "message_stop":
                self.complete = self.ended = True
            case _:
                pass  # pings, the ends of blocks, and what is new
        return []

    def _begin(self, message: Mapping[str, Any]) -> None:
        self._id, self._model = fields.text(message, "id"), fields.text(message, "model")
        self._count(message)

    def _count(self, holder: Mapping[str, Any]) -> None:
        """Note the usage: counts are of the whole message, and those that are missing stay."""
        usage = fields.mapping(holder, "usage")
        self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _start(self, number: int, block: Mapping[str, Any]) -> list[Delta]:
        match block.get("type"):
            case "text":
                for citation in fields.mappings(block, "citations"):
                    self._blocks.note(number, "citations", dict(citation))
                return self._blocks.text(number, fields.text(block, "text"))
            case "thinking":
                self._sign(number, "thinking", fields.text(block, "signature"))
                return self._blocks.thinking(number, fields.text(block, "thinking"))
            case "redacted_thinking":
                self._sign(number, "redacted", fields.text(block, "data"))
                return []
            case "tool_use":
                arguments = arguments_text(block.get("input") or None)
                name = fields.text(block, "name")
                return self._blocks.call(number, fields.text(block, "id"), name, arguments)
            case _:
                self._others[number] = (block, [])
                return []

    def _piece(self, number: int, delta: Mapping[str, Any]) -> list[Delta]:
        match delta.get("type"):
            case "text_delta":
                return self._blocks.text(number, fields.text(delta, "text"))
            case "thinking_delta":
                return self._blocks.thinking(number, fields.text(delta, "thinking"))
            case "signature_delta":
                self._sign(number, "thinking", fields.text(delta, "signature"))
            case "input_json_delta":
                piece = fields.text(delta, "partial_json")
                if number in self._others:
                    self._others[number][1].append(piece)
                    return []
                return self._blocks.arguments(number, piece)
            case "citations_delta":
                citation = fields.mapping(delta, "citation")
                self._blocks.note(number, "citations", dict(citation))
            case _:
                pass
        return []

    def _sign(self, number: int, name: str, signature: str) -> None:
        name = bound_name(name, self._digest) if signature else ""
        self._blocks.sign(number, sealed(_WIRE, self._origin, name, signature))

    @cached_property
    def _digest(self) -> str:
        request = self._request
        conditions = request.get("tools", ()), request.get("system", ())
        return request_digest(*conditions, messages=request["messages"])

    def _keep_others(self) -> None:
        """Keep the blocks that have no part here, such as calls of the server's own tools."""
        for number, (block, pieces) in self._others.items():
            arguments, invalid = read_arguments("".join(pieces))
            whole = {**block, "input": arguments} if pieces and invalid is None else block
            if fields.text(block, "type") and fields.is_shallow(whole):
                self._blocks.keep(number, provider_block(_WIRE, self._origin, whole))


def _usage(value: Mapping[str, Any]) -> Usage:
    read = fields.count(value, "cache_read_input_tokens")
    written = fields.count(value, "cache_creation_input_tokens")
    details = fields.mapping(value, "output_tokens_details")
    return Usage(
        input_tokens=fields.count(value, "input_tokens") + read + written,
        output_tokens=fields.count(value, "output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=fields.count(
            fields.mapping(value, "cache_creation"), "ephemeral_1h_input_tokens"
        ),
        reasoning_tokens=fields.count(details, "thinking_tokens"),
    )


def _unreadable() -> InvalidReply:
    return InvalidReply("the server's answer is not a message", retryable=True)

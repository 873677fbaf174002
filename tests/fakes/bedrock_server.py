"""A server of Bedrock's Converse on loopback: strict, with seals of its own.

It checks signatures by the published algorithm, not by botocore. It refuses what AWS refuses: roles
that do not take turns, calls without their results in the next message, tool blocks without tools,
blank texts, blocks with two members, thinking that it did not sign, fields that it does not know.

Source: the service model of botocore 1.44, whose client reads its answers (scripts/vendor-sdks);
AWS, "Signature Version 4" and "Event stream encoding"; error texts as issues of users quote them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from fakes.llm_server import API_KEY, Answers, ModelServer, Raw, Received
from fakes.preserved_thinking import PreservedThinking
from lib.llm import Opaque, Part, Reply, Text, Thinking, ToolCall, Usage

ACCESS_KEY: Final = "AKIATEST"
REGION: Final = "eu-west-1"
_PATH: Final = re.compile(r"(?:/v1)?/model/(?P<model>[^/]+)/(?P<method>converse|converse-stream)")
_FIELDS: Final = frozenset(
    {"additionalModelRequestFields", "guardrailConfig", "inferenceConfig", "messages", "model"}
    | {"outputConfig", "performanceConfig", "stream", "system", "toolConfig"}
)
_INFERENCE: Final = frozenset({"maxTokens", "stopSequences", "temperature", "topP"})
_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NAME: Final = re.compile(r"[a-zA-Z0-9() \[\]-]+")
_STOPS: Final = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "content_filtered",
    "other": "new",
}
_Block = Mapping[str, Any]


class BedrockServer(ModelServer):
    """Answers in turn what it was given, or what a function of the request's body returns.

    The body has the `model` of the path, and `stream`. The API key is Bedrock's own and the secret
    of `ACCESS_KEY`. The signatures of thinking in a script are raw: the server takes back only
    those that it sent.
    """

    stream_type = "application/vnd.amazon.eventstream"
    answer_headers: Mapping[str, str] = MappingProxyType({"x-amzn-requestid": "req_2"})

    def __init__(
        self, answers: Answers, *, api_key: str = API_KEY, slice_bytes: int | None = None
    ) -> None:
        """Take the script."""
        super().__init__(answers, api_key=api_key, slice_bytes=slice_bytes)
        self._thinking = PreservedThinking(_seal, _conditions, ["cachePoint"])

    def full(self, received: Received) -> dict[str, Any]:
        """Return the body with the model and the method of the path."""
        found = _PATH.fullmatch(received.path)
        if found is None:
            return received.body
        stream = found["method"] == "converse-stream"
        return {**received.body, "model": unquote(found["model"]), "stream": stream}

    def admit(self, received: Received) -> Raw | None:
        """Return the answer to a request with a wrong key, signature or path."""
        authorization = received.headers.get("authorization", "")
        if authorization.startswith("AWS4-HMAC-SHA256"):
            if not _is_signed(received, self._api_key):
                return failed(403, "InvalidSignatureException")
        elif authorization != f"Bearer {self._api_key}":
            return failed(403, "AccessDeniedException")
        return None if _PATH.fullmatch(received.path) else failed(404, "UnknownOperationException")

    def refuse(self, body: dict[str, Any]) -> Raw | None:
        """Return the answer to a request that breaks a rule, None for one that is in order."""
        thinking = body.get("additionalModelRequestFields", {}).get("thinking", {})
        for problem in (*problems(body), *self._thinking.problems(body, thinking)):
            return failed(400, "ValidationException", problem)
        return None

    def write(self, reply: Reply, body: dict[str, Any]) -> bytes | Iterable[bytes]:
        """Return the answer, whole or as frames."""
        usage = Usage(input_tokens=1, output_tokens=1) if reply.usage == Usage() else reply.usage
        blocks = [*map(_block, reply.parts)]
        self._thinking.seal(body, blocks)
        stop = "tool_calls" if reply.tool_calls and reply.stop == "stop" else reply.stop
        if body["stream"]:
            return _frames(blocks, _STOPS[stop], _usage(usage))
        message = {"role": "assistant", "content": blocks}
        answer = {"output": {"message": message}, "stopReason": _STOPS[stop]}
        return json.dumps({**answer, "usage": _usage(usage), "metrics": {"latencyMs": 1}}).encode()


def _seal(block: _Block) -> str | None:
    content = block.get("reasoningContent")
    if not content:
        return None
    return content.get("redactedContent") or content["reasoningText"].get("signature") or ""


def _conditions(body: Mapping[str, Any]) -> Sequence[Any]:
    return [body.get("system", ()), body.get("toolConfig", {}).get("tools", ())]


def failed(status: int, kind: str, message: str = "no") -> Raw:
    """Return an error answer as AWS writes it."""
    headers = {
        "content-type": "application/json",
        "x-amzn-requestid": "req_1",
        "x-amzn-errortype": f"{kind}:http://internal.amazon.com/coral/com.amazon.bedrock/",
    }
    return Raw(status=status, body=json.dumps({"message": message}).encode(), headers=headers)


def _is_signed(received: Received, secret: str) -> bool:
    """Return True if the signature is that of this request by AWS Signature Version 4."""
    text = received.headers["authorization"].removeprefix("AWS4-HMAC-SHA256 ")
    pairs = dict(each.split("=", 1) for each in text.split(", "))
    scope = pairs["Credential"].removeprefix(f"{ACCESS_KEY}/")
    names = pairs["SignedHeaders"].split(";")
    path = quote(received.path, safe="/-_.~")
    lines = [f"{name}:{received.headers.get(name, '')}" for name in names]
    digest = hashlib.sha256(received.content).hexdigest()
    canonical = "\n".join(["POST", path, "", *lines, "", ";".join(names), digest])
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    at = received.headers["x-amz-date"]
    wanted = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{hashed}"
    key = f"AWS4{secret}".encode()
    for step in (at[:8], REGION, "bedrock", "aws4_request", wanted):
        key = hmac.digest(key, step.encode(), "sha256")
    return {"host", "x-amz-date"} <= {*names} and pairs["Signature"] == key.hex()


# -- what is refused ---------------------------------------------------------------------------


def problems(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a request."""
    for name in sorted(body.keys() - _FIELDS):
        yield f"Unknown parameter: {name!r}"
    for name in sorted(body.get("inferenceConfig", {}).keys() - _INFERENCE):
        yield f"Unknown parameter in inferenceConfig: {name!r}"
    messages = cast(list[_Block], body.get("messages") or [])
    roles = [message.get("role") for message in messages]
    if roles != [("user", "assistant")[number % 2] for number in range(len(roles))] or not roles:
        yield "A conversation must alternate between user and assistant roles, and begin with user."
    for number, message in enumerate(messages):
        if not message.get("content"):
            yield f"The content field in the Message object at messages.{number} is empty."
    for block in (*_all_blocks(messages), *body.get("system", ())):
        yield from _block_problems(block)
    yield from _pairs(messages)
    yield from _tool_problems(body, messages)
    yield from _point_problems(body, messages)
    held = body.get("outputConfig", {}).get("textFormat", {}).get("structure", {})
    if held and not isinstance(held.get("jsonSchema", {}).get("schema"), str):
        yield "outputConfig.textFormat.structure.jsonSchema.schema: expected a string"


def _block_problems(block: _Block) -> Iterator[str]:
    if len(block) != 1:
        yield "a union has exactly one member"
    result = block.get("toolResult", {})
    texts = [block, *result.get("content", ())]
    if any("text" in each and not each["text"].strip() for each in texts):
        yield "The text field in the ContentBlock object is blank."
    call_id = result.get("toolUseId") or block.get("toolUse", {}).get("toolUseId")
    if call_id is not None and not _ID.fullmatch(call_id):
        yield "toolUseId: Member must satisfy regular expression pattern"
    if "document" in block and not _NAME.fullmatch(block["document"].get("name", "")):
        yield "The document file name can only contain alphanumeric characters"


def _pairs(messages: Sequence[_Block]) -> Iterator[str]:
    waiting: set[str] = set()
    for message in (*messages, cast(_Block, {"content": []})):
        content = message["content"]
        found = {each["toolResult"]["toolUseId"] for each in content if "toolResult" in each}
        if found != waiting:
            yield "Expected toolResult blocks for exactly the toolUse blocks of the previous turn."
        waiting = {each["toolUse"]["toolUseId"] for each in content if "toolUse" in each}


def _tool_problems(body: Mapping[str, Any], messages: Sequence[_Block]) -> Iterator[str]:
    used = any(block.keys() & {"toolResult", "toolUse"} for block in _all_blocks(messages))
    if used and not body.get("toolConfig"):
        yield "The toolConfig field must be defined when using toolUse and toolResult blocks."
    tools = cast(list[_Block], body["toolConfig"]["tools"] if "toolConfig" in body else [])
    for tool in tools or ([{}] if "toolConfig" in body else []):
        if tool.get("toolSpec", {}).get("description") == "" or "toolSpec" not in tool:
            yield "toolConfig.tools: Member must have length greater than or equal to 1"


def _point_problems(body: Mapping[str, Any], messages: Sequence[_Block]) -> Iterator[str]:
    points = [b for b in (*_all_blocks(messages), *body.get("system", ())) if "cachePoint" in b]
    if len(points) > 4 or (points and "claude" not in body["model"]):
        yield "You invoked an unsupported model or your request did not allow prompt caching."


def _all_blocks(messages: Sequence[_Block]) -> Iterator[_Block]:
    for message in messages:
        yield from message.get("content", ())


# -- what is answered --------------------------------------------------------------------------


def _block(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"text": text}
        case Thinking("", signature):
            return {"reasoningContent": {"redactedContent": signature}}
        case Thinking(text, signature):
            held = {"text": text, **({"signature": signature} if signature else {})}
            return {"reasoningContent": {"reasoningText": held}}
        case ToolCall(call_id, name, arguments):
            return {"toolUse": {"toolUseId": call_id, "name": name, "input": arguments}}
        case Opaque(data):
            return data["block"]
        case _:
            raise NotImplementedError(part)


def _usage(usage: Usage) -> dict[str, Any]:
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "inputTokens": usage.input_tokens - cached,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.input_tokens + usage.output_tokens,
        "cacheReadInputTokens": usage.cache_read_tokens,
        "cacheWriteInputTokens": usage.cache_write_tokens,
    }


def frame(name: str, data: Mapping[str, Any], *, exception: bool = False) -> bytes:
    """Return one frame of an event stream."""
    kind = "exception" if exception else "event"
    headers = b"".join(
        _header(key, value)
        for key, value in {
            f":{kind}-type": name,
            ":content-type": "application/json",
            ":message-type": kind,
        }.items()
    )
    payload = json.dumps(data).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    whole = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return whole + struct.pack(">I", zlib.crc32(whole))


def _header(name: str, value: str) -> bytes:
    head = bytes([len(name)]) + name.encode() + bytes([7])
    return head + struct.pack(">H", len(value)) + value.encode()


def _frames(
    blocks: Sequence[Mapping[str, Any]], stop: str, usage: Mapping[str, Any]
) -> Iterator[bytes]:
    yield frame("messageStart", {"role": "assistant", "p": "abc"})
    for index, block in enumerate(blocks):
        at = {"contentBlockIndex": index}
        start, deltas = _pieces(block)
        if start:
            yield frame("contentBlockStart", {**at, "start": start})
        for delta in deltas:
            yield frame("contentBlockDelta", {**at, "delta": delta, "p": "ab"})
        yield frame("contentBlockStop", at)
    yield frame("messageStop", {"stopReason": stop})
    yield frame("metadata", {"usage": usage, "metrics": {"latencyMs": 1}})


def _pieces(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the start of a block, if it has one, and what is added to it."""
    if "text" in block:
        return {}, [{"text": each} for each in _cut(block["text"])]
    if "toolUse" in block:
        call = block["toolUse"]
        text = json.dumps(call["input"]) if call["input"] else ""
        head = {"toolUse": {"toolUseId": call["toolUseId"], "name": call["name"]}}
        return head, [{"toolUse": {"input": each}} for each in _cut(text)]
    if "reasoningContent" in block:
        held = block["reasoningContent"].get("reasoningText", block["reasoningContent"])
        text = [{"text": each} for each in _cut(held.get("text", ""))]
        seals = [{key: held[key]} for key in ("signature", "redactedContent") if key in held]
        return {}, [{"reasoningContent": each} for each in (*text, *seals)]
    return dict(block), []


def _cut(text: str) -> list[str]:
    return [text[start : start + 5] for start in range(0, len(text), 5)]

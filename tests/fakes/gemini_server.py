"""A server of Gemini's `generateContent` on loopback: strict, with seals of its own.

It refuses what Google refuses: calls without as many results in the next content, empty contents,
parts with two values, signatures that it did not make, calls of its newer models without one,
fields that it does not know. The address may be that of Vertex AI.

Source: the types of google-genai 3.4, whose client reads its answers (scripts/vendor-sdks), and
error bodies as issues of users quote them (2025 and 2026).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from fakes.llm_server import API_KEY, Answers, ModelServer, Raw, Received
from lib.llm import Opaque, Part, Reply, Text, Thinking, ToolCall, Usage

UNSIGNED: Final = "skip_thought_signature_validator"
_PATH: Final = re.compile(
    r"/v1(?:/projects/[\w-]+/locations/[\w-]+/publishers/google)?"
    r"/models/(?P<model>[\w.-]+):(?P<method>generateContent|streamGenerateContent\?alt=sse)"
)
_FIELDS: Final = frozenset(
    {"cachedContent", "contents", "generationConfig", "labels", "model", "safetySettings"}
    | {"stream", "systemInstruction", "toolConfig", "tools"}
)
_CONFIG: Final = frozenset(
    {"frequencyPenalty", "maxOutputTokens", "presencePenalty", "responseJsonSchema", "seed"}
    | {"responseMimeType", "stopSequences", "temperature", "thinkingConfig", "topK", "topP"}
)
_VALUES: Final = frozenset(
    {"executableCode", "fileData", "functionCall", "functionResponse", "inlineData", "text"}
)
_STOPS: Final = {"length": "MAX_TOKENS", "content_filter": "SAFETY", "other": "OTHER"}
_Content = Mapping[str, Any]


class GeminiServer(ModelServer):
    """Answers in turn what it was given, or what a function of the request's body returns.

    The body has the `model` of the path, and `stream`. Signatures in a script are raw, of thinking
    as well as in the `extra` of texts and calls: the server takes back only those that it sent.
    """

    def __init__(
        self, answers: Answers, *, api_key: str = API_KEY, slice_bytes: int | None = None
    ) -> None:
        """Take the script."""
        super().__init__(answers, api_key=api_key, slice_bytes=slice_bytes)
        self._seals = set[tuple[str, str]]()
        self._made = 0

    def full(self, received: Received) -> dict[str, Any]:
        """Return the body with the model and the method of the path."""
        found = _PATH.fullmatch(received.path)
        if found is None:
            return received.body
        return {**received.body, "model": found["model"], "stream": "alt=sse" in found["method"]}

    def admit(self, received: Received) -> Raw | None:
        """Return the answer to a request with a wrong key or path."""
        keys = {received.headers.get("x-goog-api-key"), received.headers.get("authorization")}
        if not keys & {self._api_key, f"Bearer {self._api_key}"}:
            return failed(401, "UNAUTHENTICATED")
        return None if _PATH.fullmatch(received.path) else failed(404, "NOT_FOUND")

    def refuse(self, body: dict[str, Any]) -> Raw | None:
        """Return the answer to a request that breaks a rule, None for one that is in order."""
        for problem in (*problems(body), *self._foreign(body)):
            return failed(400, "INVALID_ARGUMENT", problem)
        return None

    def write(self, reply: Reply, body: dict[str, Any]) -> bytes | Iterable[bytes]:
        """Return the answer, whole or as events."""
        self._made += 1
        usage = Usage(input_tokens=1, output_tokens=1) if reply.usage == Usage() else reply.usage
        parts = [*map(_part, reply.parts)]
        self._seals |= {(body["model"], part.get("thoughtSignature", "")) for part in parts}
        about = {
            "responseId": reply.id or f"response{self._made}",
            "modelVersion": reply.model or body["model"],
        }
        finish = _STOPS.get(reply.stop, "STOP")
        whole = {"candidates": [_candidate(parts, finish)], "usageMetadata": _usage(usage)}
        if not body["stream"]:
            return json.dumps({**whole, **about}).encode()
        chunks: list[dict[str, Any]] = [
            {"candidates": [_candidate([piece])]} for part in parts for piece in _pieces(part)
        ]
        partial = {"promptTokenCount": usage.input_tokens}
        last = {"candidates": [_candidate([], finish)], "usageMetadata": _usage(usage)}
        return [event({**each, "usageMetadata": partial, **about}) for each in chunks] + [
            event({**last, **about})
        ]

    def _foreign(self, body: Mapping[str, Any]) -> Iterator[str]:
        for number, content in enumerate(body["contents"]):
            for part in content.get("parts", ()):
                seal = part.get("thoughtSignature", UNSIGNED)
                if seal != UNSIGNED and (body["model"], seal) not in self._seals:
                    yield f"contents[{number}]: Corrupted thought signature."


def failed(
    status: int, code: str, message: str = "no", details: Sequence[Mapping[str, Any]] = ()
) -> Raw:
    """Return an error answer as Google writes it."""
    error = {"code": status, "status": code, "message": message, "details": [*details]}
    body = json.dumps({"error": error}).encode()
    return Raw(status=status, body=body, headers={"content-type": "application/json"})


# -- what is refused ---------------------------------------------------------------------------


def problems(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a request."""
    for name in sorted(body.keys() - _FIELDS):
        yield f"Unknown name {name!r}"
    config = body.get("generationConfig", {})
    for name in sorted(config.keys() - _CONFIG):
        yield f"Unknown name {name!r} at 'generation_config'"
    contents = cast(list[_Content], body.get("contents") or [])
    if not contents or contents[0].get("role") != "user":
        yield "contents are required, and begin with the user"
    for number, content in enumerate(contents):
        yield from _content_problems(content, f"contents[{number}]")
    yield from _pairs(contents)
    if "toolConfig" in body and not body.get("tools"):
        yield "Function calling config is set without function_declarations."
    newer = str(body.get("model")).startswith("gemini-3")
    if newer:
        yield from _unsigned(contents)
    elif "responseMimeType" in config and body.get("tools") and "gemini" in str(body["model"]):
        yield "Function calling with a response mime type: 'application/json' is unsupported"


def _content_problems(content: _Content, place: str) -> Iterator[str]:
    if content.get("role") not in {"user", "model"}:
        yield f"{place}: Please use a valid role: user, model."
    if not content.get("parts"):
        yield f"{place}.parts: contents.parts must not be empty."
    for part in content.get("parts", ()):
        if len(part.keys() & _VALUES) != 1:
            yield f"{place}.parts: oneof field 'data' must have one initialized field"
        response = part.get("functionResponse", {}).get("response", {})
        if not isinstance(response, dict) or part.get("functionResponse", {}).get("name") == "":
            yield f"{place}.parts.function_response"


def _pairs(contents: Sequence[_Content]) -> Iterator[str]:
    waiting = list[str]()
    for content in (*contents, cast(_Content, {})):
        parts = content.get("parts", ())
        results = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
        if results != waiting:
            yield (
                "Please ensure that the number of function response parts is equal to the number"
                " of function call parts of the function call turn."
            )
        waiting = [part["functionCall"]["name"] for part in parts if "functionCall" in part]


def _unsigned(contents: Sequence[_Content]) -> Iterator[str]:
    for content in contents:
        calls = [part for part in content.get("parts", ()) if "functionCall" in part]
        if calls and "thoughtSignature" not in calls[0]:
            yield "Function call is missing a thought_signature in functionCall parts."


# -- what is answered --------------------------------------------------------------------------


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"text": text, **_sealed(part.extra.get("signature"))}
        case Thinking(text, signature):
            return {"text": text, "thought": True, **_sealed(signature)}
        case ToolCall(_, name, arguments):  # most models give no id
            called = {"name": name, "args": arguments} if arguments else {"name": name}
            return {"functionCall": called, **_sealed(part.extra.get("signature"))}
        case Opaque(data):
            return data["block"]
        case _:
            raise NotImplementedError(part)


def _sealed(signature: str | None) -> dict[str, str]:
    return {"thoughtSignature": signature} if signature else {}


def _candidate(parts: list[dict[str, Any]], finish: str = "") -> dict[str, Any]:
    content = {"role": "model", "parts": parts} if parts else {}
    return {"content": content, "index": 0, **({"finishReason": finish} if finish else {})}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cache_read_tokens,
        "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }


def _pieces(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    text = part.get("text", "")
    if not text or "thoughtSignature" in part:
        yield part
        return
    for start in range(0, len(text), 5):
        yield {**part, "text": text[start : start + 5]}


def event(data: Mapping[str, Any]) -> bytes:
    """Return one event of a stream."""
    return f"data: {json.dumps(data)}\r\n\r\n".encode()

"""A server of OpenAI's responses API on loopback: strict, and with a memory that it can lose.

It refuses what OpenAI refuses: calls without their outputs, outputs without their calls, reasoning
that nothing follows, handles that it does not know. The official SDK reads its answers; that is
tested.

Source: error bodies of OpenAI's API as the issues of its users quote them (vercel/ai#7099,
continuedev/continue#8933, lmstudio-bug-tracker#1188; 2025 and 2026).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from fakes.llm_server import API_KEY, Answers, ModelServer, Raw, refused
from fakes.responses_wire import (
    RESPONSES_DIALECTS,
    ResponsesDialect,
    event_stream,
    items_of,
    response,
)
from lib.llm import Reply, Usage

_ROLES: Final = frozenset({"assistant", "developer", "system", "user"})
# Of the other API, whose users bring them along.
_FOREIGN: Final = frozenset(
    {"functions", "max_completion_tokens", "max_tokens", "messages", "n", "response_format"}
    | {"reasoning_effort", "seed", "stop"}
)
_CONTENT: Final = frozenset({"input_file", "input_image", "input_text"})
_Item = Mapping[str, Any]


class ResponsesServer(ModelServer):
    """Answers in turn what it was given, or what a function of the request's body returns.

    The function sees as `input` the whole conversation, what was kept and what was sent.

    Attributes:
        sent: for each request that was in order, how many items came with it.
        refused: how many unknown handles came.
        keeps: False keeps nothing, whatever a request says, as for organizations without retention.
        opens: False refuses all sealed reasoning, as OpenAI does after a change of organization.
        goes_on: False takes every handle, and answers as if there were none, as some gateways.
    """

    path = "/v1/responses"

    def __init__(
        self,
        answers: Answers,
        *,
        dialect: ResponsesDialect = RESPONSES_DIALECTS["openai"],
        api_key: str = API_KEY,
        slice_bytes: int | None = None,
        lost_status: int = 400,
    ) -> None:
        """Take the script.

        Args:
            answers: one for each request in order, or a function of the request's body.
            dialect: how replies are written.
            api_key: what a request must bring.
            slice_bytes: streams leave in pieces of this size; None sends event by event.
            lost_status: of the answer to a handle that is not known; 404 comes without a code.
        """
        super().__init__(answers, api_key=api_key, slice_bytes=slice_bytes)
        self.sent: list[int] = []
        self.refused = 0
        self.keeps = self.opens = self.goes_on = True
        self._dialect, self._lost_status = dialect, lost_status
        self._kept: dict[str, list[Any]] = {}
        self._made = 0

    def forget(self) -> None:
        """Let every handle expire."""
        self._kept.clear()

    def refuse(self, body: dict[str, Any]) -> Raw | None:
        """Return the answer to a request that breaks a rule, None for one that is in order."""
        previous = body.get("previous_response_id")
        if previous is not None and self.goes_on and previous not in self._kept:
            self.refused += 1
            return _lost(previous, self._lost_status)
        if not self.opens and any("encrypted_content" in item for item in body["input"]):
            code = "invalid_encrypted_content"
            return refused(400, "the encrypted content could not be verified", code=code)
        for problem in problems({**body, "input": self._conversation(body)}):
            return refused(400, problem)
        self.sent.append(len(body["input"]))
        return None

    def seen(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body with the whole conversation as its input."""
        return {**body, "input": self._conversation(body)}

    def write(self, reply: Reply, body: dict[str, Any]) -> bytes | Iterable[bytes]:
        """Return the answer in the server's dialect, and keep the conversation."""
        self._made += 1
        reply = replace(
            reply,
            usage=Usage(input_tokens=1, output_tokens=1) if reply.usage == Usage() else reply.usage,
            model=reply.model or body["model"],
            id=reply.id or f"resp_{self._made}",
        )
        if self.keeps and body.get("store", True):
            items = items_of(reply, self._dialect)
            self._kept[reply.id] = [*self._conversation(body), *items]
        answered = body if self.goes_on else {**body, "previous_response_id": None}
        answered = answered if self.keeps else {**answered, "store": False}
        if body.get("stream") and self._dialect.streams:
            return event_stream(reply, answered, self._dialect)
        return json.dumps(response(reply, answered, self._dialect)).encode()

    def _conversation(self, body: Mapping[str, Any]) -> list[Any]:
        earlier = self._kept.get(body.get("previous_response_id", ""), [])
        sent = body.get("input")
        return [*earlier, *cast(list[Any], sent)] if isinstance(sent, list) else earlier


def problems(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a request whose input is the whole conversation."""
    if not isinstance(body.get("model"), str):
        yield "you must provide a model parameter"
    yield from _parameters(body)
    if not body["input"]:
        yield "one of 'input' or 'previous_response_id' must be provided"
    yield from _pairs(body["input"])
    for number, item in enumerate(body["input"]):
        yield from _item_problems(item, f"input[{number}]", body["input"][number + 1 :])


def _parameters(body: Mapping[str, Any]) -> Iterator[str]:
    for name in ("tool_choice", "parallel_tool_calls"):
        if name in body and not body.get("tools"):
            yield f"{name!r} is only allowed when 'tools' are specified"
    for name in sorted(_FOREIGN & body.keys()):
        yield f"unknown parameter: {name!r}"
    for number, tool in enumerate(body.get("tools", ())):
        if tool.get("type") == "function" and not tool.get("name"):
            yield f"missing required parameter: 'tools[{number}].name'"


def _pairs(items: Sequence[_Item]) -> Iterator[str]:
    """Yield the calls without an output, and the outputs without a call before them."""
    waiting: dict[str, None] = {}
    for item in items:
        call_id = str(item.get("call_id"))
        if item.get("type") == "function_call":
            if call_id in waiting:
                yield f"duplicate function call with call_id {call_id}"
            waiting[call_id] = None
        elif item.get("type") == "function_call_output":
            if call_id not in waiting:
                yield f"no tool call found for function call output with call_id {call_id}"
            waiting.pop(call_id, None)
        elif item.get("role") == "user" and waiting:
            break  # OpenAI takes an output later on; so late it confuses a model
    for call_id in waiting:
        yield f"no tool output found for function call {call_id}"


def _item_problems(item: _Item, name: str, after: Sequence[_Item]) -> Iterator[str]:
    match item.get("type", "message"):
        case "message":
            if item.get("role") not in _ROLES or not item.get("content"):
                yield f"invalid value for '{name}.role' or '{name}.content'"
            if item.get("role") == "user" and not _content_types(item) <= _CONTENT:
                yield f"invalid value for '{name}.content[].type'"
        case "reasoning":
            if not item.get("id") or not isinstance(item.get("summary"), list):
                yield f"missing required parameter: '{name}.id' or '{name}.summary'"
            if not after or after[0].get("role") in {"user", "system"}:
                yield "an item of type 'reasoning' was provided without its required following item"
        case kind:
            yield from _call_problems(str(kind), item, name)


def _call_problems(kind: str, item: _Item, name: str) -> Iterator[str]:
    if kind == "function_call":
        if not _is_object(item.get("arguments")) or not item.get("name"):
            yield f"invalid '{name}'"
    elif kind == "function_call_output":
        if not isinstance(item.get("output"), str):
            yield f"invalid type for '{name}.output'"
    elif not (kind.endswith("_call") or (kind == "compaction" and "encrypted_content" in item)):
        yield f"invalid value for '{name}.type'"


def _content_types(item: _Item) -> set[Any]:
    content = item.get("content")
    parts = cast(list[_Item], content) if isinstance(content, list) else []
    return {part.get("type") for part in parts}


def _is_object(text: Any) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (TypeError, ValueError):
        return False


def _lost(previous: Any, status: int) -> Raw:
    error = {
        "message": f"Previous response with id '{previous}' not found.",
        "type": "invalid_request_error",
        "param": "previous_response_id",
        "code": "previous_response_not_found",
    }
    if status == 404:
        error = {"message": error["message"], "type": "not_found_error"}
    body = json.dumps({"error": error}).encode()
    return Raw(status=status, body=body, headers={"content-type": "application/json"})

"""Fakes of model providers that are as strict, and as forgetful, as real ones.

Agents fail on their rules in production: a tool call without its result after a cancelled turn, a
result without its call after a cut history, an empty list of tools.

Source: error bodies of OpenAI's API as its SDK's issues quote them (2024 to 2026).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from lib.errors import LLMError
from lib.llm import Delta, FunctionClient, Message, Output, Reply, ToolSpec
from lib.llm.chat.request import Dialect, build_body
from lib.llm.scripted import Answerer

_DIALECT: Final = Dialect()
Body = Mapping[str, Any]

ROLES: Final = frozenset({"assistant", "developer", "system", "tool", "user"})


def check_conversation(messages: Sequence[Message]) -> None:
    """Refuse what strict providers refuse: calls without results, results without calls, silence.

    Raises:
        LLMError: with status 400, as a server answers.
    """
    problem = refusal(build_body(messages, model="strict", dialect=_DIALECT))
    if problem is not None:
        raise LLMError(problem["error"]["message"], status=400)
    for number, message in enumerate(messages):
        if message.role == "assistant" and not (message.text or message.tool_calls):
            raise LLMError(f"messages.{number}: content must be non-empty", status=400)


class StrictClient(FunctionClient):
    """Answers with a function, and refuses conversations that a strict provider refuses."""

    name = "strict"

    def __init__(self, answer: Answerer, **options: Any) -> None:
        """Take the function; `options` are those of `FunctionClient`."""

        def checked(messages: Sequence[Message]) -> Any:
            check_conversation(messages)
            return answer(messages)

        super().__init__(checked, **options)


class KeepingClient(StrictClient):
    """A provider that keeps conversations: with a handle, only new messages are sent.

    The model sees what the provider kept and what was sent, never what a caller claims was kept.

    Attributes:
        sent: for each call that was answered, how many messages came with it.
        refused: how many unknown handles came.
    """

    name = "keeping"

    def __init__(self, answer: Answerer, **options: Any) -> None:
        """Take the function that stands in for the model."""
        super().__init__(answer, **options)
        self.sent: list[int] = []
        self.refused: int = 0
        self._kept: dict[str, tuple[Message, ...]] = {}
        self._made = 0

    def forget(self) -> None:
        """Let every handle expire."""
        self._kept.clear()

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        model: str | None = None,
        tools: Sequence[ToolSpec] = (),
        output: Output | None = None,
        settings: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Return the function's answer to the conversation that is known here."""
        earlier, new = self._conversation(messages, state)
        reply = await super().complete(
            [*earlier, *new],
            model=model,
            tools=tools,
            output=output,
            settings=settings,
            state=state,
        )
        return self._keep(reply, earlier, new)

    async def stream(
        self,
        messages: Sequence[Message],
        *,
        model: str | None = None,
        tools: Sequence[ToolSpec] = (),
        output: Output | None = None,
        settings: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[Delta | Reply]:
        """Yield the function's answer in small pieces, then whole."""
        earlier, new = self._conversation(messages, state)
        async for piece in super().stream(
            [*earlier, *new],
            model=model,
            tools=tools,
            output=output,
            settings=settings,
            state=state,
        ):
            yield self._keep(piece, earlier, new) if isinstance(piece, Reply) else piece

    def _conversation(
        self, messages: Sequence[Message], state: Mapping[str, Any] | None
    ) -> tuple[Sequence[Message], Sequence[Message]]:
        if state is None:
            return (), messages
        if state["id"] not in self._kept:
            self.refused += 1
            raise LLMError(f"no response {state['id']!r}", status=404, state_lost=True)
        return self._kept[state["id"]], messages[state["covers"] :]

    def _keep(self, reply: Reply, earlier: Sequence[Message], new: Sequence[Message]) -> Reply:
        self._made += 1
        self.sent.append(len(new))
        name = f"resp-{self._made}"
        self._kept[name] = (*earlier, *new, reply.message)
        return replace(reply, state={"id": name})


def error_body(
    message: str, *, kind: str = "invalid_request_error", code: str | None = None
) -> dict[str, Any]:
    """Return an error as OpenAI writes it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def refusal(body: Body) -> dict[str, Any] | None:
    """Return the error for a request that breaks a rule, None for one that is in order."""
    for problem in (*_parameters(body), *_conversation(body.get("messages"))):
        return error_body(problem)
    return None


def _parameters(body: Body) -> Iterator[str]:
    if not isinstance(body.get("model"), str):
        yield "you must provide a model parameter"
    if body.get("tools") == []:
        yield "[] is too short - 'tools'"
    for name in ("tool_choice", "parallel_tool_calls"):
        if name in body and "tools" not in body:
            yield f"{name!r} is only allowed when 'tools' are specified"
    if "stream_options" in body and not body.get("stream"):
        yield "'stream_options' is only allowed when 'stream' is enabled"
    declared = body.get("response_format", {}).get("json_schema", {})
    if declared.get("strict"):
        yield from _open_objects(declared["schema"])


def _open_objects(schema: Any) -> Iterator[str]:
    """Yield what strict mode refuses in a schema."""
    children: Iterable[Any] = ()
    if isinstance(schema, list):
        children = cast(list[Any], schema)
    elif isinstance(schema, dict):
        node = cast(dict[str, Any], schema)
        yield from _open_object(node)
        children = node.values()
    for child in children:
        yield from _open_objects(child)


def _open_object(node: Body) -> Iterator[str]:
    if node.get("type") == "object":
        if node.get("additionalProperties") is not False:
            yield "invalid schema for response_format: 'additionalProperties' must be false"
        if sorted(node.get("required", ())) != sorted(node.get("properties", {})):
            yield "invalid schema for response_format: 'required' must name every property"
    if "$ref" in node and len(node) > 1:
        yield "invalid schema for response_format: $ref cannot have keywords beside it"


def _conversation(messages: Any) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        yield "[] is too short - 'messages'"
        return
    waiting: set[str] = set()
    for number, message in enumerate(cast(Sequence[Body], messages)):
        role = message.get("role")
        if role not in ROLES:
            yield f"invalid value for 'messages[{number}].role'"
        elif role == "tool":
            if message.get("tool_call_id") not in waiting:
                yield "messages with role 'tool' must follow a message with its 'tool_calls'"
            waiting.discard(message.get("tool_call_id", ""))
        elif waiting:
            yield "an assistant message with 'tool_calls' must be followed by tool messages"
        yield from _content(message, number)
        waiting |= {call["id"] for call in message.get("tool_calls", ())}
    if waiting:
        yield "an assistant message with 'tool_calls' must be followed by tool messages"


def _content(message: Body, number: int) -> Iterator[str]:
    content, calls = message.get("content"), message.get("tool_calls")
    if content is None and not calls:
        yield f"invalid value for 'messages[{number}].content': expected a string, got null"
    if calls == []:
        yield f"[] is too short - 'messages.{number}.tool_calls'"
    for call in calls or ():
        if not call.get("id") or not _is_object(call["function"]["arguments"]):
            yield f"invalid 'messages[{number}].tool_calls'"


def _is_object(text: Any) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (TypeError, ValueError):
        return False

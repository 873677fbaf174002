"""`/v1/chat`: the protocol of Vercel's AI SDK, for `useChat` with its default transport.

A chat is a session, a message of the user is a turn, and the answer has the id of the turn's run.
Text comes as it is written; calls of tools are dynamic ones that the server executes. A call that
waits for a person ends the stream with `tool-approval-request`; the decision comes with the next
request, and the stream goes on where that one ended. A stream that was cut is replayed from the
log, on any process.

Source: AI SDK, Stream Protocols and Chatbot Resume Streams, `ai` 6, 2026-11.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints
from starlette.types import ASGIApp

from lib.engine import GuardJudged, Result, Session, Turn, WaitingCall
from lib_server.api.runs import IDEMPOTENCY_KEY, idempotency_key
from lib_server.bodies import Empty, Id, Name, TextPart, UserMessage
from lib_server.frontends import chats
from lib_server.frontends.answers import Answer, AnswerStream, CallEnd, Chunk, PartKind
from lib_server.frontends.chats import ApprovalRef
from lib_server.other_apis import (
    Lenient,
    Streamed,
    attachment,
    data_event,
    read_part,
    run_state,
    source_of,
    streams_replies,
    why_failed,
)
from lib_server.problems import Problem
from lib_server.routing import AnyRoute, Call, Route, no_content

_HEADERS: Final = {"x-vercel-ai-ui-message-stream": "v1"}
_DONE: Final = b"data: [DONE]\n\n"
_REPLAYED: Final = timedelta(minutes=5)
_FINISH: Final[Mapping[str | None, str]] = {"LIMITED": "length", "BLOCKED": "content-filter"}


# -- bodies ----------------------------------------------------------------------------------------


class ChatMessage(Lenient):
    """A message of the chat, as `UIMessage` has it."""

    id: Annotated[str, StringConstraints(max_length=512)] = ""
    role: Literal["system", "user", "assistant"]
    parts: list[dict[str, Any]]


class SendChatMessage(Lenient):
    """A request of the default transport; of the messages, only the last one is read."""

    id: Id = Field(description="names the chat among those of its user")
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: Id | None = Field(None, alias="messageId")
    agent: Name | None = Field(
        None, description="who answers a new chat; may be left out where there is only one"
    )


class _Text(Lenient):
    type: Literal["text"]
    text: str


class _File(Lenient):
    type: Literal["file"]
    media_type: str = Field(alias="mediaType")
    url: str
    filename: str = ""


class _Approval(Lenient):
    id: str
    approved: bool
    reason: str | None = None


class _Decided(Lenient):
    state: Literal["approval-responded"]
    approval: _Approval


def _message(message: ChatMessage, pointer: str) -> UserMessage:
    """Return a message of the user; parts that no model reads are left out."""
    found: list[Any] = []
    for place, part in enumerate(message.parts):
        at = f"{pointer}/parts/{place}"
        if part.get("type") == "text":
            found.append(TextPart(type="text", text=read_part(_Text, part, at).text))
        elif part.get("type") == "file":
            file = read_part(_File, part, at)
            kind = file.media_type.partition("/")[0]
            fields: dict[str, Any] = {"media_type": file.media_type, **source_of(file.url)}
            if kind in ("image", "audio"):
                found.append(attachment({"type": kind, **fields}, at))
            else:
                found.append(attachment({"type": "file", "name": file.filename, **fields}, at))
    if not found:
        raise Problem("invalid", errors=[(f"{pointer}/parts", "expected text or a file")])
    return UserMessage(role="user", content=found)


def _decisions(message: ChatMessage, pointer: str) -> list[tuple[ApprovalRef, bool, str]]:
    found: list[tuple[ApprovalRef, bool, str]] = []
    for place, part in enumerate(message.parts):
        if part.get("state") == "approval-responded":
            decided = read_part(_Decided, part, f"{pointer}/parts/{place}").approval
            ref = chats.approval_ref(decided.id)
            found.append((ref, decided.approved, decided.reason or ""))
    if not found:
        detail = "expected a message of the user, or one whose approvals were responded to"
        raise Problem("invalid", errors=[(pointer, detail)])
    return found


# -- handlers --------------------------------------------------------------------------------------


async def _send(call: Call[Empty, SendChatMessage]) -> ASGIApp:
    call.check_not_draining()
    call.services.quotas.check_streams(call.principal)
    body = call.body
    last, pointer = body.messages[-1], f"/messages/{len(body.messages) - 1}"
    if last.role != "assistant":
        message = _message(last, pointer)
        session = await chats.begin(call, body.id, body.agent)
        turn = await chats.send(call, session, await _turn_key(call, session, last), message)
        return await _answer(call, session, turn)
    decisions = _decisions(last, pointer)
    found = await chats.find(call, body.id)
    if found is None:
        raise Problem("session_not_found", "no chat has this id")
    refs = [ref for ref, _, _ in decisions]
    turn = await chats.turn_of(call, found, refs)
    await chats.decide_all(call, decisions)
    return await _answer(call, found, turn, refs, _calls(last))


async def _turn_key(call: Call[Empty, SendChatMessage], session: Session, last: ChatMessage) -> str:
    """Return the key of a message: the same for the same request."""
    body = call.body
    if header := idempotency_key(call, None):
        return header
    if not last.id:
        return call.engine.new_id()
    named: list[Any] = [last.id, last.parts]
    if body.trigger == "regenerate-message":
        turns = [turn.run_id for turn in await session.turns()]
        named.append(body.message_id or turns[-1:])
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()


def _calls(message: ChatMessage) -> set[str]:
    """Return the calls that a client shows already."""
    return {str(part["toolCallId"]) for part in message.parts if "toolCallId" in part}


async def _resume(call: Call[Empty, None]) -> ASGIApp:
    session = await chats.find(call, call.path("chat_id"))
    turns = [] if session is None else await session.turns()
    if session is None or not turns:
        return no_content()
    turn = turns[-1]
    info = await call.store.run(turn.run_id)
    now = call.engine.clock.now()
    if info is not None and info.status == "closed" and info.updated_at + _REPLAYED < now:
        return no_content()
    call.services.quotas.check_streams(call.principal)
    return await _answer(call, session, turn)


async def _answer(
    call: Call[Any, Any],
    session: Session,
    turn: Turn,
    refs: Sequence[ApprovalRef] = (),
    shown: Iterable[str] = (),
) -> ASGIApp:
    live = streams_replies(call, await chats.agent_of(call, session))
    answer = Answer(UIMessage(), live=live, calls=shown)
    content = _content(turn, AnswerStream(call, turn, answer, refs))
    headers = {**_HEADERS, "x-run-id": turn.run_id}
    if turn.repeated:
        headers["idempotent-replayed"] = "true"
    streamed = Streamed(call, content, headers=headers, failure=_failed)
    return call.services.quotas.counted(call.principal, streamed)


async def _content(turn: Turn, stream: AnswerStream) -> AsyncGenerator[bytes]:
    """Yield the events of an answer; b"" where nothing has come for a while."""
    yield data_event({"type": "start", "messageId": turn.run_id})
    async with aclosing(stream.chunks()) as all_:
        async for chunks in all_:
            yield b"".join(map(data_event, chunks))
    yield _DONE


def _failed(problem: Problem) -> bytes:
    return data_event(_error(problem.code, problem.detail)) + _DONE


def _error(code: str, detail: str) -> Chunk:
    return {"type": "error", "errorText": f"{code}: {detail}" if detail else code}


# -- chunks ----------------------------------------------------------------------------------------


class UIMessage:
    """The chunks of which the AI SDK makes a message."""

    def step_begins(self, step: str) -> list[Chunk]:
        """Begin a step."""
        del step
        return [{"type": "start-step"}]

    def step_ends(self, step: str) -> list[Chunk]:
        """End a step."""
        del step
        return [{"type": "finish-step"}]

    def part_begins(self, kind: PartKind, part_id: str) -> list[Chunk]:
        """Begin a part."""
        return [{"type": f"{kind}-start", "id": part_id}]

    def part_adds(self, kind: PartKind, part_id: str, text: str) -> list[Chunk]:
        """Add to a part."""
        return [{"type": f"{kind}-delta", "id": part_id, "delta": text}]

    def part_ends(self, kind: PartKind, part_id: str) -> list[Chunk]:
        """End a part."""
        return [{"type": f"{kind}-end", "id": part_id}]

    def call_begins(
        self, call_id: str, name: str, arguments: Mapping[str, Any], step: str
    ) -> list[Chunk]:
        """Show a call of a tool that the page does not know, and does not execute."""
        del step
        call = {"type": "tool-input-available", "toolCallId": call_id, "toolName": name}
        return [{**call, "input": dict(arguments), "dynamic": True, "providerExecuted": True}]

    def call_ends(self, call_id: str, output: str, end: CallEnd) -> list[Chunk]:
        """Show what came of a call."""
        how: Chunk = {"type": "tool-output-denied"}
        if end == "failed":
            how = {"type": "tool-output-error", "errorText": output, "dynamic": True}
        elif end == "returned":
            how = {"type": "tool-output-available", "output": output, "dynamic": True}
        return [{"toolCallId": call_id, **how}]

    def call_waits(self, call_id: str, ref: ApprovalRef, call: WaitingCall) -> list[Chunk]:
        """Ask for a decision about a call."""
        del call
        request = {"type": "tool-approval-request", "toolCallId": call_id}
        return [{**request, "approvalId": ref.encode()}]

    def judged(self, item: GuardJudged) -> list[Chunk]:
        """Show nothing."""
        del item
        return []

    def ended(self, result: Result[Any]) -> list[Chunk]:
        """End the message."""
        if result.outcome == "FAILED":
            return [_error("run_failed", why_failed(result))]
        if result.outcome == "CANCELLED":
            return [{"type": "abort", "reason": result.reason}]
        reason = "tool-calls" if result.outcome is None else _FINISH.get(result.outcome, "stop")
        metadata = {"run": run_state(result).model_dump()}
        return [{"type": "finish", "finishReason": reason, "messageMetadata": metadata}]


_PROBLEMS: Final = [
    "agent_not_found",
    "approval_not_found",
    "already_decided",
    "upload_not_found",
    "budget_spent",
    "digest_mismatch",
    "draining",
    "idempotency_mismatch",
    "not_pending",
    "open_runs_cap",
    "run_erased",
    "run_open",
    "session_closed",
    "session_not_found",
    "stream_cap",
]
_EVENTS: Final = {"message": "a chunk of a UI message, and at last `[DONE]`"}

ROUTES: list[AnyRoute] = [
    Route(
        method="POST",
        path="/v1/chat",
        handler=_send,
        summary="Send a message or decisions, and stream the answer, as Vercel's AI SDK has it",
        tag="front ends",
        right="run",
        query=Empty,
        body=SendChatMessage,
        answers={200: None},
        problems=_PROBLEMS,
        headers=IDEMPOTENCY_KEY,
        events=_EVENTS,
    ),
    Route(
        method="GET",
        path="/v1/chat/{chat_id:path}/stream",
        handler=_resume,
        summary="Stream the last answer of a chat again: open, or just finished",
        tag="front ends",
        right="read",
        query=Empty,
        answers={200: None, 204: None},
        problems=["stream_cap"],
        events=_EVENTS,
    ),
]

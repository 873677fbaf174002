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
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, StringConstraints, ValidationError
from starlette.types import ASGIApp

from lib.engine import (
    ApprovalDecided,
    ApprovalRequested,
    ModelReplied,
    ReplyDelta,
    ReplyReset,
    Result,
    Session,
    StreamItem,
    ToolEnded,
    ToolStarted,
    Turn,
)
from lib.engine.core.settle import call_result
from lib.events import kinds as k
from lib.events.payloads import fits
from lib_server.api.runs import IDEMPOTENCY_KEY, idempotency_key
from lib_server.bodies import Empty, Id, Name, TextPart, UserMessage
from lib_server.frontends import chats
from lib_server.frontends.chats import ApprovalRef
from lib_server.openai.chat import run_state
from lib_server.openai.content import Lenient, attachment, source_of
from lib_server.openai.follow import Streamed, data_event, streams_replies, why_failed
from lib_server.problems import Problem
from lib_server.routing import AnyRoute, Call, Route, no_content

Chunk: TypeAlias = dict[str, Any]

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


def _read(model: type[Any], part: Mapping[str, Any], pointer: str) -> Any:
    try:
        return model.model_validate(part)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = "/".join([pointer, *map(str, first["loc"])])
        raise Problem("invalid", errors=[(place, first["msg"])]) from None


def _message(message: ChatMessage, pointer: str) -> UserMessage:
    """Return a message of the user; parts that no model reads are left out."""
    found: list[Any] = []
    for place, part in enumerate(message.parts):
        at = f"{pointer}/parts/{place}"
        if part.get("type") == "text":
            found.append(TextPart(type="text", text=_read(_Text, part, at).text))
        elif part.get("type") == "file":
            file: _File = _read(_File, part, at)
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
            decided: _Approval = _read(_Decided, part, f"{pointer}/parts/{place}").approval
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
    turn = await chats.decide_all(call, found, decisions)
    refs = [ref for ref, _, _ in decisions]
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
    refs: Iterable[ApprovalRef] = (),
    shown: Iterable[str] = (),
) -> ASGIApp:
    live = streams_replies(call, await chats.agent_of(call, session))
    stream = _Stream(call, turn, UIMessage(turn.run_id, live=live, calls=shown), list(refs))
    headers = {**_HEADERS, "x-run-id": turn.run_id}
    if turn.repeated:
        headers["idempotent-replayed"] = "true"
    streamed = Streamed(call, stream.content(), headers=headers, failure=_failed)
    return call.services.quotas.counted(call.principal, streamed)


def _failed(problem: Problem) -> bytes:
    return data_event(_error(problem.code, problem.detail)) + _DONE


def _error(code: str, detail: str) -> Chunk:
    return {"type": "error", "errorText": f"{code}: {detail}" if detail else code}


# -- the stream ------------------------------------------------------------------------------------


class _Stream:
    """The chunks of one answer, from its beginning or behind a decision."""

    def __init__(
        self, call: Call[Any, Any], turn: Turn, message: UIMessage, refs: list[ApprovalRef]
    ) -> None:
        self._call = call
        self._turn = turn
        self._message = message
        self._after = max((ref.after for ref in refs), default=0)
        self._below = {ref.call_id: ref for ref in refs if ref.run_id != turn.run_id}

    async def content(self) -> AsyncGenerator[bytes]:
        """Yield the events; b"" where nothing has come for a while."""
        yield data_event({"type": "start", "messageId": self._turn.run_id})
        items = chats.happenings(self._call, self._turn, after=self._after)
        async with aclosing(items) as happening:
            async for item in happening:
                if item is None:
                    yield b""
                    continue
                for chunk in await self._chunks(item):
                    yield data_event(chunk)
        yield _DONE

    async def _chunks(self, item: StreamItem[Any] | Result[Any]) -> list[Chunk]:
        if isinstance(item, Result):
            return [*await self._ended_below(), *self._end(item)]
        self._after = max(self._after, item.seq)
        lead = await self._ended_below() if isinstance(item, ToolEnded) else []
        return lead + self._message.take(item)

    def _end(self, result: Result[Any]) -> list[Chunk]:
        if result.outcome is not None or result.waiting_for is None:
            return self._message.end(result)
        chunks: list[Chunk] = []
        for each in result.waiting_for.approvals:
            ref = ApprovalRef.of(each, self._turn.run_id, self._after)
            chunks += self._message.approval(ref, each.name, each.arguments)
        return chunks + self._message.end(result)

    async def _ended_below(self) -> list[Chunk]:
        """Return the results of calls of child runs about which this request has decided."""
        chunks: list[Chunk] = []
        for name, ref in list(self._below.items()):
            for event in await self._call.store.read(ref.run_id):
                is_end = event.kind in (k.TOOL_COMPLETED, k.TOOL_FAILED, k.CHILD_COMPLETED)
                if is_end and fits(event.kind, event.data) and event.data["key"] == ref.key:
                    result = call_result(event)
                    chunks += self._message.result(name, result.content, failed=result.is_error)
                    del self._below[name]
        return chunks


class UIMessage:
    """The message of an answer, as chunks, which cannot take back what was shown.

    A reply that begins anew is shown once it is whole: only what is new of it where it begins
    with what was shown, else as a text of its own.
    """

    def __init__(self, run_id: str, *, live: bool, calls: Iterable[str] = ()) -> None:
        """Begin with nothing.

        Args:
            run_id: of the turn.
            live: show replies; else only the answer.
            calls: which the message has already.
        """
        self._run_id = run_id
        self._live = live
        self._calls = set(calls)
        self._denied: set[str] = set()
        self._step = ""
        self._part: tuple[str, str] | None = None
        self._shown: dict[str, str] = {}
        self._restarted: set[str] = set()
        self._last = ""

    def take(self, item: StreamItem[Any]) -> list[Chunk]:
        """Return what an item adds."""
        match item:
            case ReplyDelta() if self._live and item.key not in self._restarted:
                return self._delta(item)
            case ReplyReset():
                self._restarted.add(item.key)
                return self._close_part()
            case ModelReplied() if self._live:
                return self._replied(item)
            case ApprovalRequested() | ToolStarted():
                return self._call(item.key, item.name, item.arguments)
            case ApprovalDecided(approved=False):
                self._denied.add(item.key)
            case ToolEnded():
                return self.result(item.key, item.output, failed=item.failed, name=item.name)
            case _:
                pass
        return []

    def approval(self, ref: ApprovalRef, name: str, arguments: Mapping[str, Any]) -> list[Chunk]:
        """Return the request to decide about a call."""
        request = {"type": "tool-approval-request", "toolCallId": ref.call_id}
        lead = self._call(ref.call_id, name, arguments)
        return [*lead, {**request, "approvalId": ref.encode()}]

    def result(self, call_id: str, output: str, *, failed: bool, name: str = "") -> list[Chunk]:
        """Return the end of a call."""
        ended: Chunk = {"toolCallId": call_id}
        if call_id in self._denied:
            ended |= {"type": "tool-output-denied"}
        elif failed:
            ended |= {"type": "tool-output-error", "errorText": output, "dynamic": True}
        else:
            ended |= {"type": "tool-output-available", "output": output, "dynamic": True}
        return [*self._call(call_id, name, {}), ended]

    def end(self, result: Result[Any]) -> list[Chunk]:
        """Return the end of the stream: the run has ended, or waits for a person."""
        metadata = {"run": run_state(result).model_dump()}
        if result.outcome == "FAILED":
            return [*self._end_step(), _error("run_failed", why_failed(result))]
        if result.outcome == "CANCELLED":
            return [*self._end_step(), {"type": "abort", "reason": result.reason}]
        reason = "tool-calls" if result.outcome is None else _FINISH.get(result.outcome, "stop")
        chunks: list[Chunk] = []
        if result.text.strip() != self._last.strip() and result.outcome is not None:
            chunks = [*self._begin_step("answer"), *self._piece("text", "answer", result.text)]
        finish = {"type": "finish", "finishReason": reason, "messageMetadata": metadata}
        return [*chunks, *self._end_step(), finish]

    # -- steps and their parts -----------------------------------------------------------------

    def _delta(self, item: ReplyDelta) -> list[Chunk]:
        chunks = self._begin_step(item.key)
        chunks += self._piece("reasoning", item.key, item.thinking)
        self._shown[item.key] = self._shown.get(item.key, "") + item.text
        return chunks + self._piece("text", item.key, item.text)

    def _replied(self, item: ModelReplied) -> list[Chunk]:
        chunks = self._begin_step(item.key)
        shown = self._shown.pop(item.key, "")
        self._last = item.text
        if item.text.startswith(shown):
            chunks += self._piece("text", item.key, item.text[len(shown) :])
        else:
            chunks += self._piece("text", f"{item.key}/again", item.text)
        return chunks + self._close_part()

    def _call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> list[Chunk]:
        if call_id in self._calls:
            return []
        self._calls.add(call_id)
        call = {"type": "tool-input-available", "toolCallId": call_id, "toolName": name}
        more = {"input": dict(arguments), "dynamic": True, "providerExecuted": True}
        return [*self._close_part(), {**call, **more}]

    def _piece(self, kind: str, part_id: str, text: str) -> list[Chunk]:
        if not text:
            return []
        chunks: list[Chunk] = []
        if self._part != (kind, part_id):
            chunks = [*self._close_part(), {"type": f"{kind}-start", "id": part_id}]
            self._part = kind, part_id
        return [*chunks, {"type": f"{kind}-delta", "id": part_id, "delta": text}]

    def _close_part(self) -> list[Chunk]:
        if self._part is None:
            return []
        (kind, part_id), self._part = self._part, None
        return [{"type": f"{kind}-end", "id": part_id}]

    def _begin_step(self, step: str) -> list[Chunk]:
        if step == self._step:
            return []
        chunks = [*self._end_step(), {"type": "start-step"}]
        self._step = step
        return chunks

    def _end_step(self) -> list[Chunk]:
        if not self._step:
            return []
        self._step = ""
        return [*self._close_part(), {"type": "finish-step"}]


_PROBLEMS: Final = [
    "agent_not_found",
    "approval_not_found",
    "already_decided",
    "blob_not_found",
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

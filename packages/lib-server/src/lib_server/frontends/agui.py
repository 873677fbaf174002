"""`/agui/{agent}`: the AG-UI protocol, for `HttpAgent` and the front ends built on it.

A thread is a chat, a message of the user is a turn, and the `runId` of its request is the turn's
key: the same request again streams the same answer. A call that waits for a person ends the stream
with an interrupt; `resume` decides about it, and the answer goes on where it ended. A call of a
tool of the page ends it as well, and the message with its result goes on. A request that brings
nothing new streams what the thread has: its messages, and the answer that is still open.

Source: AG-UI, Agent User Interaction Protocol 1.0, with `@ag-ui/client` 1.0.0, 2026-11.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError
from starlette.types import ASGIApp

from lib.engine import GuardJudged, Result, Session, Turn, WaitingCall
from lib.engine.api.waiting import awaited_in
from lib.engine.arguments import as_client_tools
from lib.errors import IdempotencyMismatch, NotPending
from lib.events import Event
from lib.events import kinds as k
from lib.events.payloads import fits
from lib.llm import Attachment, Message, Text, ToolResult, ToolSpec, message_from_json
from lib_server.bodies import AttachmentPart, Body, Empty, Id, TextPart, UserMessage
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
from lib_server.problems import KINDS, Problem
from lib_server.routing import AnyRoute, Call, Route, check_right

PROTOCOL_VERSION: Final = "1.0"
_CONTEXT: Final = "What the page shows, which the user has not written:"
_ANSWER_SCHEMA: Final[Chunk] = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
    "additionalProperties": False,
}
_OF_THREAD: Final = frozenset(
    {
        "already_decided",
        "approval_not_found",
        "digest_mismatch",
        "invalid",
        "not_pending",
        "run_open",
    }
)
"""Problems that the protocol has in the stream, as they are about interrupts of the thread."""


# -- bodies ----------------------------------------------------------------------------------------


class ThreadMessage(Lenient):
    """A message of the thread.

    Only the last one is read, if the user has written it, and the results of calls of the page.
    """

    id: str
    role: Literal["developer", "system", "assistant", "user", "tool", "activity", "reasoning"]
    content: Any = None
    tool_calls: list[dict[str, Any]] | None = Field(None, alias="toolCalls")
    tool_call_id: str | None = Field(None, alias="toolCallId")
    error: str | None = None


class PageTool(Lenient):
    """A tool whose calls the page makes."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = Field(None, description="the JSON schema of an object")


class PageContext(Lenient):
    """A fact that the page shows beside the conversation."""

    description: str
    value: str


class ResumeEntry(Lenient):
    """The answer to an interrupt."""

    interrupt_id: str = Field(alias="interruptId")
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class RunAgentInput(Lenient):
    """A request of an AG-UI client; `state` and `forwardedProps` are not read."""

    thread_id: Id = Field(alias="threadId", description="names the thread among those of its user")
    run_id: Id = Field(alias="runId", description="makes it safe to send the request again")
    messages: list[ThreadMessage]
    tools: list[PageTool] | None = Field(
        None, description="whose calls the page makes; none may have the name of one of the agent"
    )
    context: list[PageContext] | None = Field(
        None, description="goes before the message of the user, for the agent to read"
    )
    resume: list[ResumeEntry] | None = Field(
        None, description="answers to all open interrupts; the request then has no other message"
    )


class Approval(Body):
    """The payload of a resolved interrupt; arguments cannot be edited."""

    approved: bool
    reason: str = ""


class _TextContent(Lenient):
    type: Literal["text"]
    text: str


class _Source(Lenient):
    type: Literal["data", "url"]
    value: str
    mime_type: str | None = Field(None, alias="mimeType")


class _MediaContent(Lenient):
    type: Literal["image", "audio", "video", "document"]
    source: _Source


class _Parts(Lenient):
    content: Annotated[
        list[Annotated[_TextContent | _MediaContent, Field(discriminator="type")]],
        Field(min_length=1),
    ]


def _new_message(body: RunAgentInput) -> UserMessage | None:
    """Return the last message with what the page shows, None if the user has not written it."""
    if not body.messages or body.messages[-1].role != "user":
        return None
    pointer = f"/messages/{len(body.messages) - 1}"
    content = body.messages[-1].content
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    parts = read_part(_Parts, {"content": content}, pointer).content
    found = [_part(part, f"{pointer}/content/{place}") for place, part in enumerate(parts)]
    if body.context:
        lines = [f"- {each.description}: {each.value}" for each in body.context]
        found.insert(0, TextPart(type="text", text="\n".join([_CONTEXT, *lines])))
    return UserMessage(role="user", content=found)


def _part(part: _TextContent | _MediaContent, pointer: str) -> TextPart | AttachmentPart:
    if isinstance(part, _TextContent):
        return TextPart(type="text", text=part.text)
    source, kind = part.source, part.type if part.type in ("image", "audio") else "file"
    fields: dict[str, Any] = {"type": kind, "media_type": source.mime_type or ""}
    if source.type == "data":
        return attachment({**fields, "data": source.value}, pointer)
    return attachment({**fields, **source_of(source.value)}, pointer)


# -- handler ---------------------------------------------------------------------------------------


async def _run(call: Call[Empty, RunAgentInput]) -> ASGIApp:
    call.check_not_draining()
    call.services.quotas.check_streams(call.principal)
    await chats.check_agent(call, None, call.path("agent"))
    message = _new_message(call.body)
    tools = [] if message is None else _client_tools(call)
    stream = _Thread(call)
    try:
        has_answered = await stream.answer(_results(call.body))
        if call.body.resume:
            await stream.resume(call.body.resume)
        elif message is not None:
            await stream.send(message, tools)
        elif not has_answered:
            await stream.reconnect()
    except Problem as problem:
        if problem.code not in _OF_THREAD:
            raise
        stream.refuse(problem)
    streamed = Streamed(call, stream.content(), headers=stream.headers, failure=_failed)
    return call.services.quotas.counted(call.principal, streamed)


class _Thread:
    """The stream that answers one request; the protocol calls it a run.

    Attributes:
        headers: of the answer.
    """

    def __init__(self, call: Call[Empty, RunAgentInput]) -> None:
        """Begin with the start of the stream."""
        body = call.body
        self._call = call
        self._ids: Chunk = {"threadId": body.thread_id, "runId": body.run_id}
        started = {"type": "RUN_STARTED", **self._ids, "protocolVersion": PROTOCOL_VERSION}
        self._lead: list[Chunk] = [started]
        self._answer: AnswerStream | None = None
        self._results: set[str] = set()
        self.headers: dict[str, str] = {}

    async def send(self, message: UserMessage, tools: Sequence[ToolSpec]) -> None:
        """Send a message, and answer with its turn; with the open one if that has the same."""
        call = self._call
        session = await chats.begin(call, call.body.thread_id, call.path("agent"))
        last = (await session.turns())[-1:]
        if last and (await last[0].result(wait=False)).outcome is None:
            with suppress(IdempotencyMismatch):  # another message
                await self._follow(session, await chats.send(call, session, last[0].id, message))
                return
        turn = await chats.send(call, session, call.body.run_id, message, tools)
        await self._follow(session, turn)

    async def answer(self, results: Mapping[str, ThreadMessage]) -> bool:
        """Bring the results of calls that the page has made, and go on behind those calls.

        Returns False if they are results of other calls.
        """
        session = await self._find() if results else None
        turns = [] if session is None else await session.turns()
        runs = {call_id.partition("/")[0] for call_id in results}
        turn = next((each for each in reversed(turns) if each.run_id in runs), None)
        if session is None or turn is None:
            return False
        log = await self._call.store.read(turn.run_id)
        awaited = {
            f"{turn.run_id}/{event.data['key']}": event
            for event in log
            if event.kind == k.TOOL_AWAITED and fits(event.kind, event.data)
        }
        brought = {awaited[each].data["key"]: results[each] for each in results.keys() & awaited}
        missing = {each.key for each in awaited_in(log)} - brought.keys()
        if not brought:
            return False
        if missing or not all(isinstance(each.content, str) for each in brought.values()):
            detail = "expected the results of all calls of the page that are open, as text"
            raise Problem("invalid", errors=[("/messages", detail)])
        for key, message in brought.items():
            await self._bring(turn, key, message)
        self._results = set(brought)
        after = min(awaited[f"{turn.run_id}/{key}"].seq for key in brought)
        await self._follow(session, turn, after=after)
        return True

    async def _bring(self, turn: Turn, key: str, message: ThreadMessage) -> None:
        """Bring the result of a call; the same message may be sent again."""
        name = f"agui/{hashlib.sha256(message.id.encode()).hexdigest()}"
        with suppress(NotPending):
            await turn.run.answer(
                key,
                message.error or message.content,
                failed=message.error is not None,
                user=self._call.principal.user,
                signal_id=name,
            )
        for event in await self._call.store.read(turn.run_id):
            if event.kind == k.TOOL_ANSWERED and event.data.get("key") == key:
                if event.data["signal_id"] != name:
                    raise Problem("already_decided", "another result of the call came first")
                return

    async def resume(self, entries: Sequence[ResumeEntry]) -> None:
        """Decide about the calls that wait, all of them, and go on behind the decisions."""
        refs = [chats.approval_ref(entry.interrupt_id) for entry in entries]
        approvals = [_approval(entry, place) for place, entry in enumerate(entries)]
        session = await self._find()
        if session is None:
            raise Problem("approval_not_found", "the thread has not begun")
        turn = await chats.turn_of(self._call, session, refs)
        waits = (await turn.result(wait=False)).waiting_for
        waiting = {(each.run_id, each.key) for each in (waits.approvals if waits else ())}
        answered = {(ref.run_id, ref.key) for ref in refs}
        is_partial = bool(waiting & answered) and not waiting <= answered
        if is_partial or len(answered) < len(refs):
            raise Problem("invalid", errors=[("/resume", "expected one answer to each interrupt")])
        decisions = [
            (ref, approval.approved, approval.reason)
            for ref, approval, entry in zip(refs, approvals, entries, strict=True)
            if entry.status == "resolved" or (ref.run_id, ref.key) in waiting
        ]
        await chats.decide_all(self._call, decisions)
        await self._follow(session, turn, refs)

    async def reconnect(self) -> None:
        """Answer with all messages of the thread, and with its last turn if that is open."""
        check_right(self._call.principal, "read")
        session = await self._find()
        turns = [] if session is None else await session.turns()
        messages: list[Chunk] = []
        self._lead.append({"type": "MESSAGES_SNAPSHOT", "messages": messages})
        if session is None or not turns:
            self._lead += _Events("", self._ids).finished({"type": "success"})
            return
        turn = turns[-1]
        log, history = await self._history(session)
        has_ended = any(each.kind == k.TURN_COMPLETED for each in _of_turn(log, turn))
        if not has_ended:
            history += [message for event in _of_turn(log, turn) for message in _input(event)]
        messages += _snapshot(session.id, history)
        if not has_ended:
            await self._follow(session, turn)
            return
        result = await turn.result(wait=False)
        events = _Events(turn.run_id, self._ids)
        if self._call.body.messages:  # its client was there when the answer began
            self._lead += events.ended(result)
        else:
            self._lead += events.finished({"type": "success"}, result)

    def refuse(self, problem: Problem) -> None:
        """Answer with an error."""
        self._lead.append(_error(problem))

    async def content(self) -> AsyncGenerator[bytes]:
        """Yield the events; b"" where nothing has come for a while."""
        yield b"".join(map(data_event, self._lead))
        if self._answer is None:
            return
        async with aclosing(self._answer.chunks()) as all_:
            async for chunks in all_:
                yield b"".join(map(data_event, chunks))

    async def _find(self) -> Session | None:
        """Return the session of the thread, None before it has begun.

        Raises:
            Problem: `agent_not_found`, `idempotency_mismatch`: another agent answers it.
        """
        call, agent = self._call, self._call.path("agent")
        session = await chats.find(call, call.body.thread_id)
        await chats.check_agent(call, session, agent)
        return session

    async def _follow(
        self, session: Session, turn: Turn, refs: Sequence[ApprovalRef] = (), *, after: int = 0
    ) -> None:
        live = streams_replies(self._call, await chats.agent_of(self._call, session))
        goes_on = bool(refs) or after > 0
        shown = _calls(self._call.body.messages, f"{turn.run_id}/") if goes_on else []
        events = _Events(turn.run_id, self._ids)
        answer = Answer(events, live=live, calls=shown, results=self._results)
        self._answer = AnswerStream(self._call, turn, answer, refs, after=after)
        self.headers["x-run-id"] = turn.run_id
        if turn.repeated:
            self.headers["idempotent-replayed"] = "true"

    async def _history(self, session: Session) -> tuple[list[Event], list[Message]]:
        """Return the log of the session, and the conversation at its end."""
        log: list[Event] = []
        history: list[Message] = []
        while newer := await self._call.store.read(session.id, after=log[-1].seq if log else 0):
            log += newer
            history = await session.history()
        return log, history


def _client_tools(call: Call[Empty, RunAgentInput]) -> list[ToolSpec]:
    """Return the tools of the page.

    Raises:
        Problem: `invalid`: one cannot be offered, or has the name of one of the agent's.
    """
    empty: dict[str, Any] = {"type": "object", "properties": {}}
    specs = [
        ToolSpec(each.name, each.description, each.parameters or empty)
        for each in call.body.tools or ()
    ]
    try:
        as_client_tools(specs, call.engine.tool_names(call.path("agent")))
    except ValueError as error:
        raise Problem("invalid", errors=[("/tools", str(error))]) from None
    return specs


def _results(body: RunAgentInput) -> dict[str, ThreadMessage]:
    """Return the results behind the last reply, by the ids of their calls."""
    found: dict[str, ThreadMessage] = {}
    for message in reversed(body.messages):
        if message.role == "assistant":
            break
        if message.role == "tool" and message.tool_call_id is not None:
            found.setdefault(message.tool_call_id, message)
    return found


def _approval(entry: ResumeEntry, place: int) -> Approval:
    if entry.status == "cancelled":
        return Approval(approved=False, reason="cancelled")
    try:
        return Approval.model_validate(entry.payload)
    except ValidationError:
        detail = 'expected {"approved": true or false, "reason": "…"}, as responseSchema says'
        raise Problem("invalid", errors=[(f"/resume/{place}/payload", detail)]) from None


def _calls(messages: Iterable[ThreadMessage], prefix: str) -> list[str]:
    """Return the calls of a turn that a client shows already."""
    ids = [str(each.get("id")) for message in messages for each in message.tool_calls or ()]
    return [each.removeprefix(prefix) for each in ids if each.startswith(prefix)]


def _failed(problem: Problem) -> bytes:
    return data_event(_error(problem))


def _error(problem: Problem) -> Chunk:
    lines = [f"{at}: {detail}" for at, detail in problem.errors]
    message = "; ".join([problem.detail or KINDS[problem.code].title, *lines])
    return {"type": "RUN_ERROR", "message": message, "code": problem.code}


# -- messages of the thread ------------------------------------------------------------------------


def _of_turn(log: Iterable[Event], turn: Turn) -> list[Event]:
    """Return the message of a turn and its end, from the log of its session."""
    found: list[Event] = []
    for event in log:
        if fits(event.kind, event.data):
            requested = event.kind == k.TURN_REQUESTED and event.data["signal_id"] == turn.id
            ended = event.kind == k.TURN_COMPLETED and event.data.get("key") == turn.id
            found += [event] if ended or (requested and not found) else []
    return found


def _input(event: Event) -> list[Message]:
    return [message_from_json(each) for each in event.data["input"]]


def _snapshot(session_id: str, history: Iterable[Message]) -> list[Chunk]:
    """Return the messages of a thread; those of the same place have the same id later on."""
    found: list[Chunk] = []
    calls: dict[str, str] = {}
    for place, message in enumerate(history):
        message_id = f"{session_id}/{place}"
        if message.role == "user":
            found.append({"id": message_id, "role": "user", "content": _user_content(message)})
        elif message.role == "assistant":
            calls = {call.id: f"{message_id}/{call.id}" for call in message.tool_calls}
            found.append({"id": message_id, **_assistant(message, calls)})
        elif message.role == "tool":
            results = [part for part in message.parts if isinstance(part, ToolResult)]
            for number, result in enumerate(results):
                call_id = calls.get(result.call_id, result.call_id)
                ended: Chunk = {"id": f"{message_id}/{number}", "role": "tool"}
                ended |= {"toolCallId": call_id, "content": result.content}
                found.append(ended | ({"error": result.content} if result.is_error else {}))
    return found


def _user_content(message: Message) -> str | list[Chunk]:
    """Return what the user has written; content that no URL leads to is left out."""
    parts: list[Chunk] = []
    for part in message.parts:
        if isinstance(part, Text) and not part.text.startswith(_CONTEXT):
            parts.append({"type": "text", "text": part.text})
        elif isinstance(part, Attachment) and part.url is not None:
            kind = {"file": "document"}.get(part.modality, part.modality)
            source: Chunk = {"type": "url", "value": part.url}
            source |= {"mimeType": part.media_type} if part.media_type else {}
            parts.append({"type": kind, "source": source})
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _assistant(message: Message, calls: Mapping[str, str]) -> Chunk:
    shown: Chunk = {"role": "assistant", "content": message.text}
    if message.tool_calls:
        shown["toolCalls"] = [
            {
                "id": calls[call.id],
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in message.tool_calls
        ]
    return shown


# -- events ----------------------------------------------------------------------------------------


class _Events:
    """The events of an answer; their ids begin with that of the run, as a thread has many."""

    def __init__(self, run_id: str, ids: Chunk) -> None:
        """Begin with nothing.

        Args:
            run_id: of the turn.
            ids: of the thread, and of the run as the protocol has it.
        """
        self._run_id = run_id
        self._ids = ids
        self._interrupts: list[Chunk] = []

    def step_begins(self, step: str) -> list[Chunk]:
        """Begin a step."""
        return [{"type": "STEP_STARTED", "stepName": step}]

    def step_ends(self, step: str) -> list[Chunk]:
        """End a step."""
        return [{"type": "STEP_FINISHED", "stepName": step}]

    def part_begins(self, kind: PartKind, part_id: str) -> list[Chunk]:
        """Begin a message."""
        if kind == "text":
            return [self._text("START", part_id, role="assistant")]
        begins = self._reasoning("MESSAGE_START", part_id, role="reasoning")
        return [self._reasoning("START", part_id), begins]

    def part_adds(self, kind: PartKind, part_id: str, text: str) -> list[Chunk]:
        """Add to a message."""
        if kind == "text":
            return [self._text("CONTENT", part_id, delta=text)]
        return [self._reasoning("MESSAGE_CONTENT", part_id, delta=text)]

    def part_ends(self, kind: PartKind, part_id: str) -> list[Chunk]:
        """End a message."""
        if kind == "text":
            return [self._text("END", part_id)]
        return [self._reasoning("MESSAGE_END", part_id), self._reasoning("END", part_id)]

    def _text(self, event: str, part_id: str, **more: str) -> Chunk:
        message_id = f"{self._run_id}/{part_id}"
        return {"type": f"TEXT_MESSAGE_{event}", "messageId": message_id, **more}

    def _reasoning(self, event: str, part_id: str, **more: str) -> Chunk:
        message_id = f"{self._run_id}/{part_id}/reasoning"
        return {"type": f"REASONING_{event}", "messageId": message_id, **more}

    def call_begins(
        self, call_id: str, name: str, arguments: Mapping[str, Any], step: str
    ) -> list[Chunk]:
        """Show a call, in the message of its step."""
        named: Chunk = {"toolCallId": f"{self._run_id}/{call_id}"}
        parent = {"parentMessageId": f"{self._run_id}/{step}"} if step else {}
        return [
            {"type": "TOOL_CALL_START", **named, "toolCallName": name, **parent},
            {"type": "TOOL_CALL_ARGS", **named, "delta": json.dumps(dict(arguments))},
            {"type": "TOOL_CALL_END", **named},
        ]

    def call_ends(self, call_id: str, output: str, end: CallEnd) -> list[Chunk]:
        """Show what came of a call."""
        named = f"{self._run_id}/{call_id}"
        ended: Chunk = {"type": "TOOL_CALL_RESULT", "messageId": f"{named}/result"}
        ended |= {"toolCallId": named, "content": output, "role": "tool"}
        return [ended | ({} if end == "returned" else {"metadata": {"end": end}})]

    def call_waits(self, call_id: str, ref: ApprovalRef, call: WaitingCall) -> list[Chunk]:
        """Keep the interrupt for the end of the stream."""
        reason = f": {call.reason}" if call.reason else ""
        self._interrupts.append(
            {
                "id": ref.encode(),
                "reason": "tool_call",
                "message": f"{call.name} waits for your approval{reason}",
                "toolCallId": f"{self._run_id}/{call_id}",
                "responseSchema": _ANSWER_SCHEMA,
            }
        )
        return []

    def judged(self, item: GuardJudged) -> list[Chunk]:
        """Show what a guard has found."""
        if item.verdict == "allowed":
            return []
        names = ("guard", "stage", "verdict", "reason")
        value = {name: getattr(item, name) for name in names}
        return [{"type": "CUSTOM", "name": "guard", "value": value}]

    def ended(self, result: Result[Any]) -> list[Chunk]:
        """End the stream."""
        if result.outcome == "FAILED":
            return [_error(Problem("run_failed", why_failed(result)))]
        if result.outcome == "CANCELLED":
            return self.finished({"type": "cancelled"}, result)
        if self._interrupts:
            interrupts = {"type": "interrupt", "interrupts": self._interrupts}
            return self.finished(interrupts, result)
        return self.finished({"type": "success"}, result)

    def finished(self, outcome: Chunk, result: Result[Any] | None = None) -> list[Chunk]:
        """Return the end of a stream that has not failed."""
        finished = {"type": "RUN_FINISHED", **self._ids, "outcome": outcome}
        if result is None:
            return [finished]
        return [{**finished, "metadata": {"run": run_state(result).model_dump()}}]


ROUTES: list[AnyRoute] = [
    Route(
        method="POST",
        path="/agui/{agent}",
        handler=_run,
        summary="Send a message, decisions or nothing, and stream the answer, as AG-UI has it",
        tag="front ends",
        right="run",
        query=Empty,
        body=RunAgentInput,
        answers={200: None},
        problems=[
            "agent_not_found",
            "upload_not_found",
            "budget_spent",
            "draining",
            "idempotency_mismatch",
            "open_runs_cap",
            "run_erased",
            "run_not_found",
            "session_closed",
            "session_not_found",
            "stream_cap",
        ],
        events={"message": "an event of the protocol, from `RUN_STARTED` to the end of the run"},
    ),
]

"""Tasks: the turns of sessions as other agents see them, read from the log.

A context is a session of its caller, and a task is a turn. The key of a turn holds the ids that the
caller has chosen: of the context, and of the message. A task's id names the session and the run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from lib.engine import Result, Session, Turn, WaitingCall
from lib.engine.core.session import SESSION
from lib.events import Event, RunInfo, RunQuery
from lib.events import kinds as k
from lib.events.payloads import fits
from lib.llm import message_from_json
from lib_server.a2a.config import A2AConfig, Answer
from lib_server.a2a.errors import A2AError
from lib_server.frontends import chats
from lib_server.frontends.chats import ApprovalRef
from lib_server.routing import Call

_TASK_ID: Final = re.compile(r"([0-9a-f]{32})-([0-9a-f]{32})", re.ASCII)
STATES: Final[Mapping[str, str]] = {
    "COMPLETED": "TASK_STATE_COMPLETED",
    "FAILED": "TASK_STATE_FAILED",
    "LIMITED": "TASK_STATE_FAILED",
    "CANCELLED": "TASK_STATE_CANCELED",
    "BLOCKED": "TASK_STATE_REJECTED",
}
SUBMITTED: Final = "TASK_STATE_SUBMITTED"
WORKING: Final = "TASK_STATE_WORKING"
INPUT_REQUIRED: Final = "TASK_STATE_INPUT_REQUIRED"
ENDED: Final = frozenset(STATES.values())
ANSWER: Final = "answer"
_MOST_LISTED: Final = 5_000
_PAGE: Final = 500
Json = dict[str, Any]


# -- contexts and tasks ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A turn of a session.

    Attributes:
        session: the context.
        turn: the task.
        context_id: as the caller has it.
    """

    session: Session
    turn: Turn
    context_id: str

    @property
    def id(self) -> str:
        """Its id, for other agents."""
        return f"{self.session.id}-{self.turn.run_id}"


def turn_key(context_id: str, message_id: str) -> str:
    """Return the key under which the message of a context is sent."""
    return json.dumps([context_id, message_id], separators=(",", ":"))


def _ids(turn: Turn) -> tuple[str, str]:
    """Return the ids of the context and the message; those of turns of other APIs are their own."""
    try:
        match json.loads(turn.id):
            case [str(context_id), str(message_id)]:
                return context_id, message_id
            case _:
                pass
    except ValueError:
        pass
    return turn.session_id, turn.id


async def begin_context(
    call: Call[Any, Any], agent: str, context_id: str, message_id: str
) -> tuple[Session, str]:
    """Return the session for a message that names no task, and the id of its context.

    Raises:
        Problem: as `chats.begin` does.
    """
    if not context_id:
        session = await chats.begin(call, json.dumps(["a2a message", message_id]), agent)
        return session, session.id
    found = await find_context(call, agent, context_id)
    if found is not None:
        return found, context_id
    return await chats.begin(call, _chat_id(context_id), agent), context_id


def _chat_id(context_id: str) -> str:
    return json.dumps(["a2a context", context_id])


async def find_context(call: Call[Any, Any], agent: str, context_id: str) -> Session | None:
    """Return the session of a context of the caller, None if there is none."""
    session = await _own_session(call, agent, context_id)
    if session is not None:
        return session
    found = await chats.find(call, _chat_id(context_id))
    return None if found is None else await _own_session(call, agent, found.id)


async def _own_session(call: Call[Any, Any], agent: str, session_id: str) -> Session | None:
    info = await call.store.run(session_id)
    if info is None or info.algorithm != SESSION or info.user != call.principal.user:
        return None
    session = call.engine.session(session_id, tenant=call.principal.tenant)
    return session if await chats.agent_of(call, session) == agent else None


async def find_task(call: Call[Any, Any], agent: str, task_id: str) -> Task:
    """Return a task of the caller.

    Raises:
        A2AError: `TASK_NOT_FOUND`: there is none; one of another caller is like none.
    """
    match = _TASK_ID.fullmatch(task_id)
    session = None if match is None else await _own_session(call, agent, match[1])
    turns = [] if session is None else await session.turns()
    for turn in turns:
        if session is not None and match is not None and turn.run_id == match[2]:
            return task_of(session, turn)
    raise A2AError("TASK_NOT_FOUND", "no task has this id")


def task_of(session: Session, turn: Turn) -> Task:
    """Return the task that a turn is."""
    return Task(session=session, turn=turn, context_id=_ids(turn)[0])


async def list_runs(call: Call[Any, Any], agent: str, session: Session | None) -> list[RunInfo]:
    """Return the runs of the caller's newest tasks, of one context or of all, last changed first.

    Tasks that have not begun are not among them.
    """
    principal = call.principal
    own = RunQuery(tenant=principal.tenant, user=principal.user, newest_first=True)
    parent_id = None if session is None else session.id
    runs = await _all(call, replace(own, algorithm=agent, parent_id=parent_id))
    contexts = {parent_id}
    if session is None:
        contexts = {info.run_id for info in await _all(call, replace(own, algorithm=SESSION))}
    found = [info for info in runs if info.parent_id in contexts]
    if call.principal.user is None:  # of which a query has none
        found = [info for info in found if info.user is None]
    return sorted(found, key=lambda info: (info.updated_at, info.run_id), reverse=True)


async def _all(call: Call[Any, Any], query: RunQuery) -> list[RunInfo]:
    found: list[RunInfo] = []
    while len(found) < _MOST_LISTED:
        after = found[-1].run_id if found else None
        page = await call.store.runs(replace(query, after=after, limit=_PAGE))
        found += page
        if len(page) < _PAGE:
            break
    return found


# -- what is shown ---------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class View:
    """A task as it is now.

    Attributes:
        body: as the protocol has it.
        seq: the last event of the run that it shows, 0 if the run has not begun.
        result: of the run.
        waiting: the calls that wait for a person.
        as_message: True if the answer is to be a message.
    """

    body: Json
    seq: int
    result: Result[Any]
    waiting: Sequence[WaitingCall] = field(default_factory=tuple[WaitingCall, ...])
    as_message: bool = False

    @property
    def state(self) -> str:
        """The state of the task."""
        state: str = self.body["status"]["state"]
        return state


async def view_of(
    call: Call[Any, Any],
    config: A2AConfig,
    task: Task,
    *,
    history_length: int | None = None,
    artifacts: bool = True,
) -> View:
    """Read a task.

    Args:
        call: the request.
        config: says how answers are shown.
        task: of the caller.
        history_length: how many of its last messages are shown at most, None for all.
        artifacts: show its answer.
    """
    result = await task.turn.result(wait=False)
    info = await call.store.run(task.turn.run_id)
    log = [] if info is None else await call.store.read(task.turn.run_id)
    waiting = () if result.waiting_for is None else result.waiting_for.approvals
    changed = info or await task.session.run.info()
    state = _state(result, begun=info is not None, waits=bool(waiting))
    status: Json = {"state": state, "timestamp": timestamp(changed.updated_at)}
    about = _status_message(task, result, waiting)
    if about is not None:
        status["message"] = about
    body: Json = {
        "id": task.id,
        "contextId": task.context_id,
        "status": status,
        "metadata": {"runId": task.turn.run_id},
    }
    answer = _answer(call, config, result)
    if artifacts and answer is not None:
        body["artifacts"] = [artifact(answer.parts)]
    if history_length != 0:
        history = await _history(call, task, log)
        body["history"] = history if history_length is None else history[-history_length:]
    return View(
        body=body,
        seq=log[-1].seq if log else 0,
        result=result,
        waiting=waiting,
        as_message=answer is not None and answer.as_message,
    )


def _state(result: Result[Any], *, begun: bool, waits: bool) -> str:
    if result.outcome is not None:
        return STATES[result.outcome]
    if waits:
        return INPUT_REQUIRED
    return WORKING if begun else SUBMITTED


def timestamp(at: datetime) -> str:
    """Return a time as the protocol has it."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def artifact(parts: Sequence[Mapping[str, Any]]) -> Json:
    """Return the answer of a task, or what there is of it."""
    return {"artifactId": ANSWER, "name": ANSWER, "parts": [dict(part) for part in parts]}


def _answer(call: Call[Any, Any], config: A2AConfig, result: Result[Any]) -> Answer | None:
    if result.outcome != "COMPLETED":
        return Answer(parts=[{"text": result.text}]) if result.outcome and result.text else None
    if config.answer is not None:
        return config.answer(result)
    agent: Any = call.engine.agents.get(config.agent_among(call.engine.agents))
    if getattr(agent, "output", None) is not None:
        try:
            return Answer(parts=[{"data": json.loads(result.text)}])
        except ValueError:  # the agent had another output type when it began
            pass
    return Answer(parts=[{"text": result.text}])


def agent_message(task: Task, message_id: str, parts: Sequence[Mapping[str, Any]]) -> Json:
    """Return a message of our agent."""
    return {
        "messageId": message_id,
        "contextId": task.context_id,
        "taskId": task.id,
        "role": "ROLE_AGENT",
        "parts": [dict(part) for part in parts],
    }


def _status_message(task: Task, result: Result[Any], waiting: Sequence[WaitingCall]) -> Json | None:
    """Return the message of the status: what the task waits for, or why it has not completed."""
    run_id = task.turn.run_id
    if waiting:
        calls = [approval_request(each, run_id) for each in waiting]
        return approval_message(task, f"{run_id}-{waiting[-1].key}", calls)
    if result.outcome in (None, "COMPLETED"):
        return None
    kind = "" if result.error is None else str(result.error.get("type", ""))
    why = result.reason or kind or str(result.outcome).lower()
    return agent_message(task, f"{run_id}-end", [{"text": f"{result.outcome}: {why}"}])


def approval_request(call: WaitingCall, run_id: str) -> Json:
    """Return a call that waits for a decision; its id names it and its arguments."""
    request: Json = {
        "id": ApprovalRef.of(call, run_id, 0).encode(),
        "tool": call.name,
        "arguments": dict(call.arguments),
    }
    return request | ({"reason": call.reason} if call.reason else {})


def approval_message(task: Task, message_id: str, calls: Sequence[Json]) -> Json:
    """Return the message that requests decisions about calls."""
    names = ", ".join(str(each["tool"]) for each in calls)
    text = (
        f"Approval needed: {names}. Answer with the data {{'approvals': [{{'id': …, 'decision': "
        "'approve' | 'deny'}]}; any text but 'approve' denies and is read by the agent."
    )
    return agent_message(task, message_id, [{"text": text}, {"data": {"approvals": list(calls)}}])


# -- history ---------------------------------------------------------------------------------------


async def _history(call: Call[Any, Any], task: Task, log: Sequence[Event]) -> list[Json]:
    """Return the messages of a task, oldest first."""
    _, message_id = _ids(task.turn)
    sent: Sequence[Any] = log[0].data.get("input", ()) if log else await _sent(call, task)
    messages = [_user_message(task, message_id, _texts(sent))]
    for event in log:
        if not fits(event.kind, event.data):
            continue
        if event.kind == k.APPROVAL_REQUESTED:
            text = f"Approval needed: {event.data['name']}"
            parts = [{"text": text}, {"data": dict(event.data["args"])}]
            messages.append(agent_message(task, f"{event.run_id}-{event.data['key']}", parts))
        elif event.kind == k.APPROVAL_DECIDED:
            decision = "approve" if event.data["approved"] else "deny"
            text = event.data.get("comment") or decision
            messages.append(_user_message(task, event.data.get("signal_id", ""), [text]))
    return messages


async def _sent(call: Call[Any, Any], task: Task) -> Sequence[Any]:
    for event in await call.store.read(task.session.id):
        if event.kind == k.TURN_REQUESTED and event.data.get("signal_id") == task.turn.id:
            return event.data.get("input", ())
    return ()


def _texts(sent: Sequence[Any]) -> list[str]:
    """Return the texts of what was sent last; the messages before are those of other tasks."""
    parts = [part for each in sent[-1:] for part in message_from_json(each).parts]
    return [getattr(part, "text", f"[{type(part).__name__.lower()}]") for part in parts]


def _user_message(task: Task, message_id: str, texts: Sequence[str]) -> Json:
    message = agent_message(task, message_id, [{"text": text} for text in texts])
    return {**message, "role": "ROLE_USER"}

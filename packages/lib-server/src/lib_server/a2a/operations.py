"""The operations of the protocol, over runs and sessions; both bindings call them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from lib.engine import (
    ApprovalDecided,
    ApprovalRequested,
    ModelReplied,
    ReplyDelta,
    ReplyReset,
    RunEnded,
    StreamItem,
)
from lib.events import RunInfo, RunQuery
from lib.events import kinds as k
from lib_server.a2a import tasks
from lib_server.a2a.config import A2AConfig
from lib_server.a2a.errors import A2AError
from lib_server.a2a.messages import (
    AgentMessage,
    GetTask,
    ListTasks,
    SendMessage,
    TaskRef,
    as_input,
    check_parts,
    text_of,
)
from lib_server.a2a.tasks import Json, Task, View
from lib_server.frontends import chats
from lib_server.frontends.chats import ApprovalRef
from lib_server.other_apis import attended, streams_replies, with_idle
from lib_server.routing import Call, check_right

_CANCEL_S: Final = 5.0
_Decisions = list[tuple[ApprovalRef, bool, str]]
Events = AsyncGenerator[Json | None]
"""The events of a task, as the protocol has them; None while there is none."""


class _Decision(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    id: str
    decision: Literal["approve", "deny"]
    comment: str = ""


_DECISIONS: Final = TypeAdapter(list[_Decision])


class Operations:
    """The operations on the agent of a server."""

    def __init__(self, config: A2AConfig) -> None:
        """Offer an agent.

        Args:
            config: which, and how.
        """
        self._config = config

    def _agent(self, call: Call[Any, Any]) -> str:
        return self._config.agent_among(call.engine.agents)

    async def _view(self, call: Call[Any, Any], task: Task, length: int | None = None) -> View:
        return await tasks.view_of(call, self._config, task, history_length=length)

    # -- messages --------------------------------------------------------------------------

    async def send(self, call: Call[Any, Any], wanted: SendMessage) -> Json:
        """Send a message, and return the task: once it has ended or waits, or at once.

        Raises:
            A2AError: the message is refused.
            Problem: as those of a session.
        """
        task = await self._send(call, wanted)
        if not wanted.configuration.return_immediately:
            await attended(call, self._until_pause(call, task))
        view = await self._view(call, task, wanted.configuration.history_length)
        if not view.as_message:
            return {"task": view.body}
        parts = view.body["artifacts"][0]["parts"]
        message = tasks.agent_message(task, f"{task.turn.run_id}-answer", parts)
        return {"message": {name: message[name] for name in message if name != "taskId"}}

    async def _until_pause(self, call: Call[Any, Any], task: Task) -> None:
        view = await self._view(call, task, 0)
        if view.state != tasks.INPUT_REQUIRED:
            async with aclosing(self._follow(call, task, view)) as events:
                async for _ in events:
                    pass

    async def stream(self, call: Call[Any, Any], wanted: SendMessage) -> Events:
        """Send a message, and return what happens in its task.

        Raises:
            Exception: as `send` does.
        """
        call.services.quotas.check_streams(call.principal)
        task = await self._send(call, wanted)
        view = await self._view(call, task, wanted.configuration.history_length)
        return self._follow(call, task, view, pauses=True)

    async def subscribe(self, call: Call[Any, Any], wanted: TaskRef) -> Events:
        """Return a task, and what happens in it from then on.

        Raises:
            A2AError: `TASK_NOT_FOUND`; `UNSUPPORTED_OPERATION`: it has ended.
            Problem: `stream_cap`.
        """
        check_right(call.principal, "read")
        call.services.quotas.check_streams(call.principal)
        task = await tasks.find_task(call, self._agent(call), wanted.id)
        view = await self._view(call, task)
        if view.state in tasks.ENDED:
            raise A2AError("UNSUPPORTED_OPERATION", "the task has ended: get it")
        return self._follow(call, task, view)

    async def _send(self, call: Call[Any, Any], wanted: SendMessage) -> Task:
        check_right(call.principal, "run")
        call.check_not_draining()
        if wanted.configuration.task_push_notification_config is not None:
            raise no_push()
        message, agent = wanted.message, self._agent(call)
        check_parts(message, self._config)
        if message.task_id:
            return await self._send_to_task(call, message, agent)
        session, context_id = await tasks.begin_context(
            call, agent, message.context_id, message.message_id
        )
        key = tasks.turn_key(context_id, message.message_id)
        return tasks.task_of(session, await chats.send(call, session, key, as_input(message)))

    async def _send_to_task(self, call: Call[Any, Any], message: AgentMessage, agent: str) -> Task:
        """Take a message as the decision about the calls for which its task waits."""
        task = await tasks.find_task(call, agent, message.task_id)
        if message.context_id not in ("", task.context_id):
            raise A2AError("INVALID_PARAMS", "contextId: the task is of another context")
        decisions = _decisions(message)
        if not decisions:
            if await _has_taken(call, task, message.message_id):
                return task
            decisions = _decisions_in_words(message, await self._view(call, task, 0))
        await chats.turn_of(call, task.session, [ref for ref, _, _ in decisions])
        await chats.decide_all(call, decisions, signal_id=message.message_id)
        return task

    # -- tasks -----------------------------------------------------------------------------

    async def get(self, call: Call[Any, Any], wanted: GetTask) -> Json:
        """Return a task.

        Raises:
            A2AError: `TASK_NOT_FOUND`.
        """
        check_right(call.principal, "read")
        task = await tasks.find_task(call, self._agent(call), wanted.id)
        return (await self._view(call, task, wanted.history_length)).body

    async def list(self, call: Call[Any, Any], wanted: ListTasks) -> Json:
        """Return a page of the caller's tasks, last changed first.

        Raises:
            A2AError: `INVALID_PARAMS`: the page token means nothing.
        """
        check_right(call.principal, "read")
        infos = await self._matching(call, wanted)
        page = [each for each in infos if _is_behind(each, wanted.page_token)]
        bodies: list[Json] = []
        for info in page[: wanted.page_size]:
            task = await self._task_of(call, info)
            if task is None:
                continue
            view = await tasks.view_of(
                call,
                self._config,
                task,
                history_length=wanted.history_length,
                artifacts=wanted.include_artifacts,
            )
            bodies.append(view.body)
        more = len(page) > wanted.page_size
        return {
            "tasks": bodies,
            "nextPageToken": _token(page[wanted.page_size - 1]) if more else "",
            "pageSize": wanted.page_size,
            "totalSize": len(infos),
        }

    async def _matching(self, call: Call[Any, Any], wanted: ListTasks) -> Sequence[RunInfo]:
        agent, session = self._agent(call), None
        if wanted.context_id:
            session = await tasks.find_context(call, agent, wanted.context_id)
            if session is None:
                return []
        infos = await tasks.list_runs(call, agent, session)
        since, state = wanted.status_timestamp_after, wanted.status
        if since is not None:
            infos = [each for each in infos if each.updated_at >= since]
        if state in ("", "TASK_STATE_UNSPECIFIED"):
            return infos
        return [each for each in infos if await self._is_in(call, each, state)]

    async def _is_in(self, call: Call[Any, Any], info: RunInfo, state: str) -> bool:
        if info.outcome is not None or state in tasks.ENDED:
            return info.outcome is not None and tasks.STATES[info.outcome] == state
        task = await self._task_of(call, info)
        return task is not None and (await self._view(call, task, 0)).state == state

    async def _task_of(self, call: Call[Any, Any], info: RunInfo) -> Task | None:
        try:
            task_id = f"{info.parent_id}-{info.run_id}"
            return await tasks.find_task(call, self._agent(call), task_id)
        except A2AError:  # it was erased since
            return None

    async def cancel(self, call: Call[Any, Any], wanted: TaskRef) -> Json:
        """Cancel a task, and return it.

        Raises:
            A2AError: `TASK_NOT_FOUND`; `TASK_NOT_CANCELABLE`: it has ended.
        """
        check_right(call.principal, "run")
        task = await tasks.find_task(call, self._agent(call), wanted.id)
        view = await self._view(call, task, 0)
        if view.state in tasks.ENDED or not await task.turn.cancel(user=call.principal.user):
            raise A2AError("TASK_NOT_CANCELABLE", "the task has ended")
        await attended(call, task.turn.result(timeout_s=_CANCEL_S))
        return (await self._view(call, task)).body

    # -- streams ---------------------------------------------------------------------------

    async def _follow(
        self, call: Call[Any, Any], task: Task, view: View, *, pauses: bool = False
    ) -> Events:
        """Yield a task, and what happens in it until it ends or comes to wait for input.

        Args:
            call: the request.
            task: of the caller.
            view: the task as it is now.
            pauses: end at once if it waits for input already.
        """
        yield {"task": view.body}
        if view.state in tasks.ENDED or (pauses and view.state == tasks.INPUT_REQUIRED):
            return
        live = self._config.answer is None and streams_replies(call, self._agent(call))
        events = _TaskEvents(task, view, live=live)
        idle_s = call.services.limits.heartbeat_s
        async with aclosing(with_idle(chats.items_of(task.turn, view.seq), idle_s)) as items:
            async for item in items:
                if isinstance(item, RunEnded):
                    break
                found = events.take(item)
                if _may_change_state(item):
                    found += [None, *events.change(await self._view(call, task, 0))]
                for event in found:
                    yield event
                if events.have_paused:
                    return
        for event in events.end(await self._view(call, task, 0)):
            yield event


def _may_change_state(item: StreamItem[Any] | None) -> bool:
    """Return True if the task may wait for input, or no longer; None may hide it in a child run."""
    return item is None or isinstance(item, ApprovalRequested | ApprovalDecided)


class _TaskEvents:
    """The items of a run, as events of the protocol.

    Attributes:
        have_paused: True once the task has come to wait for input.
    """

    def __init__(self, task: Task, view: View, *, live: bool) -> None:
        self._ids = {"taskId": task.id, "contextId": task.context_id}
        self._live = live
        self._state = view.state
        self._reply = ""
        self.have_paused = False

    def take(self, item: StreamItem[Any] | None) -> list[Json | None]:
        """Return what an item adds."""
        events: list[Json | None] = []
        at: datetime | None = getattr(item, "at", None)
        if self._state == tasks.SUBMITTED and at is not None:
            events.append(self._status({"state": tasks.WORKING, "timestamp": tasks.timestamp(at)}))
        match item:
            case ReplyReset() | ModelReplied():
                self._reply = ""  # what follows replaces it
            case ReplyDelta(text=text) if text and self._live:
                again, self._reply = self._reply == item.key, item.key
                events.append(self._artifact([{"text": text}], append=again))
            case _:
                pass
        return events

    def change(self, view: View) -> list[Json]:
        """Return the change of the state, if it has changed."""
        if view.state == self._state:
            return []
        self.have_paused = view.state == tasks.INPUT_REQUIRED
        return [self._status(view.body["status"])]

    def end(self, view: View) -> list[Json]:
        """Return the whole of the answer, in place of its pieces, and the last state."""
        answers = [
            self._artifact(each["parts"], last=True) for each in view.body.get("artifacts", ())
        ]
        return [*answers, self._status(view.body["status"])]

    def _status(self, status: Json) -> Json:
        self._state = status["state"]
        return {"statusUpdate": {**self._ids, "status": status}}

    def _artifact(self, parts: Sequence[Json], *, append: bool = False, last: bool = False) -> Json:
        update: Json = {**self._ids, "artifact": tasks.artifact(parts)}
        return {"artifactUpdate": {**update, "append": append, "lastChunk": last}}


# -- decisions -------------------------------------------------------------------------------------


def no_push() -> A2AError:
    """Return the refusal to push notifications."""
    return A2AError("PUSH_NOTIFICATION_NOT_SUPPORTED", "subscribe to the task, or get it")


def _decisions(message: AgentMessage) -> _Decisions:
    """Return the decisions that a message has as data."""
    found: list[Any] = []
    for part in message.parts:
        match part.data:
            case {"approvals": [*approvals]}:
                found += approvals
            case _:
                pass
    try:
        decisions = _DECISIONS.validate_python(found)
    except ValidationError:
        expected = "expected approvals as a list of {'id', 'decision': 'approve' | 'deny'}"
        raise A2AError("INVALID_PARAMS", expected) from None
    return [
        (chats.approval_ref(each.id), each.decision == "approve", each.comment)
        for each in decisions
    ]


def _decisions_in_words(message: AgentMessage, view: View) -> _Decisions:
    """Return the decisions that a text is: "approve", or any other, which denies.

    Raises:
        A2AError: nothing waits for one, or several calls wait for an approval.
    """
    if not view.waiting:
        why = "has ended" if view.state in tasks.ENDED else "does not wait for input"
        raise A2AError("UNSUPPORTED_OPERATION", f"the task {why}: send it without taskId")
    text = text_of(message).strip()
    approves = text.lower() == "approve"
    if approves and len(view.waiting) > 1:
        expected = "several calls wait: expected the data {'approvals': [{'id', 'decision'}]}"
        raise A2AError("INVALID_PARAMS", expected)
    run_id = view.body["metadata"]["runId"]
    comment = "" if approves else text
    return [(ApprovalRef.of(each, run_id, 0), approves, comment) for each in view.waiting]


async def _has_taken(call: Call[Any, Any], task: Task, message_id: str) -> bool:
    """Return True if a message has decided about a call of the task, or of a run below it."""
    run_ids = [task.turn.run_id]
    while run_ids:
        run_id = run_ids.pop()
        for event in await call.store.read(run_id):
            if event.kind == k.APPROVAL_DECIDED and event.data.get("signal_id") == message_id:
                return True
        run_ids += [each.run_id for each in await call.store.runs(RunQuery(parent_id=run_id))]
    return False


def _token(info: RunInfo) -> str:
    return f"{info.updated_at.isoformat()}_{info.run_id}"


def _is_behind(info: RunInfo, token: str) -> bool:
    """Return True if a run is listed behind the page that this token ends."""
    if not token:
        return True
    at, _, run_id = token.partition("_")
    try:
        return (info.updated_at, info.run_id) < (datetime.fromisoformat(at), run_id)
    except (TypeError, ValueError):
        raise A2AError("INVALID_PARAMS", "pageToken: start the list again without one") from None

"""Tasks: calls that clients ask about later, each of them a run of the engine.

A task is found by any process over the same store, and in any of them after a restart. To a
caller that has not started it, it is a missing one.

Source: modelcontextprotocol.io, extension `io.modelcontextprotocol/tasks`, 2026-07-28.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from anyio.lowlevel import checkpoint
from pydantic import TypeAdapter, ValidationError

from lib._util.json import digest, parse
from lib.engine import AgentTool, Engine, Result, Run, WaitingCall
from lib.engine.handlers.agent_tool import input_text
from lib.errors import IdempotencyMismatch, LibError, NotPending, RunErased, ToolError
from lib.events import RunInfo
from lib.mcp.calls import approval_question, is_approved
from lib.mcp.inputs import Inputs, dump_answers, fits, read_answers
from lib.mcp.offered import Caller, Offered, answer_of, cancels_with_its_call, start_run
from lib.mcp.results import ToolSurface, failure
from lib.mcp.sdk import (
    MCP_NAME_HEADER,
    MODERN_VERSIONS,
    MCPError,
    RequestContext,
    Server,
    decode_header_value,
    types,
)
from lib.mcp.task_tool import INPUT_PROVIDED, CallState, TaskTool, call_input
from lib.mcp.task_types import TASKS, TaskParams, TaskStatus, UpdateTaskParams

_Context = RequestContext[Any, Any]

_COMPLETE: Final = {"resultType": "complete"}
_WIRE: Final[Mapping[str, Any]] = {"mode": "json", "by_alias": True, "exclude_none": True}
_QUESTION: Final = TypeAdapter[types.InputRequest](types.InputRequest)
_MAX_ID_CHARS: Final = 128


def takes_tasks(context: _Context) -> bool:
    """Return True if the client of a request has declared that it takes tasks."""
    found = context.session.client_capabilities
    if found is None or context.protocol_version not in MODERN_VERSIONS:
        return False
    return TASKS in (found.extensions or {})


class Tasks:
    """The methods of the extension, over the runs of an engine."""

    def __init__(
        self,
        engine: Engine,
        offered: Sequence[Offered],
        surfaces: Mapping[str, ToolSurface],
        caller: Callable[[Any], Caller],
        *,
        poll_s: float,
        ttl_s: float | None,
    ) -> None:
        """Take what they need.

        Args:
            engine: carries out the runs.
            offered: the tools whose calls can be tasks.
            surfaces: of all tools, by name.
            caller: returns the caller of a request.
            poll_s: how long clients should wait before they ask again.
            ttl_s: for how long after its start a task that has ended is found; None for as long
                as its run is kept.
        """
        self._engine, self._surfaces, self._caller = engine, surfaces, caller
        self._by_algorithm = {each.runs.algorithm: each.runs for each in offered if each.runs}
        self._poll_s, self._ttl_s = poll_s, ttl_s

    def serve_on(self, protocol: Server[Any]) -> None:
        """Declare the extension, and answer its requests."""
        protocol.extensions[TASKS] = {}
        protocol.add_request_handler("tasks/get", TaskParams, self._get)
        protocol.add_request_handler("tasks/update", UpdateTaskParams, self._update)
        protocol.add_request_handler("tasks/cancel", TaskParams, self._cancel)

    async def start(
        self,
        context: _Context,
        runs: AgentTool,
        arguments: Mapping[str, Any],
        inputs: Inputs,
        key: str,
        *,
        repeatable: bool,
    ) -> dict[str, Any]:
        """Start a call as a run, and return it as a task.

        A client that cancels the call before it knows the task can find it again if it has sent a
        key. Without one it cannot, and the task is cancelled.

        Args:
            context: of the request.
            runs: the agent whose run it is.
            arguments: of the call, checked.
            inputs: what the client can answer, and has answered.
            key: starts one run, however often the call is sent.
            repeatable: whether the client knows the key.

        Raises:
            ToolError: the limits of the caller forbid it.
            MCPError: the key has started another call, or a run that was erased.
        """
        value = (
            call_input(runs.name, arguments, inputs)
            if isinstance(runs.agent, TaskTool)
            else input_text(arguments)
        )
        caller = self._caller(context.request)
        try:
            run = await start_run(self._engine, caller, value, runs, key)
        except (IdempotencyMismatch, RunErased) as error:
            message = "the idempotency key has started another call, or one that was erased"
            raise MCPError(types.INVALID_PARAMS, message) from error
        async with nullcontext() if repeatable else cancels_with_its_call(run, caller):
            await checkpoint()  # a cancellation that has waited for the start is raised here
            return {"resultType": "task", **self._fields(await run.info(), "working")}

    # -- listening -------------------------------------------------------------------------

    async def has(self, context: _Context, task_id: str) -> bool:
        """Return True if the caller has such a task."""
        return await self._info(context, task_id) is not None

    async def states(self, context: _Context, task_id: str) -> AsyncGenerator[dict[str, Any]]:
        """Yield the state of a task now, and each other one that it gets, until it has ended."""
        before: Any = None
        with self._engine.store.wakeups.listen(task_id) as wake:
            while (info := await self._info(context, task_id)) is not None:
                shown = await self._shown(context, self._run(info), info)
                state = (shown["status"], [*shown.get("inputRequests", ())])
                if state != before:
                    yield shown
                if info.status == "closed":
                    return
                before = state
                await wake.wait(self._engine.poll_s)

    # -- requests --------------------------------------------------------------------------

    async def _get(self, context: _Context, params: TaskParams) -> dict[str, Any]:
        run, info = await self._find(context, params)
        return {**_COMPLETE, **await self._shown(context, run, info)}

    async def _update(self, context: _Context, params: UpdateTaskParams) -> dict[str, Any]:
        run, info = await self._find(context, params)
        if info.status == "closed":
            return {**_COMPLETE}
        caller = self._caller(context.request)
        calls = self._may_decide(context, await _waiting_calls(run), info)
        open_questions = await self._questions(run, info)
        questions = {key: _question_of(call) for key, call in calls.items()}
        questions |= {key: _QUESTION.validate_python(each) for key, each in open_questions.items()}
        answers = _answers_to(questions, params.input_responses)
        for key in calls.keys() & answers.keys():
            await self._decide(calls[key], answers[key], caller)
        to_tool = {key: answer for key, answer in answers.items() if key in open_questions}
        if to_tool:
            data = {"answers": dump_answers(to_tool)}
            await self._engine.signal(run.id, INPUT_PROVIDED, data, user=caller.user)
        return {**_COMPLETE}

    async def _cancel(self, context: _Context, params: TaskParams) -> dict[str, Any]:
        run, _ = await self._find(context, params)
        await run.cancel("its client has cancelled it", user=self._caller(context.request).user)
        return {**_COMPLETE}

    async def _find(self, context: _Context, params: TaskParams) -> tuple[Run[Any], RunInfo]:
        """Return the run of a task.

        Raises:
            MCPError: the client takes no tasks, a header names another task, or the caller has
                no such task.
        """
        check_takes_tasks(context)
        _check_header(context, params.task_id)
        info = await self._info(context, params.task_id)
        if info is None:
            raise MCPError(types.INVALID_PARAMS, "there is no such task")
        return self._run(info), info

    async def _info(self, context: _Context, task_id: str) -> RunInfo | None:
        """Return the run of a task, None if the caller has no such task."""
        plausible = len(task_id) <= _MAX_ID_CHARS and task_id.isascii() and task_id.isprintable()
        info = await self._engine.store.run(task_id) if plausible else None
        if info is None or not self._is_task_of(info, self._caller(context.request)):
            return None
        return info

    def _run(self, info: RunInfo) -> Run[Any]:
        offered = self._by_algorithm[info.algorithm]
        agent = offered.agent or self._engine.agents[offered.algorithm]
        return self._engine.run(info.run_id, agent=agent)

    def _is_task_of(self, info: RunInfo, caller: Caller) -> bool:
        if (info.tenant, info.user) != (caller.tenant, caller.user):
            return False
        if info.algorithm not in self._by_algorithm or info.parent_id is not None:
            return False
        if info.status == "open" or self._ttl_s is None:
            return True
        return self._engine.clock.now() < info.created_at + timedelta(seconds=self._ttl_s)

    # -- what clients see ------------------------------------------------------------------

    async def _shown(self, context: _Context, run: Run[Any], info: RunInfo) -> dict[str, Any]:
        """Return a task as its client sees it now."""
        if info.status == "closed":
            return await self._ended(run, info)
        waiting = await _waiting_calls(run)
        calls = self._may_decide(context, waiting, info)
        requests: dict[str, Any] = dict(await self._questions(run, info))
        requests |= {key: _question_of(call).model_dump(**_WIRE) for key, call in calls.items()}
        if requests:
            return self._fields(info, "input_required") | {"inputRequests": requests}
        shown = self._fields(info, "working")
        if waiting:
            names = ", ".join(sorted({each.name for each in waiting}))
            shown["statusMessage"] = f"waits for a person to approve {names}"
        return shown

    async def _ended(self, run: Run[Any], info: RunInfo) -> dict[str, Any]:
        if info.outcome == "CANCELLED":
            return self._fields(info, "cancelled")
        offered = self._by_algorithm[info.algorithm]
        try:
            if isinstance(offered.agent, TaskTool):
                stored = await self._stored_result(run)
            else:
                surface = self._surfaces[offered.name]
                stored = {"result": _agent_result(await run.result(wait=False), surface)}
        except LibError:  # an output that no longer fits, or a run that was erased meanwhile
            message = "the result of the task cannot be read"
            stored = {"error": {"code": types.INTERNAL_ERROR, "message": message}}
        if "error" in stored:
            message = {"statusMessage": stored["error"]["message"]}
            return self._fields(info, "failed") | message | {"error": stored["error"]}
        return self._fields(info, "completed") | {"result": stored["result"]}

    async def _stored_result(self, run: Run[Any]) -> dict[str, Any]:
        """Return the result or the error that a call has left in its log."""
        result = await self._engine.run(run.id).result(wait=False)
        if result.text:
            stored: dict[str, Any] = parse(result.text)
            return stored
        return {"result": _agent_result(result, None)}

    def _may_decide(
        self, context: _Context, waiting: Sequence[WaitingCall], info: RunInfo
    ) -> dict[str, WaitingCall]:
        """Return the calls that the person behind this client may decide about, by key."""
        own = isinstance(self._by_algorithm[info.algorithm].agent, TaskTool)
        found = context.session.client_capabilities
        can_ask = found is not None and found.elicitation is not None
        if not can_ask or not (own or self._caller(context.request).approves):
            return {}
        return {digest(each.run_id, each.key, each.since.isoformat()): each for each in waiting}

    async def _questions(self, run: Run[Any], info: RunInfo) -> Mapping[str, Mapping[str, Any]]:
        """Return the questions of a tool, as JSON, by key."""
        if not isinstance(self._by_algorithm[info.algorithm].agent, TaskTool):
            return {}
        loop: CallState = (await run.state()).loop
        return loop.questions

    async def _decide(self, call: WaitingCall, answer: types.InputResponse, caller: Caller) -> None:
        run = self._engine.run(call.run_id)
        decide = run.approve if is_approved(answer) else run.deny
        with suppress(NotPending):  # another decision was first
            await decide(call.key, user=caller.user)

    def _fields(self, info: RunInfo, status: TaskStatus) -> dict[str, Any]:
        return {
            "taskId": info.run_id,
            "status": status,
            "createdAt": _timestamp(info.created_at),
            "lastUpdatedAt": _timestamp(info.updated_at),
            "ttlMs": None if self._ttl_s is None else round(self._ttl_s * 1000),
            "pollIntervalMs": round(self._poll_s * 1000),
        }


def _agent_result(result: Result[Any], surface: ToolSurface | None) -> dict[str, Any]:
    """Return the end of a run as the result of the call that it was."""
    try:
        value = answer_of(result)
        shown = failure("there is none") if surface is None else surface.result(value, legacy=False)
    except ToolError as error:
        shown = failure(error.message)
    return shown.model_dump(**_WIRE)


async def _waiting_calls(run: Run[Any]) -> Sequence[WaitingCall]:
    """Return the calls of a run, and of those that it has started, that wait for a person."""
    waiting = (await run.result(wait=False)).waiting_for
    return () if waiting is None else waiting.approvals


def _question_of(call: WaitingCall) -> types.ElicitRequest:
    return approval_question(call.name, call.arguments)


def _answers_to(
    questions: Mapping[str, types.InputRequest], responses: Mapping[str, Any]
) -> dict[str, types.InputResponse]:
    """Return the answers to open questions.

    Raises:
        MCPError: one does not fit its question; then none counts.
    """
    try:
        answers = read_answers({key: responses[key] for key in questions if key in responses})
    except ValidationError:
        raise MCPError(types.INVALID_PARAMS, "a response is none to its request") from None
    if not all(fits(answer, questions[key]) for key, answer in answers.items()):
        raise MCPError(types.INVALID_PARAMS, "a response does not fit its request")
    return answers


def check_takes_tasks(context: _Context) -> None:
    """Refuse a client that takes no tasks.

    Raises:
        MCPError: see above.
    """
    if context.protocol_version not in MODERN_VERSIONS:
        raise MCPError(types.METHOD_NOT_FOUND, "Method not found")
    if not takes_tasks(context):
        raise tasks_required()


def tasks_required() -> MCPError:
    """Return the error for a client that would have to take tasks."""
    data = types.MissingRequiredClientCapabilityErrorData(
        required_capabilities=types.ClientCapabilities(extensions={TASKS: {}})
    )
    return MCPError(
        types.MISSING_REQUIRED_CLIENT_CAPABILITY,
        "the client does not take tasks",
        data.model_dump(by_alias=True, exclude_none=True),
    )


def _check_header(context: _Context, task_id: str) -> None:
    """Refuse an HTTP request whose header, by which it may have been routed, names another task.

    Raises:
        MCPError: see above.
    """
    headers = getattr(context.request, "headers", None)
    if headers is not None and decode_header_value(headers.get(MCP_NAME_HEADER)) != task_id:
        message = f"{MCP_NAME_HEADER} does not match the taskId of the body"
        raise MCPError(types.HEADER_MISMATCH, message)


def _timestamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

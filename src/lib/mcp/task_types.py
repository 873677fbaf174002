"""Requests and results of the extension for tasks, which servers and clients share.

Source: modelcontextprotocol.io, extension `io.modelcontextprotocol/tasks`, 2026-07-28.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from mcp_types import Request, RequestParams, Result

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The name of the extension."""

IDEMPOTENCY_KEY: Final = "lib.agents/idempotency-key"
"""The key in a call's `_meta` under which a server finds the same text when it is repeated."""

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]


class TaskParams(RequestParams):
    """Names a task."""

    task_id: str


class UpdateTaskParams(TaskParams):
    """Names a task and answers questions of it, by their keys."""

    input_responses: dict[str, Any]


class _TaskFields(Result):
    task_id: str
    status: TaskStatus
    status_message: str | None = None
    ttl_ms: int | None = None
    poll_interval_ms: int | None = None


class CreateTaskResult(_TaskFields):
    """The answer to a call that goes on as a task."""

    result_type: Literal["task"]


class GetTaskResult(_TaskFields):
    """The state of a task.

    Attributes:
        input_requests: the questions of a task that needs input, by key.
        result: of a completed task.
        error: of a failed one.
    """

    result_type: Literal["complete"] = "complete"
    input_requests: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None


class GetTaskRequest(Request[TaskParams, Literal["tasks/get"]]):
    """Asks for the state of a task."""

    method: Literal["tasks/get"] = "tasks/get"
    name_param: ClassVar[str | None] = "taskId"
    params: TaskParams


class UpdateTaskRequest(Request[UpdateTaskParams, Literal["tasks/update"]]):
    """Answers questions of a task."""

    method: Literal["tasks/update"] = "tasks/update"
    name_param: ClassVar[str | None] = "taskId"
    params: UpdateTaskParams


class CancelTaskRequest(Request[TaskParams, Literal["tasks/cancel"]]):
    """Asks for the end of a task."""

    method: Literal["tasks/cancel"] = "tasks/cancel"
    name_param: ClassVar[str | None] = "taskId"
    params: TaskParams

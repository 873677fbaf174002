"""`subscriptions/listen`: the states of tasks as they change, for clients that do not poll.

The lists of this server never change, so that there is nothing else to listen to.

Source: modelcontextprotocol.io, subscriptions and the extension for tasks, 2026-07-28.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from lib._util.tasks import cancelled
from lib.mcp.sdk import (
    MODERN_VERSIONS,
    SUBSCRIPTION_ID_META_KEY,
    MCPError,
    RequestContext,
    Server,
    types,
)
from lib.mcp.tasks import Tasks, check_takes_tasks

_Context = RequestContext[Any, Any]
_MAX_TASKS: Final = 64
_TASK_IDS: Final = TypeAdapter[list[str]](Annotated[list[str], Field(max_length=_MAX_TASKS)])


class _TaskNotification(types.Notification[dict[str, Any], Literal["notifications/tasks"]]):
    """The state of a task."""

    method: Literal["notifications/tasks"] = "notifications/tasks"


class Listening:
    """Answers `subscriptions/listen` for the tasks of a server."""

    def __init__(self, tasks: Tasks, protocol: Server[Any]) -> None:
        """Take the tasks, and answer requests of the server."""
        self._tasks, self._protocol = tasks, protocol
        params = types.SubscriptionsListenRequestParams
        protocol.add_request_handler("subscriptions/listen", params, self._listen)
        protocol.add_request_handler("server/discover", types.RequestParams, self._discover)

    async def _discover(
        self, context: _Context, _: types.RequestParams | None
    ) -> types.DiscoverResult:
        """Return what the server can do; the SDK takes listening for lists that change."""
        found = self._protocol.get_capabilities(protocol_version=context.protocol_version)
        never = {"list_changed": False}
        unchanging = {
            name: part.model_copy(update=never)
            for name in ("tools", "prompts", "resources")
            if (part := getattr(found, name)) is not None
        }
        if found.resources is not None:
            update = {**never, "subscribe": False}
            unchanging["resources"] = found.resources.model_copy(update=update)
        return types.DiscoverResult(
            supported_versions=list(MODERN_VERSIONS),
            capabilities=found.model_copy(update=unchanging),
            instructions=self._protocol.instructions,
        )

    async def _listen(
        self, context: _Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Acknowledge, and send the states of tasks until all have ended or the server stops."""
        wanted = _task_ids(params.notifications)
        if wanted:
            check_takes_tasks(context)
        own = [each for each in wanted if await self._tasks.has(context, each)]
        meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: context.request_id}
        honoured = {"taskIds": own} if own else {}
        acknowledged = types.SubscriptionsAcknowledgedNotification(
            params=types.SubscriptionsAcknowledgedNotificationParams(
                notifications=types.SubscriptionFilter.model_validate(honoured), _meta=meta
            )
        )
        await context.session.send_notification(acknowledged, context.request_id)
        stop = asyncio.create_task(self._tasks.stopped(context), name="lib.mcp.stop")
        sending = asyncio.create_task(self._send_all(context, own, meta), name="lib.mcp.listen")
        try:
            await asyncio.wait([sending, stop], return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            await cancelled(sending)
            await cancelled(stop)
        return types.SubscriptionsListenResult(_meta=meta)

    async def _send_all(
        self, context: _Context, task_ids: Iterable[str], meta: Mapping[str, Any]
    ) -> None:
        async with asyncio.TaskGroup() as group:
            for each in task_ids:
                group.create_task(self._send(context, each, meta))

    async def _send(self, context: _Context, task_id: str, meta: Mapping[str, Any]) -> None:
        async with aclosing(self._tasks.states(context, task_id)) as states:
            async for state in states:
                params = {**state, "_meta": dict(meta)}
                notification: Any = _TaskNotification(params=params)
                await context.session.send_notification(notification, context.request_id)


def _task_ids(wanted: types.SubscriptionFilter) -> Sequence[str]:
    """Return the tasks that a client wants to listen to.

    Raises:
        MCPError: it names them otherwise than as a list of texts, or too many.
    """
    found: Any = (wanted.model_extra or {}).get("taskIds", [])
    try:
        return list(dict.fromkeys(_TASK_IDS.validate_python(found, strict=True)))
    except ValidationError:
        message = f"expected at most {_MAX_TASKS} texts as taskIds"
        raise MCPError(types.INVALID_PARAMS, message) from None

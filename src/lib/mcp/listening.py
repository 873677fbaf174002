"""Changes, and the states of tasks, for clients that listen to them.

Clients of the present protocol send `subscriptions/listen`, over any transport. Older ones hear of
lists without a request, and of resources after `resources/subscribe`: on a pipe, or over HTTP on a
stream that they open in their session.

Source: modelcontextprotocol.io, subscriptions and the extension for tasks, 2026-07-28; resources,
2025-11-25.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from lib._util.tasks import cancelled
from lib.mcp.changes import Change, ChangeListener, Changes
from lib.mcp.offered import Caller
from lib.mcp.sdk import (
    MODERN_VERSIONS,
    SUBSCRIPTION_ID_META_KEY,
    MCPError,
    RequestContext,
    Server,
    types,
)
from lib.mcp.sessions import LegacySession
from lib.mcp.subscriptions import SessionStream, Subscriptions, check_subscriptions
from lib.mcp.tasks import Tasks, check_takes_tasks

_Context = RequestContext[Any, Any]
_MAX_TASKS: Final = 64
_MAX_URIS: Final = 1_000
_TASK_IDS: Final = TypeAdapter[list[str]](Annotated[list[str], Field(max_length=_MAX_TASKS)])


class _TaskNotification(types.Notification[dict[str, Any], Literal["notifications/tasks"]]):
    """The state of a task."""

    method: Literal["notifications/tasks"] = "notifications/tasks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Sources of what clients of a server can listen to.

    Attributes:
        changes: of its lists and resources.
        lists: the lists that change.
        is_watched: returns True for the URI of a watched resource.
        watches: True if there is such a resource.
        tasks: its tasks; None without any.
        caller: returns the caller of a request.
    """

    changes: Changes
    lists: frozenset[str]
    is_watched: Callable[[str], bool]
    watches: bool
    tasks: Tasks | None
    caller: Callable[[Any], Caller]

    def capabilities(self, found: types.ServerCapabilities) -> types.ServerCapabilities:
        """Return capabilities that say what changes; the SDK goes by what is answered."""
        parts: dict[str, Any] = {
            name: part.model_copy(update={"list_changed": name in self.lists})
            for name in ("tools", "prompts", "resources")
            if (part := getattr(found, name)) is not None
        }
        if "resources" in parts:
            subscribe = {"subscribe": self.watches}
            parts["resources"] = parts["resources"].model_copy(update=subscribe)
        return found.model_copy(update=parts)


class Listening:
    """Answers `subscriptions/listen`."""

    def __init__(self, sources: Sources, protocol: Server[Any]) -> None:
        """Take what there is to listen to, and answer requests of the server."""
        self._sources, self._protocol = sources, protocol
        params = types.SubscriptionsListenRequestParams
        protocol.add_request_handler("subscriptions/listen", params, self._listen)
        protocol.add_request_handler("server/discover", types.RequestParams, self._discover)

    async def _discover(
        self, context: _Context, _: types.RequestParams | None
    ) -> types.DiscoverResult:
        found = self._protocol.get_capabilities(protocol_version=context.protocol_version)
        return types.DiscoverResult(
            supported_versions=list(MODERN_VERSIONS),
            capabilities=self._sources.capabilities(found),
            instructions=self._protocol.instructions,
        )

    async def _listen(
        self, context: _Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Acknowledge, and send what happens until nothing more can, or the server stops."""
        task_ids = await self._own_tasks(context, params.notifications)
        kinds, uris = self._honoured(params.notifications)

        tenant = self._sources.caller(context.request).tenant

        def wanted(change: Change) -> bool:
            is_own = change.tenant in (None, tenant)
            return is_own and (change.kind in kinds or change.uri in uris)

        meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: context.request_id}
        async with self._sources.changes.listen(wanted) as listener:
            await self._acknowledge(context, meta, task_ids, kinds, uris)
            stop = asyncio.create_task(self._stopped(context), name="lib.mcp.stop")
            heard = listener if kinds or uris else None
            send = self._send_all(context, task_ids, heard, meta)
            sending = asyncio.create_task(send, name="lib.mcp.listen")
            try:
                await asyncio.wait([sending, stop], return_when=asyncio.FIRST_COMPLETED)
                if sending.done():
                    sending.result()
            finally:
                await cancelled(sending)
                await cancelled(stop)
        return types.SubscriptionsListenResult(_meta=meta)

    async def _own_tasks(self, context: _Context, wanted: types.SubscriptionFilter) -> list[str]:
        task_ids = _task_ids(wanted)
        if task_ids:
            check_takes_tasks(context)
        tasks = self._sources.tasks
        return [each for each in task_ids if tasks is not None and await tasks.has(context, each)]

    def _honoured(self, wanted: types.SubscriptionFilter) -> tuple[list[str], list[str]]:
        """Return the lists and the URIs of resources of a wish that can change.

        Raises:
            MCPError: there are too many.
        """
        uris = list(dict.fromkeys(wanted.resource_subscriptions or ()))
        if len(uris) > _MAX_URIS:
            message = f"expected at most {_MAX_URIS} resources"
            raise MCPError(types.INVALID_PARAMS, message)
        kinds = [each for each in self._sources.lists if getattr(wanted, f"{each}_list_changed")]
        return kinds, [each for each in uris if self._sources.is_watched(each)]

    async def _acknowledge(
        self,
        context: _Context,
        meta: dict[str, Any],
        task_ids: Sequence[str],
        kinds: Sequence[str],
        uris: Sequence[str],
    ) -> None:
        honoured: dict[str, Any] = {f"{each}_list_changed": True for each in kinds}
        if uris:
            honoured["resource_subscriptions"] = list(uris)
        if task_ids:
            honoured["taskIds"] = list(task_ids)
        acknowledged = types.SubscriptionsAcknowledgedNotification(
            params=types.SubscriptionsAcknowledgedNotificationParams(
                notifications=types.SubscriptionFilter.model_validate(honoured), _meta=meta
            )
        )
        await context.session.send_notification(acknowledged, context.request_id)

    async def _stopped(self, context: _Context) -> None:
        await (self._sources.caller(context.request).stopping or asyncio.Event()).wait()

    async def _send_all(
        self,
        context: _Context,
        task_ids: Iterable[str],
        listener: ChangeListener | None,
        meta: dict[str, Any],
    ) -> None:
        async with asyncio.TaskGroup() as group:
            for each in task_ids:
                group.create_task(self._send_states(context, each, meta))
            while listener is not None:
                for change in await listener.next():
                    notification = change.notification(meta)
                    await context.session.send_notification(notification, context.request_id)

    async def _send_states(self, context: _Context, task_id: str, meta: Mapping[str, Any]) -> None:
        assert self._sources.tasks is not None  # noqa: S101 - one of them is to be followed
        async with aclosing(self._sources.tasks.states(context, task_id)) as states:
            async for state in states:
                params = {**state, "_meta": dict(meta)}
                notification: Any = _TaskNotification(params=params)
                await context.session.send_notification(notification, context.request_id)


@dataclass(eq=False, slots=True)
class _Pipe:
    """A client of 2025-11-25 or before on a pipe.

    Attributes:
        client: what it has said of itself, the same object in all of its requests.
        uris: the resources that it has subscribed to.
    """

    client: types.InitializeRequestParams | None
    uris: set[str] = field(default_factory=set[str])


class LegacyListening:
    """Tells clients of 2025-11-25 and before of changes; those on pipes until `close`."""

    def __init__(
        self, sources: Sources, subscriptions: Subscriptions, protocol: Server[Any]
    ) -> None:
        """Take what there is to listen to, and answer requests of the server.

        Args:
            sources: see above.
            subscriptions: of clients over HTTP.
            protocol: the server.
        """
        self._sources, self._subscriptions = sources, subscriptions
        self._pipes: dict[int, _Pipe] = {}
        self._following = set[asyncio.Task[None]]()
        initialized = "notifications/initialized"
        protocol.add_notification_handler(initialized, types.NotificationParams, self._begin)
        if sources.watches:
            subscribe, unsubscribe = types.SubscribeRequestParams, types.UnsubscribeRequestParams
            protocol.add_request_handler("resources/subscribe", subscribe, self._subscribe)
            protocol.add_request_handler("resources/unsubscribe", unsubscribe, self._unsubscribe)

    async def close(self) -> None:
        """Tell nothing more."""
        for each in [*self._following]:
            await cancelled(each)

    @asynccontextmanager
    async def stream(
        self, session: LegacySession, tenant: str | None
    ) -> AsyncGenerator[SessionStream]:
        """Yield what a session over HTTP hears from now on, on its only stream."""

        def wanted(change: Change) -> bool:
            is_own = change.tenant in (None, tenant)
            return is_own and (change.kind in self._sources.lists or change.kind == "resource")

        async with self._subscriptions.stream(session, wanted) as stream:
            yield stream

    async def _begin(self, context: _Context, _: types.NotificationParams) -> None:
        if context.request is not None or context.protocol_version in MODERN_VERSIONS:
            return
        pipe = _Pipe(context.session.client_params)
        self._pipes[id(pipe.client)] = pipe
        task = asyncio.create_task(self._follow(context, pipe), name="lib.mcp.pipe")
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _follow(self, context: _Context, pipe: _Pipe) -> None:
        tenant = self._sources.caller(context.request).tenant

        def wanted(change: Change) -> bool:
            is_own = change.tenant in (None, tenant)
            return is_own and (change.kind in self._sources.lists or change.uri in pipe.uris)

        async with self._sources.changes.listen(wanted) as listener:
            while True:
                for change in await listener.next():
                    await context.session.send_notification(change.notification(None))

    async def _subscribe(
        self, context: _Context, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        client = self._client_of(context)
        check_subscriptions([params.uri])  # before its text is looked at
        if not self._sources.is_watched(params.uri):
            message = "no watched resource has this URI"
            raise MCPError(types.INVALID_PARAMS, message, {"uri": params.uri})
        if isinstance(client, LegacySession):
            await self._subscriptions.subscribe(client, params.uri)
        else:
            check_subscriptions({*client.uris, params.uri})
            client.uris.add(params.uri)
        return types.EmptyResult()

    async def _unsubscribe(
        self, context: _Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        client = self._client_of(context)
        if isinstance(client, LegacySession):
            await self._subscriptions.unsubscribe(client, params.uri)
        else:
            client.uris.discard(params.uri)
        return types.EmptyResult()

    def _client_of(self, context: _Context) -> LegacySession | _Pipe:
        """Return the session over HTTP of a request, or the pipe that it has come on.

        Raises:
            MCPError: it is of neither: its client could not hear of anything.
        """
        session = self._sources.caller(context.request).session
        if session is not None:
            return session
        pipe = self._pipes.get(id(context.session.client_params))
        if context.request is not None or pipe is None:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found")
        return pipe


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

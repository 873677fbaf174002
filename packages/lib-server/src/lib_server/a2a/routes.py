"""The bindings of the protocol: JSON-RPC at `/a2a`, HTTP+JSON below it, and the card.

Source: A2A 1.0, 8 Agent Discovery, 9 JSON-RPC, 11 HTTP+JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.responses import Response
from starlette.types import ASGIApp

from lib_server.a2a.config import CARD_PATH, PATH, VERSION, A2AConfig
from lib_server.a2a.errors import (
    A2AError,
    error_of,
    http_error,
    http_response,
    invalid_params,
    rpc_error,
)
from lib_server.a2a.messages import GetTask, ListTasks, SendMessage, TaskRef
from lib_server.a2a.operations import Events, Operations, no_push
from lib_server.a2a.tasks import Json
from lib_server.bodies import Query
from lib_server.edge.authentication import base_url
from lib_server.other_apis import Streamed, data_event
from lib_server.problems import Problem
from lib_server.routing import JSON, AnyRoute, Call, Route

_A2A_JSON: Final = "application/a2a+json"
_MAX_AGE_S: Final = 300
_NO_STORE: Final = {"cache-control": "no-store"}
M = TypeVar("M", bound=BaseModel)


class A2AObject(BaseModel):
    """An object of the protocol, which says what is in it."""

    model_config = ConfigDict(extra="allow")


class AnyParameters(Query):
    """Parameters of the protocol; others are ignored."""

    model_config = ConfigDict(extra="ignore")


class _Method(NamedTuple):
    """An operation over JSON-RPC: what it takes, and what it does."""

    params: type[BaseModel]
    run: Callable[[Call[Any, Any], Any], Awaitable[Any]]


class _RpcRequest(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    jsonrpc: str
    id: str | int | float | None
    method: str
    params: dict[str, Any] = {}


# -- what both bindings check ----------------------------------------------------------------------


def _check_content(call: Call[Any, Any]) -> None:
    media_type = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in (JSON, _A2A_JSON):
        raise A2AError("CONTENT_TYPE_NOT_SUPPORTED", f"expected {JSON}")


def _check_version(call: Call[Any, Any]) -> None:
    request = call.request
    version = request.headers.get("a2a-version") or request.query_params.get("A2A-Version") or "0.3"
    if version.strip() != VERSION:
        detail = f"expected the header A2A-Version: {VERSION}"
        raise A2AError("VERSION_NOT_SUPPORTED", detail)


def _read(model: type[M], value: Mapping[str, Any]) -> M:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise invalid_params(error) from None


def _streamed(
    call: Call[Any, Any],
    events: Events,
    shape: Callable[[Json], Json],
    failure: Callable[[A2AError | Problem], Json],
) -> ASGIApp:
    async def content() -> AsyncGenerator[bytes]:
        async with aclosing(events):
            async for event in events:
                yield b"" if event is None else data_event(shape(event))

    streamed = Streamed(
        call,
        content(),
        headers={},
        failure=lambda problem: data_event(failure(error_of(problem))),
    )
    return call.services.quotas.counted(call.principal, streamed)


# -- JSON-RPC --------------------------------------------------------------------------------------


class _JsonRpc:
    """`POST /a2a`."""

    def __init__(self, operations: Operations, extended_card: _Method) -> None:
        push = _Method(AnyParameters, _refuse_push)
        self._methods: dict[str, _Method] = {
            "SendMessage": _Method(SendMessage, operations.send),
            "SendStreamingMessage": _Method(SendMessage, operations.stream),
            "SubscribeToTask": _Method(TaskRef, operations.subscribe),
            "GetTask": _Method(GetTask, operations.get),
            "ListTasks": _Method(ListTasks, operations.list),
            "CancelTask": _Method(TaskRef, operations.cancel),
            "GetExtendedAgentCard": extended_card,
            **dict.fromkeys(_PUSH_METHODS, push),
        }

    async def __call__(self, call: Call[Any, Any]) -> ASGIApp:
        """Answer a request."""
        request_id: Any = None
        try:
            _check_content(call)
            request = self._request(await call.request.body())
            request_id = request.id
            _check_version(call)
            method = self._method(request.method)
            result = await method.run(call, _read(method.params, request.params))
        except Exception as error:  # noqa: BLE001 - the boundary of a request; error_of logs it
            return _rpc_failure(request_id, error_of(error))
        envelope = {"jsonrpc": "2.0", "id": request_id}
        if isinstance(result, AsyncGenerator):
            return _streamed(
                call,
                cast("Events", result),
                lambda event: {**envelope, "result": event},
                lambda error: {**envelope, "error": rpc_error(error)},
            )
        return _json({**envelope, "result": result})

    def _method(self, name: str) -> _Method:
        if name not in self._methods:
            raise A2AError("METHOD_NOT_FOUND", "the protocol has no such method")
        return self._methods[name]

    def _request(self, body: bytes) -> _RpcRequest:
        try:
            return _RpcRequest.model_validate_json(body)
        except ValidationError as error:
            found = invalid_params(error)
            if found.reason == "PARSE_ERROR":
                raise found from None
            raise A2AError("INVALID_REQUEST", f"expected a request of JSON-RPC: {found}") from None


def _rpc_failure(request_id: Any, error: A2AError | Problem) -> Response:
    body = {"jsonrpc": "2.0", "id": request_id, "error": rpc_error(error)}
    if isinstance(error, Problem):
        return _json(body, error.status, error.headers)
    return _json(body)


def _json(body: Json, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    content = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return Response(content, status, {**_NO_STORE, **(headers or {})}, media_type=JSON)


# -- HTTP+JSON -------------------------------------------------------------------------------------


def _rest(
    params: type[M],
    run: Callable[[Call[Any, Any], M], Awaitable[Any]],
    *,
    body: bool = False,
) -> Callable[[Call[Any, Any]], Awaitable[ASGIApp]]:
    """Return the handler of an operation.

    Args:
        params: what it takes.
        run: does it.
        body: read the parameters from the body; else from the query. The path has its own.
    """

    async def handle(call: Call[Any, Any]) -> ASGIApp:
        try:
            _check_version(call)
            values: Any = dict(call.request.query_params)
            if body:
                _check_content(call)
                values = _object(await call.request.body())
            if "task_id" in call.request.path_params:
                values["id"] = call.path("task_id")
            result = await run(call, _read(params, values))
        except Exception as error:  # noqa: BLE001 - the boundary of a request; error_of logs it
            return http_response(error_of(error))
        if isinstance(result, AsyncGenerator):
            return _streamed(call, cast("Events", result), lambda event: event, http_error)
        answer = _json(result)
        if _A2A_JSON in call.request.headers.get("accept", ""):
            answer.headers["content-type"] = _A2A_JSON
        return answer

    return handle


def _object(body: bytes) -> Json:
    try:
        return A2AObject.model_validate_json(body or b"{}").model_dump()
    except ValidationError as error:
        raise invalid_params(error) from None


async def _refuse_push(_call: Call[Any, Any], _wanted: Any) -> Json:
    raise no_push()


# -- the card --------------------------------------------------------------------------------------


class _Card:
    """The card of the agent, as any caller gets it, and as callers with credentials do."""

    def __init__(self, config: A2AConfig, *, secured: bool, since: datetime) -> None:
        self._config = config
        self._secured = secured
        self._since = format_datetime(since.astimezone(UTC), usegmt=True)

    def _card(self, call: Call[Any, Any], *, extended: bool) -> Json:
        agent = self._config.agent_among(call.engine.agents)
        url = base_url(call.request.scope)
        return self._config.card(agent, url, secured=self._secured, extended=extended)

    async def get(self, call: Call[Any, Any]) -> ASGIApp:
        """Answer with the card, or that it has not changed."""
        content = json.dumps(self._card(call, extended=False), ensure_ascii=False)
        etag = f'"{hashlib.sha256(content.encode()).hexdigest()[:32]}"'
        headers = {
            "cache-control": f"public, max-age={_MAX_AGE_S}",
            "etag": etag,
            "last-modified": self._since,
            "vary": "Host",
        }
        if etag in call.request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, 200, headers, media_type=JSON)

    async def extended(self, call: Call[Any, Any], _wanted: Any) -> Json:
        """Return the card with the further skills.

        Raises:
            A2AError: `UNSUPPORTED_OPERATION`: there are none.
        """
        if not self._config.extended_skills:
            raise A2AError("UNSUPPORTED_OPERATION", "the agent has no extended card")
        return self._card(call, extended=True)


# -- the routes ------------------------------------------------------------------------------------

_PUSH: Final = f"{PATH}/tasks/{{task_id}}/pushNotificationConfigs"
_PUSH_METHODS: Final = (
    "CreateTaskPushNotificationConfig",
    "GetTaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs",
    "DeleteTaskPushNotificationConfig",
)
_EVENTS: Final = {"message": "the task, then each change of its state and each piece of its answer"}


def a2a_routes(config: A2AConfig, *, secured: bool, since: datetime) -> list[AnyRoute]:
    """Return the routes by which other agents reach an agent.

    Args:
        config: says which, and how.
        secured: whether the server has an authenticator.
        since: when the card was made.
    """
    operations = Operations(config)
    card = _Card(config, secured=secured, since=since)
    extended = _Method(AnyParameters, card.extended)
    get_card = Route(
        method="GET",
        path=CARD_PATH,
        handler=card.get,
        summary="Read the card of the agent, for other agents",
        tag="a2a",
        right=None,
        query=AnyParameters,
        answers={200: A2AObject, 304: None},
        errors="a2a",
    )
    post, get = partial(_route, "POST"), partial(_route, "GET")
    push = _rest(AnyParameters, _refuse_push)
    task = f"{PATH}/tasks/{{task_id}}"
    subscribe = _rest(TaskRef, operations.subscribe)
    rpc = _JsonRpc(operations, extended)
    return [
        get_card,
        post(PATH, rpc, "Exchange a message over JSON-RPC", streams=True),
        post(f"{PATH}/", rpc, "The same, as some clients write its path", streams=True),
        post(
            f"{PATH}/message:send",
            _rest(SendMessage, operations.send, body=True),
            "Send a message to the agent",
        ),
        post(
            f"{PATH}/message:stream",
            _rest(SendMessage, operations.stream, body=True),
            "Send a message to the agent, and stream what happens",
            streams=True,
        ),
        get(f"{PATH}/tasks", _rest(ListTasks, operations.list), "List tasks"),
        post(f"{task}:cancel", _rest(TaskRef, operations.cancel), "Cancel a task"),
        post(f"{task}:subscribe", subscribe, "Stream what happens in a task", streams=True),
        get(
            f"{task}:subscribe",
            subscribe,
            "Stream what happens in a task, as pages do",
            streams=True,
        ),
        get(f"{task}/pushNotificationConfigs", push, "Refuse to list push notifications"),
        post(f"{task}/pushNotificationConfigs", push, "Refuse to push notifications"),
        get(f"{_PUSH}/{{config_id}}", push, "Refuse to read push notifications"),
        _route("DELETE", f"{_PUSH}/{{config_id}}", push, "Refuse to end push notifications"),
        get(
            f"{PATH}/extendedAgentCard",
            _rest(AnyParameters, card.extended),
            "Read the card of the agent with all that callers with credentials may use",
        ),
        get(task, _rest(GetTask, operations.get), "Look at a task"),
    ]


def _route(
    method: str,
    path: str,
    handler: Callable[[Call[Any, Any]], Awaitable[ASGIApp]],
    summary: str,
    *,
    streams: bool = False,
) -> AnyRoute:
    return Route(
        method=method,
        path=path,
        handler=handler,
        summary=summary,
        tag="a2a",
        right="any",
        query=AnyParameters,
        content=JSON if method == "POST" else "",
        answers={200: A2AObject},
        problems=_PROBLEMS,
        events=_EVENTS if streams else {},
        errors="a2a",
    )


_PROBLEMS: Final = [
    "budget_spent",
    "draining",
    "forbidden",
    "malformed",
    "method_not_allowed",
    "not_found",
    "open_runs_cap",
    "already_decided",
    "stream_cap",
    "too_large",
    "unsupported_media_type",
]

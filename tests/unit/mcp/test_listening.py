"""Clients that listen to tasks get their states, and none of another caller's."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.extension import ClientExtension, NotificationBinding
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequest,
    CallToolRequestParams,
    SubscriptionFilter,
    SubscriptionsListenRequest,
    SubscriptionsListenRequestParams,
)
from pydantic import BaseModel, ConfigDict, TypeAdapter

from lib import Agent
from lib.llm import FunctionClient
from lib.mcp import Caller, MCPToolServer, resource
from lib.mcp.task_types import TASKS

RAW: Any = TypeAdapter(dict[str, Any])  # results as they are on the wire
ID_KEY = "io.modelcontextprotocol/subscriptionId"


class AnyParams(BaseModel):
    model_config = ConfigDict(extra="allow")


class Observer(ClientExtension):
    """Takes tasks, and keeps what it hears of them."""

    identifier = TASKS

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.hears = asyncio.Event()

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        async def take(params: AnyParams) -> None:
            self.heard.append(params.model_dump())
            self.hears.set()

        return [
            NotificationBinding(method="notifications/tasks", params_type=AnyParams, handler=take)
        ]


class Listener:
    """A client that listens."""

    def __init__(self, client: Client, observer: Observer) -> None:
        self.client, self.observer = client, observer

    async def start(self) -> str:
        params = CallToolRequestParams(name="clerk", arguments={"task": "hello"})
        request = CallToolRequest(params=params)
        return str((await self.client.session.send_request(request, RAW))["taskId"])

    async def listen(self, **notifications: Any) -> dict[str, Any]:
        wanted = SubscriptionFilter.model_validate(notifications)
        params = SubscriptionsListenRequestParams(notifications=wanted)
        request = SubscriptionsListenRequest(params=params)
        return await self.client.session.send_request(request, RAW)


@asynccontextmanager
async def connected(server: MCPToolServer, *, tasks: bool = True) -> AsyncGenerator[Listener]:
    observer = Observer()
    extensions = [observer] if tasks else []
    async with server, Client(server.protocol, extensions=extensions) as client:
        yield Listener(client, observer)


def greet(_: Any) -> str:
    return "Hello."


def serving(answer: Any = greet, **options: Any) -> MCPToolServer:
    return MCPToolServer([Agent(FunctionClient(answer), name="clerk")], **options)


async def test_a_listener_hears_how_its_tasks_end() -> None:
    go = asyncio.Event()

    async def answer(_: Any) -> str:
        await go.wait()
        return "Hello."

    async with connected(serving(answer)) as listener:
        task_id = await listener.start()
        listening = asyncio.create_task(listener.listen(taskIds=[task_id, "0" * 32, task_id]))
        await listener.observer.hears.wait()
        go.set()
        ended = await listening
        heard = listener.observer.heard

    assert [(each["taskId"], each["status"]) for each in heard] == [
        (task_id, "working"),
        (task_id, "completed"),
    ]
    assert heard[-1]["result"]["content"][0]["text"] == "Hello."
    assert heard[-1]["_meta"][ID_KEY] == ended["_meta"][ID_KEY]


async def test_a_listener_hears_nothing_of_foreign_tasks() -> None:
    callers = [Caller(tenant="acme")]

    def caller(_: Any) -> Caller:
        return callers[-1]

    async with connected(serving(caller=caller)) as listener:
        task_id = await listener.start()
        callers.append(Caller(tenant="umbrella"))
        await listener.listen(taskIds=[task_id])

        assert listener.observer.heard == []


async def test_there_is_nothing_else_to_listen_to() -> None:
    @resource("orders://7")
    def order() -> str:
        """An order."""
        return "7"

    async with connected(serving(resources=[order])) as listener:
        await listener.listen(toolsListChanged=True, resourceSubscriptions=["orders://7"])
        capabilities = listener.client.server_capabilities

    assert capabilities.tools is not None
    assert capabilities.resources is not None
    assert (capabilities.tools.list_changed, capabilities.resources.subscribe) == (False, False)


@pytest.mark.parametrize("wanted", ["x", [7], {"a": 1}, ["x"] * 65])
async def test_what_names_no_tasks_is_refused(wanted: Any) -> None:
    async with connected(serving()) as listener:
        with pytest.raises(MCPError) as caught:
            await listener.listen(taskIds=wanted)

    assert caught.value.code == INVALID_PARAMS


async def test_a_client_that_takes_no_tasks_cannot_listen_to_them() -> None:
    async with connected(serving(), tasks=False) as listener:
        with pytest.raises(MCPError) as caught:
            await listener.listen(taskIds=["0" * 32])

    assert caught.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY


async def test_listening_ends_with_the_server() -> None:
    stopping = asyncio.Event()

    async def hang(_: Any) -> str:
        await asyncio.Event().wait()
        return ""

    def caller(_: Any) -> Caller:
        return Caller(stopping=stopping)

    async with connected(serving(hang, caller=caller)) as listener:
        task_id = await listener.start()
        listening = asyncio.create_task(listener.listen(taskIds=[task_id]))
        await listener.observer.hears.wait()
        stopping.set()
        ended = await listening

    assert ID_KEY in ended["_meta"]

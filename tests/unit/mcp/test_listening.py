"""Clients that listen to tasks get their states, and none of another caller's."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from mcp.client import Client
from mcp.client.extension import ClientExtension, NotificationBinding
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequest,
    CallToolRequestParams,
    EmptyResult,
    SubscribeRequest,
    SubscribeRequestParams,
    SubscriptionFilter,
    SubscriptionsListenRequest,
    SubscriptionsListenRequestParams,
    UnsubscribeRequest,
    UnsubscribeRequestParams,
)
from pydantic import BaseModel, ConfigDict, TypeAdapter

from lib import Agent, Engine, tool
from lib.events import MemoryEventStore
from lib.llm import FunctionClient
from lib.mcp import Caller, MCPToolServer, prompt, resource
from lib.mcp.task_types import TASKS
from lib.testing.clock import ManualClock

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


@resource("orders://{order}", watched=True)
def order_page(order: int) -> str:
    """An order."""
    return f"{order}"


@resource("about:shop")
def about() -> str:
    """A page that never changes."""
    return "a shop"


@tool(effects="none")
async def late() -> str:
    """Come later."""
    return "here"


@prompt
def greeting() -> str:
    """Greet."""
    return "Hello."


class Shop:
    """A server that changes, and what its client hears of it."""

    def __init__(self, **options: Any) -> None:
        self.heard = asyncio.Queue[Any]()
        resources = [order_page, about]
        self.server = MCPToolServer([], resources=resources, lists_change=True, **options)

    async def _take(self, message: Any) -> None:
        if not isinstance(message, Exception):
            params = message.params
            uri = getattr(params, "uri", None)
            await self.heard.put((message.method.removeprefix("notifications/"), uri))

    @asynccontextmanager
    async def client(self, mode: str) -> AsyncGenerator[Client]:
        client = Client(self.server.protocol, mode=mode, message_handler=self._take)
        async with self.server, client:
            yield client

    async def change_everything(self) -> None:
        self.server.add(late, greeting)
        self.server.remove("about")
        await self.server.resource_updated("orders://7")
        await self.server.resource_updated("orders://8")


async def request(client: Client, request_type: Any, params: Any) -> Any:
    return await client.session.send_request(request_type(params=params), EmptyResult)


async def test_a_client_hears_of_the_changes_that_it_wants_and_of_no_other() -> None:
    shop = Shop()
    async with (
        shop.client("auto") as client,
        client.listen(
            tools_list_changed=True, resource_subscriptions=["orders://7", "about:shop"]
        ) as subscription,
    ):
        await shop.change_everything()
        heard = [await anext(subscription) for _ in range(2)]
        tools = await client.list_tools()

    assert [type(each).__name__ for each in heard] == ["ToolsListChanged", "ResourceUpdated"]
    assert getattr(heard[1], "uri", None) == "orders://7"
    assert [each.name for each in tools.tools] == ["late"]


async def test_an_older_client_on_a_pipe_hears_of_lists_and_of_what_it_has_subscribed_to() -> None:
    shop = Shop()
    async with shop.client("legacy") as client:
        await request(client, SubscribeRequest, SubscribeRequestParams(uri="orders://7"))
        await request(client, SubscribeRequest, SubscribeRequestParams(uri="orders://8"))
        await request(client, UnsubscribeRequest, UnsubscribeRequestParams(uri="orders://8"))
        with pytest.raises(MCPError, match="no watched resource"):
            await request(client, SubscribeRequest, SubscribeRequestParams(uri="about:shop"))
        await shop.change_everything()
        heard = [await shop.heard.get() for _ in range(4)]
        prompts = await client.list_prompts()

    assert heard == [
        ("tools/list_changed", None),
        ("prompts/list_changed", None),
        ("resources/list_changed", None),
        ("resources/updated", "orders://7"),
    ]
    assert [each.name for each in prompts.prompts] == ["greeting"]


async def test_a_change_that_another_process_tells_is_heard() -> None:
    clock = ManualClock()
    async with Engine(MemoryEventStore(), agents=[Agent(FunctionClient(greet))]) as engine:
        shop, other = Shop(engine=engine, clock=clock), Shop(engine=engine, clock=clock)
        await other.server.resource_updated("orders://6")
        async with (
            shop.client("auto") as client,
            client.listen(resource_subscriptions=["orders://6", "orders://7"]) as subscription,
        ):
            await other.server.resource_updated("orders://7")
            hearing = asyncio.ensure_future(anext(subscription))
            while not hearing.done():
                clock.advance(1)
                await asyncio.sleep(0)  # noqa: TID251 - lets the server look

    assert getattr(hearing.result(), "uri", None) == "orders://7"


async def test_a_change_of_one_tenant_is_heard_by_its_clients_alone() -> None:
    def acme(_: Any) -> Caller:
        return Caller(tenant="acme")

    shop = Shop(caller=acme)
    async with (
        shop.client("auto") as client,
        client.listen(resource_subscriptions=["orders://7", "orders://8"]) as subscription,
    ):
        await shop.server.resource_updated("orders://7", tenant="umbrella")
        await shop.server.resource_updated("orders://8", tenant="acme")
        heard = await anext(subscription)

    assert getattr(heard, "uri", None) == "orders://8"


async def test_what_is_fixed_does_not_change_and_nothing_is_there_twice() -> None:
    fixed, shop = MCPToolServer([late], resources=[about]), Shop().server
    shop.add(late)

    with pytest.raises(RuntimeError, match="lists_change=True"):
        fixed.add(greeting)
    with pytest.raises(RuntimeError, match="lists_change=True"):
        fixed.remove("late")
    with pytest.raises(ValueError, match="watched=True"):
        await fixed.resource_updated("about:shop")
    with pytest.raises(ValueError, match="two have the name 'late'"):
        shop.add(late)
    with pytest.raises(KeyError, match="early"):
        shop.remove("early")
    with pytest.raises(ValueError, match="one of an engine's own"):
        shop.add(cast("Any", Agent(FunctionClient(greet), name="clerk")))


def test_changes_are_announced_to_older_clients() -> None:
    capabilities = Shop().server.initialization_options().capabilities

    assert capabilities.tools is not None
    assert capabilities.resources is not None
    assert capabilities.tools.list_changed
    assert (capabilities.resources.subscribe, capabilities.resources.list_changed) == (True, True)


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

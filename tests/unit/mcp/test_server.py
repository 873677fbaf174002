"""Clients of the SDK see tools, agents, resources and prompts as the protocol has them."""

import asyncio
import base64
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    BlobResourceContents,
    CallToolResult,
    PromptReference,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel, Field

from lib import Agent, Engine, tool
from lib.errors import ToolError
from lib.events import EventStore, MemoryEventStore, RunQuery
from lib.llm import FunctionClient, Image, Message, Reply, Text, ToolCall
from lib.mcp import Caller, MCPToolServer, prompt, resource
from lib.tools import Tool, ToolAnnotations, ToolContext

LEGACY_NOT_FOUND = -32002
MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])


class Order(BaseModel):
    id: int
    state: str


@tool(effects="none")
def find(order: Annotated[int, Field(ge=1)]) -> Order:
    """Find an order."""
    return Order(id=order, state="sent")


@tool
def refund(order: int, context: ToolContext) -> str:
    """Refund an order."""
    for done in (1, 2, 2, 1, 3):  # reports that do not grow are left out
        context.progress(done, 3, f"step {done}")
    return f"refunded {order}"


@tool(effects="none")
async def quick(context: ToolContext) -> None:
    """Report without a pause."""
    for done in range(3):
        context.progress(done, 3)


@tool(effects="none")
async def broken() -> str:
    """Fail."""
    raise RuntimeError("postgres://user:secret@10.0.0.1")


@asynccontextmanager
async def connected(server: MCPToolServer, mode: str = "auto") -> AsyncGenerator[Client]:
    async with server, Client(server.protocol, mode=mode) as client:
        yield client


def text(result: CallToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


def echo(messages: Sequence[Message]) -> str:
    return f"You wrote: {messages[-1].text}"


def clerk(answer: Callable[..., Any] = echo) -> Agent:
    return Agent(FunctionClient(answer), name="clerk", tools=[find])


@MODES
async def test_a_tool_is_listed_with_its_schemas_and_its_effect(mode: str) -> None:
    async with connected(MCPToolServer([find]), mode) as client:
        listed = await client.list_tools()

    assert [each.model_dump(exclude_none=True) for each in listed.tools] == [
        {
            "name": "find",
            "description": "Find an order.",
            "input_schema": {
                "type": "object",
                "properties": {"order": {"type": "integer", "minimum": 1}},
                "required": ["order"],
                "additionalProperties": False,
            },
            "output_schema": {
                "title": "Order",
                "type": "object",
                "properties": {
                    "id": {"title": "Id", "type": "integer"},
                    "state": {"title": "State", "type": "string"},
                },
                "required": ["id", "state"],
            },
            "annotations": {
                "read_only_hint": True,
                "destructive_hint": False,
                "idempotent_hint": True,
                "open_world_hint": False,
            },
        }
    ]


@pytest.mark.parametrize(
    ("options", "hints"),
    [
        ({"effects": "none"}, (True, False, True, False)),
        ({"effects": "idempotent"}, (False, False, True, False)),
        (
            {"effects": "idempotent", "annotations": ToolAnnotations(destructive=True)},
            (False, True, True, False),
        ),
        ({"effects": "once"}, (False, True, False, False)),
        ({"untrusted_output": True}, (False, True, False, True)),
    ],
)
async def test_hints_follow_from_the_declared_effect(
    options: dict[str, Any], hints: tuple[bool, bool, bool, bool]
) -> None:
    served = tool(name="act", description="Act.", **options)(lambda: None)

    async with connected(MCPToolServer([served])) as client:
        found = (await client.list_tools()).tools[0].annotations

    assert found is not None
    assert (
        found.read_only_hint,
        found.destructive_hint,
        found.idempotent_hint,
        found.open_world_hint,
    ) == hints


@MODES
async def test_a_call_returns_text_and_structured_output(mode: str) -> None:
    async with connected(MCPToolServer([find]), mode) as client:
        result = await client.call_tool("find", {"order": 7})

    assert (text(result), result.structured_content, result.is_error) == (
        '{"id":7,"state":"sent"}',
        {"id": 7, "state": "sent"},
        False,
    )


@MODES
async def test_output_that_is_no_object_is_structured_only_for_clients_that_may_have_it(
    mode: str,
) -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    served = tool(name="list", description="List.", output_schema=schema)(lambda: [1, 2])

    async with connected(MCPToolServer([served]), mode) as client:
        listed = (await client.list_tools()).tools[0]
        result = await client.call_tool("list", {})

    modern = mode == "auto"
    assert (listed.output_schema, result.structured_content, text(result)) == (
        schema if modern else None,
        [1, 2] if modern else None,
        "[1,2]",
    )


async def test_output_that_does_not_fit_its_schema_is_a_failed_call() -> None:
    schema = {"type": "object", "required": ["id"]}
    served = tool(name="act", description="Act.", output_schema=schema)(lambda: {"secret": 1})

    async with connected(MCPToolServer([served])) as client:
        result = await client.call_tool("act", {})

    assert (result.is_error, text(result)) == (
        True,
        "the tool ran, but what it returned does not fit its output schema",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"order": 0}, "order: Input should be greater than or equal to 1"),
        ({}, "order: Field required"),
        ({"order": 1, "more": 2}, "more: Extra inputs are not permitted"),
    ],
)
async def test_arguments_that_do_not_fit_are_a_failed_call(
    arguments: dict[str, Any], message: str
) -> None:
    async with connected(MCPToolServer([find])) as client:
        result = await client.call_tool("find", arguments)

    assert (result.is_error, text(result)) == (True, message)


async def test_arguments_of_a_plain_tool_are_checked_against_its_schema() -> None:
    async def call(arguments: Any, context: ToolContext) -> Any:
        raise AssertionError("called")

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    plain = Tool(name="plain", description="Plain.", input_schema=schema, call=call)

    async with connected(MCPToolServer([plain])) as client:
        result = await client.call_tool("plain", {"n": "secret"})

    assert (result.is_error, text(result)) == (True, "n must be of type integer")


async def test_a_failing_tool_shows_nothing_of_its_inside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR, "lib.mcp"):
        async with connected(MCPToolServer([broken])) as client:
            result = await client.call_tool("broken", {})

    assert (result.is_error, text(result)) == (
        True,
        "the tool failed; the log of its server says why",
    )
    assert "secret" in caplog.text


async def test_a_tool_that_hangs_is_a_failed_call() -> None:
    @tool(timeout_s=0.01)
    async def hang() -> None:
        """Hang."""
        await asyncio.Event().wait()

    async with connected(MCPToolServer([hang])) as client:
        result = await client.call_tool("hang", {})

    assert (result.is_error, text(result)) == (True, "no answer within 0.01 s")


async def test_a_tool_error_is_shown_as_it_is() -> None:
    @tool
    def refuse() -> None:
        """Refuse."""
        raise ToolError("denied", "the shop is closed")

    async with connected(MCPToolServer([refuse])) as client:
        result = await client.call_tool("refuse", {})

    assert (result.is_error, text(result)) == (True, "the shop is closed")


async def test_a_call_that_no_person_can_approve_is_not_made() -> None:
    made: list[int] = []

    @tool(approval=True)
    def pay(amount: int) -> None:
        """Pay."""
        made.append(amount)

    async with connected(MCPToolServer([pay])) as client:
        result = await client.call_tool("pay", {"amount": 1})

    assert (result.is_error, made) == (True, [])


@MODES
async def test_an_unknown_tool_is_an_error_of_the_protocol(mode: str) -> None:
    async with connected(MCPToolServer([find]), mode) as client:
        with pytest.raises(MCPError, match="did you mean 'find'") as caught:
            await client.call_tool("fnd", {})

    assert caught.value.code == INVALID_PARAMS


async def test_lists_come_in_pages_and_a_cursor_is_one_of_theirs() -> None:
    tools = [tool(name=f"t{n}", description="T.")(lambda: None) for n in range(5)]

    async with connected(MCPToolServer(tools, page_size=2)) as client:
        names: list[str] = []
        cursor: str | None = None
        for _ in range(3):
            page = await client.list_tools(cursor=cursor)
            names += [each.name for each in page.tools]
            cursor = page.next_cursor
        with pytest.raises(MCPError) as caught:
            await client.list_tools(cursor="1")

    assert (names, cursor) == (["t0", "t1", "t2", "t3", "t4"], None)
    assert caught.value.code == INVALID_PARAMS


@MODES
async def test_a_client_that_wants_progress_gets_what_grows(mode: str) -> None:
    seen: list[tuple[float, float | None]] = []

    async def take(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total))

    async with connected(MCPToolServer([refund]), mode) as client:
        result = await client.call_tool("refund", {"order": 7}, progress_callback=take)

    assert text(result) == "refunded 7"
    assert seen == sorted(set(seen))
    assert seen[-1] == (3.0, 3.0)


async def test_what_is_reported_last_is_sent_before_the_result() -> None:
    seen: list[float] = []

    async def take(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with connected(MCPToolServer([quick])) as client:
        await client.call_tool("quick", {}, progress_callback=take)

    assert seen == [2]


async def test_untrusted_output_is_fenced_and_long_output_is_cut() -> None:
    served = tool(name="read", description="R.", untrusted_output=True, max_output_chars=10)(
        lambda: "a" * 11
    )

    async with connected(MCPToolServer([served])) as client:
        shown = text(await client.call_tool("read", {}))

    assert "output of read, written by strangers" in shown
    assert "a" * 11 not in shown


async def test_parts_of_messages_are_content() -> None:
    served = tool(name="draw", description="D.")(
        lambda: [Text("here"), Image(data=b"\x00", media_type="image/png")]
    )

    async with connected(MCPToolServer([served])) as client:
        result = await client.call_tool("draw", {})

    assert [block.model_dump(exclude_none=True) for block in result.content] == [
        {"type": "text", "text": "here"},
        {"type": "image", "data": "AA==", "mime_type": "image/png"},
    ]


async def test_no_more_calls_than_allowed_are_made_at_once() -> None:
    running, most = 0, 0
    gate = asyncio.Event()

    @tool
    async def work() -> None:
        """Work."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        if most == 2:
            gate.set()
        await gate.wait()
        running -= 1

    async with connected(MCPToolServer([work], max_calls=2)) as client:
        await asyncio.gather(*(client.call_tool("work", {}) for _ in range(6)))

    assert most == 2


# -- agents ------------------------------------------------------------------------------------


async def runs_of(store: EventStore) -> list[tuple[str | None, str | None, str]]:
    return [(each.tenant, each.user, each.status) for each in await store.runs(RunQuery())]


@MODES
async def test_a_call_of_an_agent_is_a_run_of_its_caller(mode: str) -> None:
    store = MemoryEventStore()
    server = MCPToolServer(
        [clerk()], store=store, caller=lambda _: Caller(tenant="acme", user="ada")
    )
    async with connected(server, mode) as client:
        result = await client.call_tool("clerk", {"task": "hello"})
        runs = await runs_of(store)

    assert (text(result), result.is_error) == ("You wrote: hello", False)
    assert runs == [("acme", "ada", "closed")]


async def test_the_agents_of_an_open_engine_are_served_and_it_stays_open() -> None:
    async with Engine("memory:", agents=[clerk()]) as engine:
        async with connected(MCPToolServer(engine)) as client:
            result = await client.call_tool("clerk", {"task": "hello"})

        assert text(result) == "You wrote: hello"
        assert engine.is_open


async def test_an_agent_reports_its_steps() -> None:
    def answer(messages: Any) -> Any:
        if messages[-1].role == "tool":
            return "sent"
        return Reply((ToolCall("1", "find", {"order": 7}),))

    seen: list[str | None] = []

    async def take(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    async with connected(MCPToolServer(clerk(answer))) as client:
        result = await client.call_tool("clerk", {"task": "7?"}, progress_callback=take)

    assert (text(result), seen) == ("sent", ["calls find"])


async def test_the_typed_output_of_an_agent_is_structured() -> None:
    typed = Agent(
        FunctionClient(lambda _: '{"id": 7, "state": "sent"}'), name="typed", output=Order
    )

    async with connected(MCPToolServer([typed.as_tool("Finds orders.")])) as client:
        listed = (await client.list_tools()).tools[0]
        result = await client.call_tool("typed", {"task": "7"})

    assert (listed.description, (listed.output_schema or {})["title"]) == ("Finds orders.", "Order")
    assert result.structured_content == {"id": 7, "state": "sent"}


async def test_a_run_that_fails_is_a_failed_call_without_its_inside() -> None:
    def fail(messages: Any) -> str:
        raise RuntimeError("postgres://secret")

    async with connected(MCPToolServer(clerk(fail))) as client:
        result = await client.call_tool("clerk", {"task": "x"})

    assert result.is_error
    assert "secret" not in text(result)


async def test_a_call_that_its_client_abandons_cancels_the_run() -> None:
    store, begun = MemoryEventStore(), asyncio.Event()

    async def answer(messages: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    server = MCPToolServer(clerk(answer), store=store)
    async with connected(server, "legacy") as client:
        call = asyncio.create_task(client.call_tool("clerk", {"task": "x"}))
        await begun.wait()
        call.cancel()
        await asyncio.wait([call])
        (run,) = await store.runs(RunQuery())
        async with asyncio.timeout(120):
            while (await store.run(run.run_id) or run).status != "closed":
                await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(int))])

    assert call.cancelled()


# -- resources and prompts ---------------------------------------------------------------------


@resource("orders://{order}")
def order_of(order: int) -> Order:
    """One order."""
    return Order(id=order, state="sent")


@resource("shop://logo", media_type="image/png")
def logo() -> bytes:
    """The logo."""
    return b"\x89PNG"


@resource("shop://broken")
def broken_resource() -> str:
    """Fail."""
    raise RuntimeError("postgres://secret")


@prompt(title="Complain", complete={"product": lambda begun: [f"{begun}pot", f"{begun}"]})
def complain(
    product: Annotated[str, Field(description="what broke")],
    tone: Literal["calm", "angry"] = "calm",
) -> list[Message]:
    """Complain about a product."""
    return [Message.user(f"My {product} broke."), Message.assistant(f"({tone}) Sorry.")]


def library() -> MCPToolServer:
    return MCPToolServer(resources=[order_of, logo, broken_resource], prompts=[complain])


@MODES
async def test_resources_are_listed_and_read(mode: str) -> None:
    async with connected(library(), mode) as client:
        listed = [each.uri for each in (await client.list_resources()).resources]
        templates = (await client.list_resource_templates()).resource_templates
        order = (await client.read_resource("orders://7")).contents
        image = (await client.read_resource("shop://logo")).contents

    assert listed == ["shop://logo", "shop://broken"]
    assert [each.uri_template for each in templates] == ["orders://{order}"]
    assert order == [
        TextResourceContents(
            uri="orders://7", mime_type="application/json", text='{"id":7,"state":"sent"}'
        )
    ]
    blob = base64.b64encode(b"\x89PNG").decode()
    assert image == [BlobResourceContents(uri="shop://logo", mime_type="image/png", blob=blob)]


@MODES
@pytest.mark.parametrize(
    "uri", ["shop://nothing", "orders://..", "orders://a%2Fb", "orders://a%5Cb", "orders://a%00"]
)
async def test_a_uri_of_nothing_is_not_found(mode: str, uri: str) -> None:
    async with connected(library(), mode) as client:
        with pytest.raises(MCPError) as caught:
            await client.read_resource(uri)

    assert caught.value.code == (INVALID_PARAMS if mode == "auto" else LEGACY_NOT_FOUND)
    assert caught.value.data == {"uri": uri}


async def test_a_failing_resource_shows_nothing_of_its_inside() -> None:
    async with connected(library()) as client:
        with pytest.raises(MCPError) as caught:
            await client.read_resource("shop://broken")

    assert (caught.value.code, caught.value.message) == (
        INTERNAL_ERROR,
        "'broken_resource' failed",
    )


@MODES
async def test_prompts_are_listed_and_filled_in(mode: str) -> None:
    async with connected(library(), mode) as client:
        listed = (await client.list_prompts()).prompts
        got = await client.get_prompt("complain", {"product": "kettle", "tone": "angry"})

    assert [each.model_dump(exclude_none=True) for each in listed] == [
        {
            "name": "complain",
            "title": "Complain",
            "description": "Complain about a product.",
            "arguments": [
                {"name": "product", "description": "what broke", "required": True},
                {"name": "tone", "required": False},
            ],
        }
    ]
    assert [(each.role, each.content) for each in got.messages] == [
        ("user", TextContent(text="My kettle broke.")),
        ("assistant", TextContent(text="(angry) Sorry.")),
    ]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("nothing", {}), ("complain", {}), ("complain", {"product": "x", "tone": "sad"})],
)
async def test_a_prompt_that_cannot_be_filled_in_is_an_error_of_the_protocol(
    name: str, arguments: dict[str, str]
) -> None:
    async with connected(library()) as client:
        with pytest.raises(MCPError) as caught:
            await client.get_prompt(name, arguments)

    assert caught.value.code == INVALID_PARAMS


async def test_arguments_are_completed_from_functions_and_from_literals() -> None:
    reference = PromptReference(name="complain")
    async with connected(library()) as client:
        products = await client.complete(reference, {"name": "product", "value": "tea"})
        tones = await client.complete(reference, {"name": "tone", "value": "a"})
        orders = await client.complete(
            ResourceTemplateReference(uri="orders://{order}"), {"name": "order", "value": ""}
        )
        with pytest.raises(MCPError):
            await client.complete(reference, {"name": "nothing", "value": ""})

    assert [each.completion.values for each in (products, tones, orders)] == [
        ["teapot", "tea"],
        ["angry"],
        [],
    ]


# -- what cannot be served ---------------------------------------------------------------------


def test_a_resource_has_the_variables_of_its_template() -> None:
    with pytest.raises(ValueError, match="expected the variables of"):
        resource("orders://{order}")(lambda: "")


ENGINE = Engine("memory:", agents=[clerk()])


@pytest.mark.parametrize(
    ("tools", "options", "error"),
    [
        ([1], {}, TypeError),
        ("find", {}, TypeError),
        ([find, find], {}, ValueError),
        ([Agent(FunctionClient(str), name="the clerk")], {}, ValueError),
        ([], {"prompts": [find]}, TypeError),
        ([], {"prompts": [complain, complain]}, ValueError),
        ([Agent(FunctionClient(str), name="other")], {"engine": ENGINE}, ValueError),
        ([], {"max_calls": 0}, ValueError),
        ([], {"page_size": 0}, ValueError),
    ],
)
def test_what_cannot_be_served_is_refused(
    tools: Any, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        MCPToolServer(tools, **options)

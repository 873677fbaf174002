"""Calls that are tasks: runs that their clients ask about later, from any process."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import pytest
from mcp.client import Client
from mcp.client.extension import advertise
from mcp.shared.exceptions import MCPError
from mcp.shared.memory import create_client_server_memory_streams
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequest,
    CallToolRequestParams,
    ElicitResult,
)
from pydantic import BaseModel, TypeAdapter

from lib import Agent, Engine, tool
from lib.events import Event, EventStore, MemoryEventStore, NewEvent
from lib.events.urls import open_store
from lib.llm import FunctionClient, Image, Message, Reply, Text, ToolCall
from lib.mcp import Caller, MCPToolServer, TaskTool, ask, form
from lib.mcp.task_types import (
    IDEMPOTENCY_KEY,
    TASKS,
    CancelTaskRequest,
    GetTaskRequest,
    TaskParams,
    UpdateTaskParams,
    UpdateTaskRequest,
)
from lib.testing.clock import ManualClock
from lib.tools import ToolContext

T = TypeVar("T")
RAW: Any = TypeAdapter(dict[str, Any])  # results as they are on the wire
YES = {"action": "accept", "content": {"approve": True}}
NO = {"action": "accept", "content": {"approve": False}}


class Name(BaseModel):
    name: str


class Order(BaseModel):
    id: int
    state: str


async def eventually(look: Callable[[], Awaitable[T | None]]) -> T:
    """Return what is found once it is there, as clients and reviewers find it: by polling."""
    while not (found := await look()):  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.01)  # noqa: TID251 - see above
    return found


class TaskClient:
    """A client that takes tasks, and shows what is on the wire."""

    def __init__(self, client: Client) -> None:
        self._session = client.session

    async def call(self, name: str, arguments: Any = None, **options: Any) -> dict[str, Any]:
        params = CallToolRequestParams(name=name, arguments=arguments or {}, **options)
        return await self._session.send_request(CallToolRequest(params=params), RAW)

    async def tools(self) -> None:
        await self._session.list_tools()

    async def get(self, task_id: str) -> dict[str, Any]:
        request = GetTaskRequest(params=TaskParams(task_id=task_id))
        return await self._session.send_request(request, RAW)

    async def update(self, task_id: str, responses: dict[str, Any]) -> dict[str, Any]:
        params = UpdateTaskParams(task_id=task_id, input_responses=responses)
        return await self._session.send_request(UpdateTaskRequest(params=params), RAW)

    async def cancel(self, task_id: str) -> dict[str, Any]:
        request = CancelTaskRequest(params=TaskParams(task_id=task_id))
        return await self._session.send_request(request, RAW)

    async def until(self, task_id: str, *statuses: str) -> dict[str, Any]:
        """Return the task once it has one of these states."""

        async def look() -> dict[str, Any] | None:
            task = await self.get(task_id)
            return task if task["status"] in statuses else None

        return await eventually(look)

    async def end(self, task_id: str) -> dict[str, Any]:
        return await self.until(task_id, "completed", "failed", "cancelled")


async def _no_answer(context: Any, params: Any) -> ElicitResult:
    raise AssertionError("questions of tasks come with their states")


@asynccontextmanager
async def connected(
    server: MCPToolServer, *, mode: str = "auto", tasks: bool = True, person: bool = False
) -> AsyncGenerator[TaskClient]:
    options: dict[str, Any] = {"elicitation_callback": _no_answer} if person else {}
    if tasks:
        options["extensions"] = [advertise(TASKS)]
    async with Client(server.protocol, mode=mode, **options) as client:
        yield TaskClient(client)


@asynccontextmanager
async def connected_by_streams(
    server: MCPToolServer, *, tasks: bool = True
) -> AsyncGenerator[TaskClient]:
    """Connect as processes do: a client that is cancelled says so in a message."""
    options: dict[str, Any] = {"extensions": [advertise(TASKS)]} if tasks else {}
    async with create_client_server_memory_streams() as (near, (read, write)):
        run = server.protocol.run(read, write, server.initialization_options())
        serving = asyncio.create_task(run)
        async with Client(nullcontext(near), **options) as client:
            yield TaskClient(client)
        await serving


@asynccontextmanager
async def serving(*offers: Any, **options: Any) -> AsyncGenerator[MCPToolServer]:
    async with MCPToolServer(offers, **options) as server:
        yield server


def echo(messages: Sequence[Message]) -> str:
    return f"You wrote: {messages[-1].text}"


async def hang(_: Any) -> str:
    await asyncio.Event().wait()
    return "never"


def clerk(answer: Any = echo, **more: Any) -> Agent:
    return Agent(FunctionClient(answer), name="clerk", **more)


@tool(effects="none")
def find(order: int) -> Order:
    """Find an order."""
    return Order(id=order, state="sent")


def texts(result: dict[str, Any]) -> list[str]:
    return [block.get("text", block["type"]) for block in result["content"]]


async def refusal(request: Any) -> tuple[int, str]:
    with pytest.raises(MCPError) as caught:
        await request
    return caught.value.code, caught.value.message


# -- what a client gets ----------------------------------------------------------------------------


async def test_a_call_of_an_agent_is_a_task_and_its_result_that_of_the_call() -> None:
    async with serving(clerk()) as server:
        async with connected(server, tasks=False) as client:
            waited = await client.call("clerk", {"task": "hello"})
        async with connected(server) as client:
            created = await client.call("clerk", {"task": "hello"})
            ended = await client.end(created["taskId"])

    shown = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"}
    assert created.keys() == {*shown, "resultType", "_meta"}
    assert (created["resultType"], created["status"]) == ("task", "working")
    assert (created["ttlMs"], created["pollIntervalMs"]) == (None, 1000)
    assert ended.keys() == {*shown, "resultType", "_meta", "result"}
    assert (ended["resultType"], ended["status"]) == ("complete", "completed")
    assert ended["result"]["content"] == waited["content"]


async def test_results_of_tools_come_back_with_all_their_content() -> None:
    image = Image(data=b"\x89PNG", media_type="image/png")

    @tool(effects="none")
    def picture() -> list[Any]:
        """Return a picture."""
        return [Text("Look:"), image]

    async with serving(TaskTool(find), TaskTool(picture)) as server, connected(server) as client:
        order = await client.end((await client.call("find", {"order": 7}))["taskId"])
        seen = await client.end((await client.call("picture"))["taskId"])

    assert order["result"]["structuredContent"] == {"id": 7, "state": "sent"}
    assert texts(seen["result"]) == ["Look:", "image"]


async def test_a_failure_is_a_result_and_an_error_of_the_protocol_is_none() -> None:
    @tool(effects="none")
    def broken() -> str:
        """Fail."""
        raise RuntimeError("postgres://user:secret@10.0.0.1")

    @tool(effects="none")
    def unable() -> str:
        """Fail as the protocol has it."""
        raise MCPError(INTERNAL_ERROR, "no printer")

    tools = [TaskTool(broken), TaskTool(unable), TaskTool(find)]
    async with serving(*tools) as server, connected(server) as client:
        failed = await client.end((await client.call("broken"))["taskId"])
        refused = await client.end((await client.call("unable"))["taskId"])
        wrong = await client.end((await client.call("find", {"order": "seven"}))["taskId"])

    assert (failed["status"], failed["result"]["isError"]) == ("completed", True)
    assert texts(failed["result"]) == ["the tool failed; the log of its server says why"]
    assert (refused["status"], refused["error"]) == (
        "failed",
        {"code": INTERNAL_ERROR, "message": "no printer"},
    )
    assert wrong["result"]["isError"] is True
    assert "result" not in refused


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_that_takes_no_tasks_waits_for_the_result(mode: str) -> None:
    tools = [TaskTool(find), clerk()]
    async with serving(*tools) as server, connected(server, mode=mode, tasks=False) as client:
        found = await client.call("find", {"order": 7})
        answered = await client.call("clerk", {"task": "hello"})
        refused = await refusal(client.get("0" * 32))

    assert found["structuredContent"] == {"id": 7, "state": "sent"}
    assert texts(answered) == ["You wrote: hello"]
    code = METHOD_NOT_FOUND if mode == "legacy" else MISSING_REQUIRED_CLIENT_CAPABILITY
    assert refused[0] == code


async def test_a_tool_that_is_always_a_task_refuses_clients_that_take_none() -> None:
    required = TaskTool(find, required=True)
    async with serving(required) as server, connected(server, tasks=False) as client:
        with pytest.raises(MCPError) as caught:
            await client.call("find", {"order": 7})

    assert caught.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY
    assert caught.value.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


async def test_without_tools_that_are_runs_there_is_no_extension() -> None:
    async with serving(find) as server, connected(server) as client:
        found = await client.call("find", {"order": 7})
        refused = await refusal(client.get("0" * 32))

    assert (found["resultType"], refused[0]) == ("complete", METHOD_NOT_FOUND)


# -- durable ---------------------------------------------------------------------------------------


async def test_a_task_survives_its_server(tmp_path: Path) -> None:
    begun, store = asyncio.Event(), str(tmp_path / "runs.db")

    async def hang(_: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async with serving(clerk(hang), store=store) as server, connected(server) as client:
        task_id = (await client.call("clerk", {"task": "hello"}))["taskId"]
        await begun.wait()
    async with serving(clerk(), store=store) as server, connected(server) as client:
        ended = await client.end(task_id)

    assert texts(ended["result"]) == ["You wrote: hello"]


async def test_a_call_that_counts_once_is_not_repeated_after_a_restart(tmp_path: Path) -> None:
    made: list[str] = []
    begun, store = asyncio.Event(), str(tmp_path / "runs.db")

    @tool(timeout_s=None)
    async def pay() -> str:
        """Pay."""
        made.append("paid")
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async with serving(TaskTool(pay), store=store) as server, connected(server) as client:
        task_id = (await client.call("pay"))["taskId"]
        await begun.wait()
    async with serving(TaskTool(pay), store=store) as server, connected(server) as client:
        ended = await client.end(task_id)

    assert made == ["paid"]
    assert ended["result"]["isError"] is True
    assert "outcome unknown" in texts(ended["result"])[0]


async def test_another_process_finds_a_task(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    async with serving(clerk(), store=store) as one, serving(clerk(), store=store) as other:
        async with connected(one) as client:
            task_id = (await client.call("clerk", {"task": "hello"}))["taskId"]
        async with connected(other) as client:
            ended = await client.end(task_id)

    assert texts(ended["result"]) == ["You wrote: hello"]


async def test_a_call_that_is_sent_again_is_the_same_task() -> None:
    async with serving(clerk(), TaskTool(find)) as server, connected(server) as client:
        meta: Any = {IDEMPOTENCY_KEY: "key-1"}
        first = await client.call("clerk", {"task": "hello"}, _meta=meta)
        again = await client.call("clerk", {"task": "hello"}, _meta=meta)
        other_tool = await client.call("find", {"order": 7}, _meta=meta)
        refused = await refusal(client.call("clerk", {"task": "bye"}, _meta=meta))

    assert again["taskId"] == first["taskId"] != other_tool["taskId"]
    assert refused[0] == INVALID_PARAMS


async def test_a_task_that_has_ended_is_kept_for_a_time() -> None:
    clock = ManualClock()
    engine = Engine("memory:", agents=[clerk()], clock=clock)
    async with MCPToolServer(engine, task_ttl_s=60.0) as server, connected(server) as client:
        created = await client.call("clerk", {"task": "hello"})
        await client.end(created["taskId"])
        clock.advance(61)
        gone = await refusal(client.get(created["taskId"]))

    assert (created["ttlMs"], gone) == (60_000, (INVALID_PARAMS, "there is no such task"))


# -- foreign tasks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stranger",
    [Caller(tenant="acme", user="eve"), Caller(tenant="umbrella", user="ada"), Caller()],
    ids=repr,
)
async def test_a_foreign_task_is_a_missing_one(stranger: Caller) -> None:
    owner, callers = Caller(tenant="acme", user="ada"), list[Caller]()
    callers.append(owner)

    def caller(_: Any) -> Caller:
        return callers[-1]

    async with serving(clerk(), caller=caller) as server, connected(server) as client:
        task_id = (await client.call("clerk", {"task": "hello"}))["taskId"]
        await client.end(task_id)
        callers.append(stranger)
        foreign = [
            await refusal(client.get(task_id)),
            await refusal(client.update(task_id, {})),
            await refusal(client.cancel(task_id)),
        ]
        missing = [
            await refusal(client.get("0" * 32)),
            await refusal(client.update("0" * 32, {})),
            await refusal(client.cancel("0" * 32)),
        ]

    assert foreign == missing == [(INVALID_PARAMS, "there is no such task")] * 3


@pytest.mark.parametrize("task_id", ["", "x" * 10_000, "a\x00b", "\u00e9", "../x", "%00", "\ud7ff"])
async def test_an_id_of_nothing_is_a_missing_task(task_id: str) -> None:
    async with serving(clerk()) as server, connected(server) as client:
        assert await refusal(client.get(task_id)) == (INVALID_PARAMS, "there is no such task")


async def test_runs_that_are_no_calls_are_missing_tasks() -> None:
    other = Agent(FunctionClient(lambda _: "done"), name="other")
    engine = Engine("memory:", agents=[clerk(), other])
    clerks = next(each for each in engine.agents.values() if each.name == "clerk")
    server = MCPToolServer([clerks], engine=engine)  # pyright: ignore[reportArgumentType] - an Agent
    async with server, connected(server) as client:
        session = await engine.start_session(agent="clerk")
        turn = await session.send("hello")
        await turn.result(timeout_s=60)
        run = await engine.start("hello", agent="other")
        ids = [session.id, turn.run_id, run.id]
        found = [await refusal(client.get(str(each))) for each in ids]

    assert found == [(INVALID_PARAMS, "there is no such task")] * 3


# -- cancelling ------------------------------------------------------------------------------------


async def test_a_cancelled_task_ends_and_is_cancelled_again_without_effect() -> None:
    begun = asyncio.Event()

    async def hang(_: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async with serving(clerk(hang)) as server, connected(server) as client:
        task_id = (await client.call("clerk", {"task": "hello"}))["taskId"]
        await begun.wait()
        acks = [await client.cancel(task_id)]
        ended = await client.end(task_id)
        acks.append(await client.cancel(task_id))

    assert ended["status"] == "cancelled"
    assert [each.keys() for each in acks] == [{"resultType", "_meta"}] * 2


class SlowStore(MemoryEventStore):
    """Has stored the start of a run before it says so."""

    def __init__(self) -> None:
        super().__init__()
        self.stored, self.answers = asyncio.Event(), asyncio.Event()

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        appended = await super().append(run_id, events, expected=expected)
        self.stored.set()
        await self.answers.wait()
        return appended


@pytest.mark.timeout(120)
@pytest.mark.parametrize("tasks", [True, False])
async def test_a_call_that_is_cancelled_while_its_run_starts_cancels_the_run(tasks: bool) -> None:
    store = SlowStore()
    async with (
        Engine(store, agents=[clerk(hang)]) as engine,
        MCPToolServer(engine) as server,
        connected_by_streams(server, tasks=tasks) as client,
    ):
        calling = asyncio.create_task(client.call("clerk", {"task": "hello"}))
        await store.stored.wait()
        calling.cancel()
        await asyncio.wait([calling])
        await client.tools()  # the server has read that the call is cancelled
        store.answers.set()
        (run,) = await store.runs()
        result = await engine.run(run.run_id).result(timeout_s=60)

    assert result.outcome == "CANCELLED"


@pytest.mark.timeout(120)
async def test_a_call_that_can_be_sent_again_leaves_its_run_alone() -> None:
    store, meta = SlowStore(), {IDEMPOTENCY_KEY: "key-1"}
    async with (
        Engine(store, agents=[clerk()]) as engine,
        MCPToolServer(engine) as server,
        connected_by_streams(server) as client,
    ):
        calling = asyncio.create_task(client.call("clerk", {"task": "hello"}, _meta=meta))
        await store.stored.wait()
        calling.cancel()
        await asyncio.wait([calling])
        await client.tools()
        store.answers.set()
        task_id = (await client.call("clerk", {"task": "hello"}, _meta=meta))["taskId"]
        ended = await client.end(task_id)

    assert texts(ended["result"]) == ["You wrote: hello"]


# -- input -----------------------------------------------------------------------------------------


@tool(effects="none")
def introduce() -> str:
    """Ask for two names, then for one more."""
    first: Any = ask(you=form("Your name?", Name), cat=form("Your cat's?", Name))
    more: Any = ask(dog=form("Your dog's?", Name))["dog"]
    return " ".join(each.content["name"] for each in (first["you"], first["cat"], more))


def named(name: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": name}}


async def test_a_task_asks_and_goes_on_with_the_answers() -> None:
    async with (
        serving(TaskTool(introduce)) as server,
        connected(server, person=True) as client,
    ):
        task_id = (await client.call("introduce"))["taskId"]
        questioned = await client.until(task_id, "input_required")
        ack = await client.update(task_id, {"1.you": named("Ada"), "never-sent": {"x": 1}})
        half = await client.get(task_id)
        await client.update(task_id, {"1.cat": named("Tom"), "1.you": named("Eve")})
        again = await client.until(task_id, "input_required")
        await client.update(task_id, {"2.dog": named("Rex"), "1.cat": named("Late")})
        ended = await client.end(task_id)

    questions = {key: each["method"] for key, each in questioned["inputRequests"].items()}
    assert questions == {"1.you": "elicitation/create", "1.cat": "elicitation/create"}
    assert ack.keys() == {"resultType", "_meta"}
    assert (half["status"], list(half["inputRequests"])) == ("input_required", ["1.cat"])
    assert list(again["inputRequests"]) == ["2.dog"]
    assert texts(ended["result"]) == ["Ada Tom Rex"]


@pytest.mark.parametrize("answer", [named(7), {"action": "what"}, {}, 7, None, [named("Ada")]])
async def test_an_answer_that_does_not_fit_counts_for_nothing(answer: Any) -> None:
    async with (
        serving(TaskTool(introduce)) as server,
        connected(server, person=True) as client,
    ):
        task_id = (await client.call("introduce"))["taskId"]
        before = await client.until(task_id, "input_required")
        refused = await refusal(client.update(task_id, {"1.you": answer, "1.cat": named("Tom")}))
        after = await client.get(task_id)

    assert refused[0] == INVALID_PARAMS
    assert after["inputRequests"] == before["inputRequests"]


async def test_a_question_that_the_client_cannot_answer_ends_the_task() -> None:
    async with serving(TaskTool(introduce)) as server, connected(server) as client:
        ended = await client.end((await client.call("introduce"))["taskId"])

    assert ended["status"] == "failed"
    assert ended["error"]["code"] == MISSING_REQUIRED_CLIENT_CAPABILITY


async def test_questions_can_come_before_the_task() -> None:
    @tool(effects="none")
    def greet() -> str:
        """Greet."""
        answer: Any = ask(you=form("Your name?", Name))["you"]
        return f"Hello, {answer.content['name']}!"

    offer = TaskTool(greet, questions={"you": form("Your name?", Name)})
    async with serving(offer) as server, connected(server, person=True) as client:
        questioned = await client.call("greet")
        state, answer = questioned["requestState"], {"you": named("Ada")}
        created = await client.call("greet", inputResponses=answer, requestState=state)
        ended = await client.end(created["taskId"])

    assert (questioned["resultType"], list(questioned["inputRequests"])) == (
        "input_required",
        ["you"],
    )
    assert created["resultType"] == "task"
    assert "requestState" not in created
    assert texts(ended["result"]) == ["Hello, Ada!"]


# -- approvals -------------------------------------------------------------------------------------


class Till:
    """A tool whose calls need approval."""

    def __init__(self) -> None:
        self.payments: list[int] = []

        @tool(approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            self.payments.append(amount)
            return f"paid {amount}"

        self.pay = pay


@pytest.mark.parametrize(
    ("answer", "payments"), [(YES, [7]), (NO, []), ({"action": "decline"}, [])]
)
async def test_the_person_behind_the_client_decides_about_a_task(
    answer: dict[str, Any], payments: list[int]
) -> None:
    till = Till()
    async with serving(TaskTool(till.pay)) as server, connected(server, person=True) as client:
        task_id = (await client.call("pay", {"amount": 7}))["taskId"]
        questioned = await client.until(task_id, "input_required")
        ((key, question),) = questioned["inputRequests"].items()
        await client.update(task_id, {key: answer})
        ended = await client.end(task_id)
        await client.update(task_id, {key: YES})

    assert question["params"]["message"] == "Allow the call of 'pay' with {\"amount\":7}?"
    assert (till.payments, bool(ended["result"].get("isError"))) == (payments, not payments)


@pytest.mark.parametrize("wrapped", [True, False])
async def test_a_call_waits_for_a_reviewer_where_the_client_cannot_ask(wrapped: bool) -> None:
    till, store = Till(), MemoryEventStore()
    offer: Any = TaskTool(till.pay) if wrapped else till.pay
    async with serving(offer, store=store) as server, connected(server) as client:
        task_id = (await client.call("pay", {"amount": 7}))["taskId"]
        engine = Engine(store, agents=[clerk()], drive=False)
        run = engine.run(task_id)
        waiting = await eventually(run.pending)
        shown = await client.get(task_id)
        await run.approve(waiting[0].key, user="reviewer")
        ended = await client.end(task_id)

    assert (shown["status"], "inputRequests" in shown) == ("working", False)
    assert shown["statusMessage"] == "waits for a person to approve pay"
    assert (till.payments, texts(ended["result"])) == ([7], ["paid 7"])


async def test_a_client_that_can_ask_gets_a_question_at_once_about_a_plain_tool() -> None:
    till = Till()
    async with serving(till.pay) as server, connected(server, person=True) as client:
        questioned = await client.call("pay", {"amount": 7})

    assert (questioned["resultType"], till.payments) == ("input_required", [])


def paying_clerk(till: Till) -> Agent:
    call = Reply((ToolCall("c1", "pay", {"amount": 7}),))

    def answer(messages: Sequence[Message]) -> Reply | str:
        return call if messages[-1].role == "user" else "done"

    return clerk(answer, tools=[till.pay])


@pytest.mark.parametrize("approves", [True, False])
async def test_calls_of_an_agent_are_decided_by_those_who_may(approves: bool) -> None:
    till = Till()

    def caller(_: Any) -> Caller:
        return Caller(approves=approves)

    async with (
        serving(paying_clerk(till), caller=caller) as server,
        connected(server, person=True) as client,
    ):
        task_id = (await client.call("clerk", {"task": "pay"}))["taskId"]
        if not approves:
            engine: Any = server.engine
            await eventually(engine.run(task_id).pending)
            shown = await client.get(task_id)
            await client.update(task_id, dict.fromkeys(["tool/1", "approval"], YES))
            await client.cancel(task_id)
            await client.end(task_id)
        else:
            shown = await client.until(task_id, "input_required")
            await client.update(task_id, dict.fromkeys(shown["inputRequests"], YES))
            await client.end(task_id)

    assert shown["status"] == ("input_required" if approves else "working")
    assert till.payments == ([7] if approves else [])


async def test_an_approval_holds_while_the_tool_asks() -> None:
    made: list[str] = []

    @tool(approval=True)
    def sign() -> str:
        """Sign."""
        answer: Any = ask(you=form("Your name?", Name))["you"]
        made.append(answer.content["name"])
        return "signed"

    async with serving(TaskTool(sign)) as server, connected(server, person=True) as client:
        task_id = (await client.call("sign"))["taskId"]
        questioned = await client.until(task_id, "input_required")
        await client.update(task_id, dict.fromkeys(questioned["inputRequests"], YES))

        async def has_question() -> bool:
            return "1.you" in (await client.get(task_id)).get("inputRequests", {})

        await eventually(has_question)
        await client.update(task_id, {"1.you": named("Ada")})
        await client.end(task_id)

    assert made == ["Ada"]


# -- construction ----------------------------------------------------------------------------------


async def test_an_engine_that_is_served_has_its_task_tools() -> None:
    offer = TaskTool(find)
    with pytest.raises(ValueError, match="give it to Engine"):
        MCPToolServer([offer], engine=Engine("memory:", agents=[clerk()]))
    engine = Engine("memory:", agents=[clerk(), offer])
    async with MCPToolServer(engine) as server, connected(server) as client:
        ended = await client.end((await client.call("find", {"order": 7}))["taskId"])

    assert ended["result"]["structuredContent"] == {"id": 7, "state": "sent"}


def test_a_task_tool_is_one_of_a_tool() -> None:
    with pytest.raises(TypeError, match="expected a Tool, got function"):
        TaskTool(lambda: None)  # pyright: ignore[reportArgumentType] - the point


async def test_a_run_of_a_task_tool_is_started_from_text() -> None:
    async with Engine("memory:", agents=[TaskTool(find)]) as engine:
        good = await (await engine.start('{"order": 7}')).result(timeout_s=60)
        bad = await (await engine.start("order 7")).result(timeout_s=60)

    assert '"id":7' in good.text
    assert (bad.outcome, bad.reason) == ("FAILED", "input")


async def test_a_state_counts_once_in_all_processes(tmp_path: Path) -> None:
    till, store = Till(), tmp_path / "runs.db"
    questioned: dict[str, Any] = {}
    async with serving(till.pay, store=store) as server, connected(server, person=True) as client:
        questioned = await client.call("pay", {"amount": 7})
    retry: Any = {"requestState": questioned["requestState"], "inputResponses": {"approval": YES}}
    async with serving(till.pay, store=store) as server, connected(server, person=True) as client:
        payment = await client.call("pay", {"amount": 7}, **retry)
    async with serving(till.pay, store=store) as server, connected(server, person=True) as client:
        again = await refusal(client.call("pay", {"amount": 7}, **retry))

    assert (texts(payment), till.payments, again[0]) == (["paid 7"], [7], INVALID_PARAMS)


async def test_states_that_were_used_are_forgotten_once_they_have_ended(tmp_path: Path) -> None:
    till, clock, store = Till(), ManualClock(), str(tmp_path / "runs.db")

    async def pay_and_count() -> int:
        async with (
            serving(till.pay, store=store, clock=clock) as server,
            connected(server, person=True) as client,
        ):
            for _ in range(2):
                state = (await client.call("pay", {"amount": 7}))["requestState"]
                answers = {"approval": YES}
                await client.call("pay", {"amount": 7}, requestState=state, inputResponses=answers)
            return len(await marks_of(server))

    async def marks_of(server: MCPToolServer) -> dict[str, str]:
        found: EventStore = server.engine.store  # pyright: ignore[reportOptionalMemberAccess] - it has one
        return await found.marks("mcp/state/used/")

    first = await pay_and_count()
    clock.advance(601)
    second = await pay_and_count()

    assert (first, second) == (2, 2)
    assert open_store(store)


async def test_the_context_of_a_call_has_the_key_of_its_client() -> None:
    seen: list[str] = []

    @tool
    def note(context: ToolContext) -> str:
        """Note the key."""
        seen.append(context.idempotency_key)
        return "noted"

    async with serving(note) as server, connected(server) as client:
        for key in ("one", "one", "two", "", "x" * 256):
            meta: Any = {IDEMPOTENCY_KEY: key}
            await client.call("note", _meta=meta)

    assert seen[0] == seen[1]
    assert len(set(seen)) == 4

"""The front door: an agent is one object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import lib
from lib import Agent, Budget, Engine, ToolError, tool
from lib.engine import (
    ApprovalRequested,
    ModelFailed,
    ModelReplied,
    NoOutput,
    ReplyDelta,
    Result,
    RunEnded,
    Start,
    StreamItem,
    ToolEnded,
    ToolStarted,
)
from lib.errors import IdempotencyMismatch, LLMError, UnknownAlgorithm
from lib.events import MemoryEventStore, RunQuery
from lib.guards import GuardContent, Verdict
from lib.llm import Message, Reply, ScriptedClient, ToolCall
from lib.resilience import RetryPolicy
from lib.testing.aio import run
from lib.tools import ToolContext

ONCE = RetryPolicy(attempts=1)


class Ticket(BaseModel):
    title: str


class Pool:
    size = 3


class Down(ScriptedClient):
    """A model whose server cannot be reached, or that refuses the request."""

    def __init__(self, *, retryable: bool = True) -> None:
        super().__init__([])
        self.name = "down"
        self.error = LLMError("connection refused", retryable=retryable)

    async def complete(self, messages: Any, **options: Any) -> Reply:
        raise self.error

    async def stream(self, messages: Any, **options: Any) -> AsyncIterator[Any]:
        raise self.error
        yield


class NoOrders:
    """Keeps orders from its model."""

    name = "no-orders"
    stages = frozenset(("tool_result",))

    async def check(self, content: GuardContent) -> Verdict:
        return Verdict(allowed="orders" not in content.text)


def wrong(value: Any) -> Any:
    return value


def calls(*names: str, **arguments: Any) -> Reply:
    return Reply(tuple(ToolCall(f"c{at}", name, arguments) for at, name in enumerate(names)))


@tool(effects="none")
def look(order: int) -> str:
    """Look an order up."""
    return f"order {order} is paid"


# -- one run -------------------------------------------------------------------------------


def test_hello_world() -> None:
    agent = Agent(ScriptedClient(["Hello!"]))

    assert agent.run_sync("Hi.").output == "Hello!"


def test_everything_of_the_front_page_is_in_lib() -> None:
    assert {name for name in dir(lib) if name in lib.__all__} == set(lib.__all__)
    assert all(getattr(lib, name) is not None for name in lib.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Agnet'"):
        _ = lib.Agnet  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType] - the point


def test_an_output_type_makes_the_output_an_instance() -> None:
    agent = Agent(ScriptedClient(['{"title": "late package"}']), output=Ticket)

    result = agent.run_sync("My package is late.")
    assert result.output == Ticket(title="late package")
    assert result.text == '{"title": "late package"}'


def test_a_typed_run_that_failed_has_text_and_no_output() -> None:
    agent = Agent(ScriptedClient(["no JSON", "still none"]), output=Ticket)

    result = agent.run_sync("My package is late.")
    assert (result.outcome, result.text) == ("FAILED", "still none")
    with pytest.raises(NoOutput, match=r"ended as FAILED \(output\): look at \.outcome") as caught:
        _ = result.output
    assert caught.value.run_id == result.run_id


def test_run_sync_inside_an_event_loop_names_the_way_out() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"write `await agent\.run\(…\)`"):
            Agent(ScriptedClient(["x"])).run_sync("Hi.")

    run(main())


def test_a_key_finds_the_run_of_an_earlier_process(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    first = Agent(ScriptedClient(["first"])).run_sync("Hi.", store=store, key="t1")
    second = Agent(ScriptedClient(["second"])).run_sync("Hi.", store=str(store), key="t1")

    assert (first.run_id, first.output) == (second.run_id, second.output)
    with pytest.raises(IdempotencyMismatch):
        Agent(ScriptedClient(["x"])).run_sync("Something else.", store=store, key="t1")


async def test_an_engine_names_what_runs_go_on_by_and_their_budgets() -> None:
    model = ScriptedClient([])
    agents = [Agent(model, name="a", budget=Budget(tokens=5)), Agent(model, name="b")]
    async with Engine("memory:", agents=agents, drive=False) as engine:
        budgets = [engine.budget_of(name) for name in (None, "a", "b")]
        with pytest.raises(UnknownAlgorithm):
            engine.budget_of("c")

    assert engine.algorithms == ["a", "b"]
    assert budgets == [Budget(tokens=5), Budget(tokens=5), None]


async def test_each_run_that_ends_here_is_reported_once() -> None:
    ended: list[tuple[str, str | None, int]] = []
    agent = Agent(ScriptedClient(["one", "two"]), name="a")
    async with Engine("memory:", agents=[agent]) as engine:
        engine.hosting.on_end = lambda name, state: ended.append(
            (name, state.outcome, state.spend.llm_calls)
        )
        for _ in range(2):
            await (await engine.start("hi")).result()

    assert ended == [("a", "COMPLETED", 1)] * 2


def test_the_budget_of_an_agent_holds_unless_a_run_brings_its_own() -> None:
    def limited() -> Agent:
        model = ScriptedClient([calls("look", order=1), "done"])
        return Agent(model, tools=[look], budget=Budget(llm_calls=1))

    assert limited().run_sync("x").outcome == "LIMITED"
    assert limited().run_sync("x", budget=Budget(llm_calls=5)).outcome == "COMPLETED"


# -- instructions and deps -----------------------------------------------------------------


async def test_instructions_of_the_start_are_recorded_as_text() -> None:
    seen: list[Start] = []

    async def instructions(start: Start) -> str:
        seen.append(start)
        return f"You serve {start.tenant}; the pool has {start.deps[Pool].size}."

    agent = Agent(ScriptedClient(["ok"]), instructions=instructions)
    async with agent.engine(deps=[Pool()]) as engine:
        started = await agent.start(engine, "Hi.", tenant="acme", user="ann")
        await started.result()
        (first,) = await engine.store.read(started.id, limit=1)
        assert first.data["config"]["system"] == "You serve acme; the pool has 3."
    assert [(each.tenant, each.user) for each in seen] == [("acme", "ann")]


async def test_instructions_that_fail_start_nothing() -> None:
    def broken(start: Start) -> str:
        raise ZeroDivisionError(start.tenant)

    agent = Agent(ScriptedClient(["ok"]), instructions=broken)
    async with agent.engine() as engine:
        with pytest.raises(ZeroDivisionError):
            await agent.start(engine, "Hi.")
        assert await engine.store.runs(RunQuery()) == []


async def test_instructions_that_fail_in_a_turn_end_the_turn_and_not_the_session() -> None:
    broken = True

    def instructions(start: Start) -> str:
        if broken:
            raise ZeroDivisionError("a bug")
        return "Be kind."

    agent = Agent(ScriptedClient(["hello"]), instructions=instructions)
    async with agent.engine() as engine:
        session = await agent.session(engine)
        failed = await (await session.send("Hi.")).result()
        assert (failed.outcome, failed.reason) == ("FAILED", "instructions")
        broken = False
        assert (await (await session.send("Hi.")).result()).output == "hello"


async def test_tools_get_the_deps_of_the_engine_by_type_and_the_log_none_of_them() -> None:
    @tool(effects="none")
    def size(context: ToolContext) -> int:
        """Tell the size."""
        return context.deps[Pool].size

    model = ScriptedClient([calls("size"), "done"])

    agent = Agent(model, tools=[size])
    async with agent.engine(deps=[Pool()]) as engine:
        started = await agent.start(engine, "How large?")
        await started.result()
        log = await engine.store.read(started.id)
    assert "3" in [event.data.get("output") for event in log]
    assert "Pool" not in str([event.data for event in log])


def test_a_dep_that_is_missing_is_named() -> None:
    context = ToolContext(run_id="r", call_id="c", idempotency_key="i")

    with pytest.raises(LookupError, match=r"expected one Pool in deps, got none: Engine\(…, deps="):
        _ = context.deps[Pool]


# -- several agents in one engine ----------------------------------------------------------


async def test_two_agents_have_their_own_models_tools_of_one_name_and_guards() -> None:
    @tool(name="find", effects="none")
    def find_orders(word: str) -> str:
        """Find orders."""
        return f"orders about {word}"

    @tool(name="find", effects="none")
    def find_papers(word: str) -> str:
        """Find papers."""
        return f"papers about {word}"

    def one(name: str, found: Any, guards: Any = ()) -> Agent:
        model = ScriptedClient([calls("find", word="snow"), f"{name} has it"])
        return Agent(model, name=name, tools=[found], guards=guards)

    clerk = one("clerk", find_orders, [NoOrders()])
    scholar = one("scholar", find_papers)

    async with Engine(MemoryEventStore(), agents=[clerk, scholar]) as engine:
        results: dict[str, list[Any]] = {}
        for name in ("clerk", "scholar"):
            started = await engine.start("Snow?", agent=name)
            assert (await started.result()).output == f"{name} has it"
            log = await engine.store.read(started.id)
            results[name] = [e.data.get("output") or e.data.get("reason") for e in log]
        assert "blocked" in results["clerk"]
        assert "papers about snow" in results["scholar"]


async def test_an_agent_calls_another_one_that_has_a_model_of_its_own() -> None:
    buyer = Agent(ScriptedClient(["It costs 5."]), name="buyer")
    model = ScriptedClient([calls("ask_buyer", task="What does it cost?"), "5 it is."])
    clerk = Agent(model, name="clerk", tools=[buyer.as_tool("Asks the buyer.", name="ask_buyer")])

    async with clerk.engine() as engine:
        started = await clerk.start(engine, "What does it cost?")
        assert (await started.result()).output == "5 it is."
        page = await engine.store.runs(RunQuery(parent_id=started.id))
        assert [each.algorithm for each in page] == ["buyer"]


async def test_a_fallback_answers_when_the_first_model_is_down_and_both_are_in_the_log() -> None:
    agent = Agent([Down(), ScriptedClient(["second"])], retries=ONCE)
    async with agent.engine() as engine:
        started = await agent.start(engine, "Hi.")
        assert (await started.result()).output == "second"
        log = await engine.store.read(started.id)
    (done,) = [event.data for event in log if event.kind == "lib.llm.completed"]
    assert done["attempts"] == 2
    (failed,) = done["failed_models"]
    assert failed["error"] == {"type": "LLMError", "message": "connection refused"}


def test_a_model_that_refuses_the_request_is_not_replaced() -> None:
    agent = Agent([Down(retryable=False), ScriptedClient(["second"])], retries=ONCE)

    assert agent.run_sync("Hi.").outcome == "FAILED"


async def test_if_every_model_is_down_the_run_fails_and_names_each_of_them() -> None:
    agent = Agent([Down(), Down()], retries=ONCE)
    async with agent.engine() as engine:
        started = await agent.start(engine, "Hi.")
        assert (await started.result()).outcome == "FAILED"
        log = await engine.store.read(started.id)
    (failed,) = [event.data for event in log if event.kind == "lib.llm.failed"]
    assert (failed["attempts"], len(failed["failed_models"])) == (2, 1)


# -- streams -------------------------------------------------------------------------------


async def gathered(items: Any) -> list[StreamItem[Any]]:
    async with aclosing(items):
        return [item async for item in items]


async def test_a_stream_yields_calls_results_deltas_and_the_end_in_their_order() -> None:
    agent = Agent(ScriptedClient([calls("look", order=7), "It is paid."]), tools=[look])

    items = await gathered(agent.stream("Is order 7 paid?"))
    kinds = [type(item) for item in items if not isinstance(item, ReplyDelta)]
    assert kinds == [ModelReplied, ToolStarted, ToolEnded, ModelReplied, RunEnded]
    written = [item.text for item in items if isinstance(item, ReplyDelta)]
    assert "".join(written) == "It is paid."
    (ended,) = [item for item in items if isinstance(item, ToolEnded)]
    assert (ended.name, ended.output, ended.failed) == ("look", "order 7 is paid", False)
    last = items[-1]
    assert isinstance(last, RunEnded)
    assert last.result.output == "It is paid."
    places = [item.seq for item in items]
    assert places == sorted(places)


async def test_a_stream_continues_after_a_cursor() -> None:
    agent = Agent(ScriptedClient([calls("look", order=7), "paid"]), tools=[look])
    async with agent.engine() as engine:
        started = await agent.start(engine, "Is it?", stream=True)
        whole = [
            each for each in await gathered(started.stream()) if not isinstance(each, ReplyDelta)
        ]
        for at, item in enumerate(whole[:-1]):
            rest = await gathered(engine.run(started.id).stream(after=item.seq))
            assert [type(each) for each in rest] == [type(each) for each in whole[at + 1 :]]


async def test_a_stream_shows_an_open_approval_and_continues_after_the_decision() -> None:
    @tool(effects="once", approval=True)
    def refund(order: int) -> str:
        """Refund."""
        return f"refunded {order}"

    agent = Agent(ScriptedClient([calls("refund", order=7), "done"]), tools=[refund])
    seen: list[type] = []
    async with agent.engine() as engine:
        started = await agent.start(engine, "Refund 7.", stream=True)
        async with aclosing(started.stream()) as items:
            async for item in items:
                seen.append(type(item))
                if isinstance(item, ApprovalRequested):
                    assert (item.name, item.arguments) == ("refund", {"order": 7})
                    await started.approve(item.key)
    assert seen[-1] is RunEnded
    assert ToolEnded in seen


async def test_a_stream_that_is_abandoned_leaves_no_task_and_the_run_goes_on() -> None:
    agent = Agent(ScriptedClient([calls("look", order=7), "paid"]), tools=[look])
    async with agent.engine() as engine:
        before = len(asyncio.all_tasks())
        started = await agent.start(engine, "Is it?", stream=True)
        async with aclosing(started.stream()) as items:
            async for _ in items:
                break
        assert (await started.result()).output == "paid"
        assert len(asyncio.all_tasks()) == before


async def test_a_failed_model_is_an_item_and_the_end_holds_the_reason() -> None:
    items = await gathered(Agent(Down(), retries=ONCE).stream("Hi."))

    assert [type(item) for item in items] == [ModelFailed, RunEnded]
    last = items[-1]
    assert isinstance(last, RunEnded)
    assert last.result.outcome == "FAILED"


async def test_a_typed_session_has_typed_turns() -> None:
    async def main() -> Result[Ticket]:
        agent = Agent(ScriptedClient(['{"title": "a"}']), output=Ticket)
        async with agent.engine() as engine:
            session = await agent.session(engine)
            return await (await session.send("A ticket.")).result()

    assert (await main()).output.title == "a"


# -- what is refused -----------------------------------------------------------------------


def test_an_invalid_part_of_an_agent_is_refused_with_the_way_out() -> None:
    client = ScriptedClient(["x"])
    cases: list[tuple[type[Exception], str, Any]] = [
        (
            ValueError,
            "expected provider:model, got 'gpt-5': did you mean 'openai:gpt-5'. providers",
            lambda: Agent("gpt-5"),
        ),
        (ValueError, "got 'openai:'", lambda: Agent("openai:")),
        (ValueError, "expected a model or several, got an empty list", lambda: Agent([])),
        (TypeError, "expected a model, got int", lambda: Agent([wrong(7)])),
        (ValueError, "got an empty one", lambda: Agent(client, name=" ")),
        (
            TypeError,
            "expected text as an agent's name, got int",
            lambda: Agent(client, name=wrong(7)),
        ),
        (TypeError, "expected tools as a list", lambda: Agent(client, tools=wrong(look))),
        (
            TypeError,
            "expected a function, a Tool or an agent as a tool, got str",
            lambda: Agent(client, tools=[wrong("look")]),
        ),
        (
            TypeError,
            r"got the agent 'agent': give agent\.as_tool",
            lambda: Agent(client, tools=[wrong(Agent(client))]),
        ),
        (
            TypeError,
            "expected text or a function as instructions, got int",
            lambda: Agent(client, instructions=wrong(7)),
        ),
        (
            TypeError,
            "expected a pydantic model as output, got dict",
            lambda: Agent(client, output=wrong({})),
        ),
        (ValueError, "two tools", lambda: Agent(client, tools=[look, look])),
        (
            TypeError,
            r"expected a Budget, got int: use Budget\(tokens=…\)",
            lambda: Agent(client, budget=wrong(7)),
        ),
        (TypeError, "budget tokens, got '5'", lambda: Budget(tokens=wrong("5"))),
        (TypeError, "expected a whole number or None", lambda: Budget(llm_calls=wrong(1.5))),
        (TypeError, "budget depth, got True", lambda: Budget(depth=True)),
        (TypeError, "expected a RetryPolicy, got int", lambda: Agent(client, retries=wrong(3))),
        (TypeError, "expected a PriceBook, got int", lambda: Agent(client, prices=wrong(3))),
        (TypeError, "makes an algorithm, got int", lambda: Agent(client, algorithm=wrong(3))),
        (TypeError, "as deadline_s, got '3'", lambda: Agent(client, deadline_s=wrong("3"))),
        (ValueError, "expected hedge_after_s above 0", lambda: Agent(client, hedge_after_s=0)),
        (ValueError, "expected max_steps of 1 or more", lambda: Agent(client, max_steps=0)),
        (TypeError, "number as max_steps, got None", lambda: Agent(client, max_steps=wrong(None))),
        (TypeError, "settings as a mapping", lambda: Agent(client, settings=wrong([1]))),
        (TypeError, "settings of JSON values", lambda: Agent(client, settings={"a": object()})),
        (
            ValueError,
            "have the name 'look'",
            lambda: Agent(client, tools=[look, Agent(client).as_tool("Looks.", name="look")]),
        ),
        (
            TypeError,
            "expected an Agent, got ScriptedClient",
            lambda: Engine("memory:", agents=[wrong(client)]),
        ),
        (
            ValueError,
            "two agents of one engine have the name 'agent'",
            lambda: Engine("memory:", agents=[Agent(client), Agent(client)]),
        ),
        (
            ValueError,
            "two deps have the type Pool",
            lambda: Engine("memory:", agents=[Agent(client)], deps=[Pool(), Pool()]),
        ),
        (
            TypeError,
            "got the class Pool",
            lambda: Engine("memory:", agents=[Agent(client)], deps=[Pool]),
        ),
        (
            TypeError,
            "expected a list of objects as deps, got Pool",
            lambda: Engine("memory:", agents=[Agent(client)], deps=wrong(Pool())),
        ),
    ]

    for kind, message, make in cases:
        with pytest.raises(kind, match=message):
            make()


def test_an_agent_is_not_changed_once_it_is_made() -> None:
    agent: Any = Agent(ScriptedClient(["x"]))

    with pytest.raises(AttributeError):
        agent.name = "other"


async def test_an_agent_of_another_engine_is_refused() -> None:
    ours, other = (Agent(ScriptedClient(["x"])) for _ in range(2))
    async with ours.engine() as engine:
        with pytest.raises(ValueError, match="got another one of the name 'agent'"):
            await other.start(engine, "Hi.")
        with pytest.raises(UnknownAlgorithm):
            await engine.start("Hi.", agent="missing")


def test_a_tool_stays_the_function_that_it_is() -> None:
    assert look(7) == "order 7 is paid"
    assert list(signature(look).parameters) == ["order"]


def test_a_plain_function_is_a_tool_of_effect_once() -> None:
    def pay(order: int) -> str:
        """Pay."""
        raise ToolError("failed", f"no money for {order}")

    (made,) = Agent(ScriptedClient(["x"]), tools=[pay]).tools
    assert (made.name, made.effects) == ("pay", "once")


def test_the_conversation_of_an_agent_begins_with_its_instructions() -> None:
    model = ScriptedClient(["x"])
    Agent(model, instructions="Be kind.").run_sync("Hi.")

    (call,) = model.calls
    assert [message.role for message in call.messages] == ["system", "user"]
    assert call.messages[0] == Message.system("Be kind.")

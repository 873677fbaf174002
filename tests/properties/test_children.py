"""Laws of trees of runs over random agents: budgets hold, all of it ends, all is paid for once."""

import random
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lib.algorithms import React
from lib.engine import AgentTool, Budget, ChildHandler, Engine, LLMHandler, Result, ToolHandler
from lib.engine.api.check import request_check
from lib.errors import LLMError
from lib.events import Event, EventStore, MemoryEventStore, NewEvent, RunInfo
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.llm import FunctionClient, Message, Reply, Text, ToolCall, ToolResult, Usage
from lib.observe import spend_of
from lib.resilience import RetryPolicy
from lib.tools import tool

MAX_TOKENS_A_CALL = 30
COST_A_CALL = 0.25
ALGORITHMS = [React("boss", max_steps=6), React("helper", max_steps=4)]

seeds = st.integers(0, 2**32 - 1)
budgets = st.builds(
    Budget,
    tokens=st.none() | st.integers(0, 600),
    cost=st.none() | st.integers(0, 20).map(lambda quarters: quarters / 4),
    llm_calls=st.none() | st.integers(0, 30),
    tool_calls=st.none() | st.integers(0, 30),
    depth=st.none() | st.integers(0, 4),
)


class Restless(MemoryEventStore):
    """A store that cancels a run of the tree after so many appends."""

    def __init__(self, cancel_after: int) -> None:
        super().__init__()
        self.left = cancel_after

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        stored = await super().append(run_id, events, expected=expected)
        self.left -= 1
        if self.left == 0:
            root = (await self.runs())[0].run_id
            cancel = NewEvent(k.CANCEL_REQUESTED, {"signal_id": "s"}, events[0].at)
            await super().append(root, [cancel], expected=None)
        return stored


def chaotic(seed: int, store: EventStore) -> Engine:
    """Return an engine whose agents call each other, tools and nothing at all, by the dice."""
    dice = random.Random(seed)

    def think(messages: Sequence[Message]) -> Reply:
        used = Usage(
            input_tokens=dice.randrange(20), output_tokens=dice.randrange(10), cost=COST_A_CALL
        )
        if dice.random() < 0.04:
            raise LLMError("no more", status=500)
        results = sum(isinstance(part, ToolResult) for m in messages for part in m.parts)
        if dice.random() < 0.1 + 0.2 * results:
            return Reply((Text("answer"),), used)
        names = dice.choices(
            ["work", "expert", "novice", "guarded", "missing"], k=dice.randint(1, 3)
        )
        return Reply(tuple(call(n, name) for n, name in enumerate(names)), used, "tool_calls")

    def call(number: int, name: str) -> ToolCall:
        arguments: dict[str, Any] = {} if name == "work" else {"task": "do it"}
        return ToolCall(f"c{number}", name, arguments if dice.random() < 0.95 else {"tusk": 1})

    @tool(effects="idempotent")
    def work() -> str:
        return "worked"

    small = Budget(tokens=dice.randrange(1, 200), llm_calls=dice.randrange(6), depth=1)
    agents = [
        AgentTool("expert", "Knows a lot.", "helper"),
        AgentTool("novice", "Knows little.", "helper", budget=small),
        AgentTool("guarded", "Must be allowed.", "helper", approval=dice.random() < 0.3),
    ]
    once = RetryPolicy(attempts=1)
    handlers = [
        ToolHandler([work]),
        ChildHandler(agents),
        LLMHandler(FunctionClient(think), retries=once),
    ]
    return Engine(store, handlers, algorithms=ALGORITHMS, poll_s=0.01, grace_s=0.5)


async def allow_or_deny(engine: Engine, dice: random.Random) -> None:
    """Decide on every call that waits, in any run of the tree."""
    for info in await engine.store.runs():
        handle = engine.run(info.run_id)
        for call in await handle.pending() if info.status == "open" else ():
            await (handle.approve if dice.random() < 0.7 else handle.deny)(call.key)


async def play(
    seed: int, budget: Budget | None, *, cancel_after: int = -1, stop_after: int = -1
) -> tuple[Result, list[RunInfo], list[list[Event]]]:
    """Run the tree of this seed to its end; return how, its runs, and their logs.

    Args:
        seed: of everything.
        budget: of the root.
        cancel_after: appends after which the root is cancelled, -1 for never.
        stop_after: appends after which the engine is closed and another takes over, likewise.
    """
    store, dice = Restless(cancel_after), random.Random(seed + 1)
    run_id, appends = "", 0
    async with chaotic(seed, store) as engine:
        run_id = (await engine.start("go", budget=budget)).id
        with store.wakeups.listen() as wake:
            while (await engine.run(run_id).info()).status == "open":
                await allow_or_deny(engine, dice)
                await wake.wait(0.05)
                appends += 1
                if appends == stop_after:
                    break
    await store.setup()
    async with chaotic(seed + 2, store) as engine:
        await engine.recover()
        with store.wakeups.listen() as wake:
            while (await engine.run(run_id).info()).status == "open":
                await allow_or_deny(engine, dice)
                await wake.wait(0.05)
        result = await engine.run(run_id).result()
        runs = await store.runs()
        report = await verify_store(store, deep=True, checks=[request_check(ALGORITHMS)])
        assert report.faults == []
        return result, runs, [await store.read(info.run_id) for info in runs]


def model_calls_at_once(logs: list[list[Event]]) -> int:
    """Return no fewer calls than were ever under way at once: a run makes one at a time."""
    return len(logs)


@given(seed=seeds, budget=budgets)
async def test_a_tree_spends_at_most_its_budget_plus_the_calls_in_flight(
    seed: int, budget: Budget
) -> None:
    result, runs, logs = await play(seed, budget)

    spend, over = result.spend, model_calls_at_once(logs)
    assert budget.llm_calls is None or spend.llm_calls <= budget.llm_calls
    assert budget.tool_calls is None or spend.tool_calls <= budget.tool_calls
    assert budget.tokens is None or spend.tokens <= budget.tokens + over * MAX_TOKENS_A_CALL
    assert budget.cost is None or (spend.cost or 0) <= budget.cost + over * COST_A_CALL
    assert {info.status for info in runs} == {"closed"}
    levels: dict[str, int] = {}
    for info in runs:
        levels[info.run_id] = levels[info.parent_id] + 1 if info.parent_id else 0
    assert max(levels.values()) <= (8 if budget.depth is None else budget.depth)


@given(seed=seeds, budget=st.none() | budgets)
async def test_the_spend_of_a_root_is_the_sum_over_the_logs_of_its_tree(
    seed: int, budget: Budget | None
) -> None:
    result, _, logs = await play(seed, budget)

    spent = spend_of(event for log in logs for event in log)
    assert (spent.llm_calls, spent.tool_calls) == (result.spend.llm_calls, result.spend.tool_calls)
    assert spent.total.tokens == result.spend.tokens
    assert float(spent.total.known_cost) == (result.spend.cost or 0)


@given(seed=seeds, cancel_after=st.integers(1, 60))
async def test_a_tree_cancelled_anywhere_ends_everywhere_and_every_call_has_a_result(
    seed: int, cancel_after: int
) -> None:
    result, runs, logs = await play(seed, None, cancel_after=cancel_after)

    assert result.outcome in k.OUTCOMES
    assert {info.status for info in runs} == {"closed"}
    for log in logs:
        requested = [event.data["key"] for event in log if event.kind in k.REQUESTS]
        answered = [event.data["key"] for event in log if event.kind in k.RESULTS]
        assert sorted(requested) == sorted(answered)
    if result.outcome == "CANCELLED":
        assert logs[0][-1].kind == k.RUN_COMPLETED


@given(seed=seeds, stop_after=st.integers(1, 25), cancel_after=st.just(-1) | st.integers(1, 40))
async def test_a_tree_whose_engine_is_closed_anywhere_goes_on_in_another_one(
    seed: int, stop_after: int, cancel_after: int
) -> None:
    budget = Budget(tokens=400, llm_calls=40)
    _, runs, logs = await play(seed, budget, cancel_after=cancel_after, stop_after=stop_after)

    assert {info.status for info in runs} == {"closed"}
    starts = [event.run_id for log in logs for event in log if event.kind == k.RUN_STARTED]
    assert len(starts) == len(set(starts)) == len(runs)

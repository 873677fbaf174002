"""Laws of runs over random agents: budgets hold, cancelled runs are paired, folds agree."""

import asyncio
import random
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lib.algorithms import React
from lib.engine import Budget, Result
from lib.engine.api.check import request_check
from lib.engine.core.state import begin, evolve, fold
from lib.errors import LLMError, ToolError
from lib.events import Event, MemoryEventStore
from lib.events.verify import verify_store
from lib.llm import FunctionClient, Message, Reply, Text, ToolCall, Usage
from lib.testing.agents import make_engine
from lib.tools import Tool, tool

MAX_TOKENS_A_CALL = 30


def chaotic(seed: int) -> tuple[FunctionClient, list[Tool]]:
    """Return a model and tools that do anything, the same for the same seed."""
    dice = random.Random(seed)

    def think(messages: Sequence[Message]) -> Reply:
        usage = Usage(input_tokens=dice.randrange(20), output_tokens=dice.randrange(10), cost=0.5)
        if dice.random() < 0.05:
            raise LLMError("no more", status=500)
        if dice.random() < 0.15:
            return Reply((Text("answer"),), usage)
        names = dice.choices(["works", "fails", "asks", "unknown"], k=dice.randint(1, 4))
        calls = [ToolCall(dice.choice(["a", "b", f"c{n}"]), name) for n, name in enumerate(names)]
        return Reply((Text("let me see"), *calls), usage, "tool_calls")

    @tool(effects="none")
    async def works() -> str:
        await asyncio.sleep(0)  # noqa: TID251 - lets others run
        return "x" * dice.randrange(50)

    @tool
    async def fails() -> str:
        raise ToolError("unavailable", "come back later")

    @tool(approval=lambda _: dice.random() < 0.2)
    def asks() -> str:
        return "approved"

    return FunctionClient(think), [works, fails, asks]


seeds = st.integers(0, 2**32 - 1)
budgets = st.builds(
    Budget,
    tokens=st.none() | st.integers(0, 200),
    cost=st.none() | st.floats(0, 5),
    llm_calls=st.none() | st.integers(0, 12),
    tool_calls=st.none() | st.integers(0, 12),
)


async def play(seed: int, budget: Budget | None, cancel_at: int) -> tuple[Result, list[Event]]:
    """Run the agent of this seed, deny or approve what waits, cancel at an event; verify it all."""
    return await _play(*chaotic(seed), random.Random(seed + 1), budget, cancel_at)


async def _play(
    client: FunctionClient,
    tools: Sequence[Tool],
    dice: random.Random,
    budget: Budget | None,
    cancel_at: int,
) -> tuple[Result, list[Event]]:
    store = MemoryEventStore()
    async with make_engine(client, *tools, store=store, agent=React(max_steps=20)) as engine:
        started = await engine.start("go", budget=budget)
        cancelled = False
        while (await started.info()).status == "open":
            await engine.wait_while_driven(started.id)
            if (await started.info()).head >= cancel_at and not cancelled:
                cancelled = await started.cancel()
            for call in await started.pending():
                await (started.approve if dice.random() < 0.5 else started.deny)(call.key)
        result = await started.result()
        report = await verify_store(store, deep=True, checks=[request_check([React()])])
        assert report.faults == []
        return result, await store.read(started.id)


@given(seed=seeds, budget=budgets)
async def test_spend_is_never_above_the_budget_plus_the_call_in_flight(
    seed: int, budget: Budget
) -> None:
    result, _ = await play(seed, budget, cancel_at=10**9)

    spend = result.spend
    assert budget.llm_calls is None or spend.llm_calls <= budget.llm_calls
    assert budget.tool_calls is None or spend.tool_calls <= budget.tool_calls
    assert budget.tokens is None or spend.tokens <= max(budget.tokens - 1, 0) + MAX_TOKENS_A_CALL
    assert budget.cost is None or (spend.cost or 0) <= budget.cost + 0.5
    if budget.tokens == 0 or budget.cost == 0:
        assert spend.llm_calls == 0


@given(seed=seeds, cancel_at=st.integers(1, 60))
async def test_a_run_cancelled_anywhere_has_a_result_for_every_call(
    seed: int, cancel_at: int
) -> None:
    result, log = await play(seed, None, cancel_at)

    assert log[-1].kind == "lib.run.completed"
    assert result.outcome in ("CANCELLED", "COMPLETED", "FAILED", "LIMITED")


@given(seed=seeds, cut=st.integers(1, 80), noise=st.integers(0, 80))
async def test_a_fold_may_stop_anywhere_and_unknown_events_change_nothing(
    seed: int, cut: int, noise: int
) -> None:
    _, log = await play(seed, None, cancel_at=10**9)
    react = React()

    state = fold(react, log[:cut])
    for event in log[cut:]:
        state = evolve(react, state, event)
    assert state == fold(react, log)

    at = min(noise, len(log) - 1)
    strange = Event(log[0].run_id, log[at].seq, "acme.note", {"key": "llm/1"}, log[at].at)
    noisy = begin(react, log[0])
    for event in log[1 : at + 1]:
        noisy = evolve(react, noisy, event)
    noisy = evolve(react, noisy, strange)
    for event in log[at + 1 :]:
        noisy = evolve(react, noisy, event)
    assert noisy == fold(react, log)

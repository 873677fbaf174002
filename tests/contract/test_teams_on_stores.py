"""Laws of teams over random models, on every event store: budgets, cancels, hand-offs, tenants."""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Agent, Budget, tool
from lib._util.clock import SYSTEM_CLOCK
from lib.algorithms import Debate, Reflexion, Swarm, by_config
from lib.engine.api.check import StoreCheck
from lib.errors import LLMError, RunNotFound, ToolError
from lib.events import Event, EventStore, MemoryEventStore
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.llm import Message, Reply, Text, ToolCall, Usage, reply_from_json
from lib.resilience import RetryPolicy
from lib.testing.providers import StrictClient

sys.path.insert(0, str(Path(__file__).parent))

from test_event_stores import EVENT_STORES, SERVERS

MAX_TOKENS_A_CALL = 30
MEMBERS = ("ann", "bob", "cid")
MAX_HANDOFFS = 3
TEAMS = ("reflexion", "debate", "swarm")


def chaotic(team: str, seed: int) -> Agent:
    """Return a team whose models do anything, the same for the same seed."""
    dice = random.Random(seed)

    def think(messages: Sequence[Message]) -> Reply:
        usage = Usage(input_tokens=dice.randrange(20), output_tokens=dice.randrange(10), cost=0.5)
        if dice.random() < 0.04:
            raise LLMError("no more", status=400)
        if messages[0].text == "judge":
            passed = "true" if dice.random() < 0.4 else "false"
            return Reply((Text(f'{{"passed": {passed}, "feedback": "no"}}'),), usage)
        if dice.random() < 0.3:
            return Reply((Text(dice.choice(["yes", "no"])),), usage)
        handoffs = [f"hand_off_to_{name}" for name in (*MEMBERS, "team")]
        names = dice.choices(["works", "fails", "unknown", *handoffs], k=dice.randint(1, 4))
        calls = [ToolCall(dice.choice(["a", "b", f"c{n}"]), name) for n, name in enumerate(names)]
        return Reply((Text("let me see"), *calls), usage, "tool_calls")

    @tool(effects="none")
    async def works() -> str:
        """Work."""
        await asyncio.sleep(0)  # noqa: TID251 - lets others run
        return "done"

    @tool
    async def fails() -> str:
        """Fail."""
        raise ToolError("unavailable", "come back later")

    def agent(name: str, **options: Any) -> Agent:
        once, tools = RetryPolicy(attempts=1), [works, fails]
        client = StrictClient(think)
        return Agent(client, name=name, tools=tools, retries=once, max_steps=12, **options)

    members = [agent(name) for name in MEMBERS]
    algorithm = {
        "reflexion": lambda: Reflexion("judge", trials=2),
        "debate": lambda: Debate(members, rounds=3, by=dice.choice(["judge", "vote"])),
        "swarm": lambda: Swarm(members, max_handoffs=MAX_HANDOFFS),
    }[team]()
    return agent("team", algorithm=algorithm)


async def play(
    team: str,
    seed: int,
    *,
    store: EventStore | None = None,
    budget: Budget | None = None,
    cancel_at: int = 10**9,
) -> list[Event]:
    """Run the team of this seed to its end, cancel it at an event; return its log, verified."""
    store = store or MemoryEventStore()
    agent = chaotic(team, seed)
    async with agent.engine(store, poll_s=0.01) as engine:
        run = await agent.start(engine, "go", budget=budget, tenant="acme")
        async for event in run.events():
            if event.seq >= cancel_at:
                await run.cancel()
                break
        result = await run.result()
        log = await store.read(run.id)
        assert {event.tenant for event in log} == {"acme"}
        assert log[-1].data["outcome"] == result.outcome
        with pytest.raises(RunNotFound):
            await engine.run(run.id, tenant="globex").result(wait=False)
        check = StoreCheck([], store, by_config=by_config)
        report = await verify_store(store, deep=True, checks=[check])
        assert report.faults == []
        return log


def check_spend(log: Sequence[Event], budget: Budget) -> None:
    """Hold what the calls of a log have used against a budget; what was in flight may exceed it."""
    replies = [
        reply_from_json(event.data["reply"]) for event in log if event.kind == k.LLM_COMPLETED
    ]
    used = sum(reply.usage.input_tokens + reply.usage.output_tokens for reply in replies)
    requested = sum(event.kind == k.LLM_REQUESTED for event in log)
    called = [e for e in log if e.kind == k.TOOL_REQUESTED and not e.data.get("unstarted")]
    at_once = len(MEMBERS)
    assert budget.llm_calls is None or requested <= budget.llm_calls
    assert budget.tool_calls is None or len(called) <= budget.tool_calls
    limit = None if budget.tokens is None else max(budget.tokens - 1, 0)
    assert limit is None or used <= limit + at_once * MAX_TOKENS_A_CALL


def check_calls(log: Sequence[Event]) -> None:
    """Check that each call of the log has one result, and each reply at most one hand-off."""
    answered = Counter(e.data["key"] for e in log if e.kind in (k.TOOL_COMPLETED, k.TOOL_FAILED))
    requested = Counter(e.data["key"] for e in log if e.kind == k.TOOL_REQUESTED)
    assert answered == requested
    assert set(answered.values()) <= {1}
    handoffs = [event.data for event in log if event.kind == k.SWARM_HANDOFF]
    replies = Counter(data["key"].rpartition("/")[0] for data in handoffs)
    assert set(replies.values()) <= {1}
    assert len(handoffs) <= MAX_HANDOFFS
    speaker = "team"
    for data in handoffs:
        assert data["source"] == speaker != data["target"]
        speaker = data["target"]


seeds = st.integers(0, 2**32 - 1)
budgets = st.builds(
    Budget,
    tokens=st.none() | st.integers(0, 300),
    llm_calls=st.none() | st.integers(0, 12),
    tool_calls=st.none() | st.integers(0, 12),
)


@given(team=st.sampled_from(TEAMS), seed=seeds, budget=budgets)
async def test_a_team_spends_no_more_than_its_budget_and_what_was_in_flight(
    team: str, seed: int, budget: Budget
) -> None:
    log = await play(team, seed, budget=budget)

    check_spend(log, budget)
    check_calls(log)


@given(team=st.sampled_from(TEAMS), seed=seeds, cancel_at=st.integers(1, 40))
async def test_a_team_cancelled_anywhere_ends_and_leaves_no_call_open(
    team: str, seed: int, cancel_at: int
) -> None:
    log = await play(team, seed, cancel_at=cancel_at)

    check_calls(log)


@given(seed=seeds)
async def test_a_swarm_hands_over_once_in_a_reply_and_never_above_its_cap(seed: int) -> None:
    log = await play("swarm", seed)

    check_calls(log)
    agents = {e.data.get("agent", "team") for e in log if e.kind == k.LLM_REQUESTED}
    targets = {e.data["target"] for e in log if e.kind == k.SWARM_HANDOFF}
    assert agents <= {"team"} | targets


@pytest.mark.parametrize("store", EVENT_STORES)
async def test_teams_keep_budgets_cancels_and_tenants_on_every_store(
    store: str, tmp_path: Path
) -> None:
    if start := SERVERS.get(store):
        start()
    for number, team in enumerate(TEAMS):
        budget = Budget(llm_calls=9, tokens=200)
        for cancel_at in (4, 10**9):
            opened = EVENT_STORES[store].open(tmp_path, SYSTEM_CLOCK)  # its engine closes it
            log = await play(team, number, store=opened, budget=budget, cancel_at=cancel_at)
            check_calls(log)
            check_spend(log, budget)

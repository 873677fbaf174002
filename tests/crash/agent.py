"""The agent that the crash tests kill: every kind of tool, a ledger on disk, a crash plan.

A crash plan names the point at which the process dies: `append:3:before` (the third append of the
process has not reached the store), `append:3:after` (it has, without an answer), `pay:1:before` and
`pay:1:after` (inside the first effect of that tool, on either side of its entry in the ledger).

At two further points it is the connection that dies, and the process lives on: `append:3:cut` (the
server has stored the third append, and its answer is lost) and `append:3:lost` (the server never
got it). The process cannot tell one from the other.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from breaker import Breaker

from lib import Agent
from lib._util.clock import SYSTEM_CLOCK
from lib.algorithms import Debate, React, Reflexion, Swarm
from lib.context import Summarize
from lib.engine import AgentTool, ChildHandler, Engine, LLMHandler, ToolAwaited, ToolHandler
from lib.errors import NotPending, StoreError
from lib.events import Event, NewEvent
from lib.events import kinds as k
from lib.llm import FunctionClient, Message, Reply, ToolCall, ToolResult, ToolSpec
from lib.memory import Memory, RuleExtractor
from lib.tools import DidNotHappen, Happened, Tool, ToolContext, tool
from lib.vector import Record, SQLiteVectorStore

ALGORITHMS = [React(), React("helper", system="helper")]
HELPER = AgentTool("helper", "Pays and books.", "helper")
DIED = 77
"""The exit status of a process that died by its plan."""
TOOLS = ("pay", "book", "look", "send")
MARK = ToolSpec("mark", "Marks a row of the page.", {"type": "object", "properties": {}})
TEAMS = ("reflexion", "debate", "swarm")
REMEMBER = "remember"
"""The scenario of an agent with a memory, in a file beside the ledger."""
HOME = "I live in Lisbon."
SUMMARIZE = "summarize"
"""The scenario of a session whose first turn is summed up before the second one is answered."""
LONG_TURN = "q" * 2000
CUTS = ("cut", "lost")
"""What ends the names of the points at which a connection dies."""


async def exit_at_once() -> None:
    """Die as a process does."""
    os._exit(DIED)


@dataclass
class CrashPlan:
    """Dies at one point, once for all; `seen` lists the points that were passed."""

    point: str = ""
    die: Callable[[], Awaitable[None]] = exit_at_once
    seen: list[str] = field(default_factory=list[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    dead: bool = False

    @property
    def cuts(self) -> bool:
        """True if a connection is to die."""
        return self.point.endswith(CUTS)

    def next(self, what: str) -> str:
        self.counts[what] += 1
        return f"{what}:{self.counts[what]}"

    async def pass_by(self, point: str) -> None:
        self.seen.append(point)
        if self.dead or point == self.point:
            self.dead = True
            await self.die()


class CrashingStore:
    """A process's way to a store: the process, or the way, dies beside an append."""

    def __init__(self, store: Any, plan: CrashPlan, breaker: Breaker | None) -> None:
        self._store, self._plan, self._breaker = store, plan, breaker

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._never if self._plan.dead and callable(found) else found

    async def _never(self, *_: Any, **__: Any) -> None:
        """Nothing reaches the store from a process that is dead."""
        await self._plan.die()

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        point = self._plan.next("append")
        await self._plan.pass_by(f"{point}:before")
        with ExitStack() as stack:
            name, _, how = self._plan.point.rpartition(":")
            if self._breaker is not None and name == point and how in CUTS:
                stack.enter_context(self._breaker.armed(how))
            stored = await self._store.append(run_id, events, expected=expected)
        await self._plan.pass_by(f"{point}:after")
        return stored


class LaterClock:
    """A clock that is ahead, so that the leases of dead processes have ended."""

    def __init__(self, hours: int) -> None:
        self.hours = hours

    def now(self) -> datetime:
        return SYSTEM_CLOCK.now() + timedelta(hours=self.hours)

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic()

    async def sleep(self, delay_s: float) -> None:
        await SYSTEM_CLOCK.sleep(delay_s)


class ImpatientClock(LaterClock):
    """A clock on which the pauses before a store is tried again are short."""

    async def sleep(self, delay_s: float) -> None:
        await super().sleep(delay_s / 20)


def tools(ledger: Path, plan: CrashPlan) -> list[Tool]:
    """Return a tool of each effect class, and one with a check; each writes its key down."""

    async def effect(name: str, key: str) -> str:
        point = plan.next(name)
        await plan.pass_by(f"{point}:before")
        with ledger.open("a", encoding="utf-8") as book:
            book.write(f"{name} {key}\n")
        await plan.pass_by(f"{point}:after")
        return f"{name} done"

    @tool(effects="once")
    async def pay(context: ToolContext, bill: int = 1) -> str:
        """Pay a bill."""
        return await effect("pay", context.idempotency_key)

    def was_sent(context: ToolContext) -> Happened | DidNotHappen:
        lines = ledger.read_text(encoding="utf-8").splitlines()
        sent = f"send {context.idempotency_key}" in lines
        return Happened("send done") if sent else DidNotHappen()

    @tool(effects="once", check=was_sent)
    async def send(context: ToolContext) -> str:
        """Send a letter."""
        return await effect("send", context.idempotency_key)

    @tool(effects="idempotent")
    async def book(context: ToolContext) -> str:
        """Book a room."""
        return await effect("book", context.idempotency_key)

    @tool(effects="none")
    async def look(context: ToolContext) -> str:
        """Look something up."""
        return await effect("look", context.idempotency_key)

    return [pay, book, look, send]


def teams(own: Sequence[Tool]) -> list[Agent]:
    """Return an agent with each kind of team."""
    pay, book, look, _send = own

    def agent(name: str, *tools: Tool, does: Callable[[Sequence[Message]], Reply], **more: Any):  # noqa: ANN202 - below
        return Agent(FunctionClient(does), name=name, tools=tools, instructions=name, **more)

    debaters = [
        agent("ann", pay, does=call_once("pay")),
        agent("bob", book, does=call_once("book")),
    ]
    clerk = agent("clerk", pay, does=call_once("pay"))
    return [
        agent("reflexion", pay, does=improve, algorithm=Reflexion("judge")),
        agent("debate", does=judge, algorithm=Debate(debaters)),
        agent("swarm", look, does=call_once("look", "hand_off_to_clerk"), algorithm=Swarm([clerk])),
    ]


class CrashingVectors:
    """A process's way to the facts of a memory: the process dies beside a write."""

    def __init__(self, store: SQLiteVectorStore, plan: CrashPlan) -> None:
        self._store, self._plan = store, plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def upsert(self, records: Sequence[Record], **options: Any) -> None:
        point = self._plan.next("learn")
        await self._plan.pass_by(f"{point}:before")
        await self._store.upsert(records, **options)
        await self._plan.pass_by(f"{point}:after")


def memory_of(ledger: Path, plan: CrashPlan) -> Memory:
    """Return the memory of a user, in a file that outlives the process."""
    store = SQLiteVectorStore(ledger.with_name("facts.db"), dimension=1)
    return Memory(cast("Any", CrashingVectors(store, plan)), extractor=RuleExtractor())


def sum_up(ledger: Path, plan: CrashPlan) -> Callable[[Sequence[Message]], Awaitable[Reply]]:
    """Return a model that sums up, beside which the process dies; the ledger has each summary."""

    async def answer(_: Sequence[Message]) -> Reply:
        point = plan.next("sum_up")
        await plan.pass_by(f"{point}:before")
        with ledger.open("a", encoding="utf-8") as book:
            book.write("sum_up\n")
        await plan.pass_by(f"{point}:after")
        return Reply(Message.assistant("A bill was paid.").parts)

    return answer


def call_once(*names: str) -> Callable[[Sequence[Message]], Reply]:
    """Return a model that makes these calls and then says what each has answered."""

    def answer(messages: Sequence[Message]) -> Reply:
        results = results_of(messages)
        calls = tuple(ToolCall(f"{name}-1", name) for name in names)
        return say(results) if results else Reply(calls, stop="tool_calls")

    return answer


def improve(messages: Sequence[Message]) -> Reply:
    """Pay and answer, answer better after feedback, and judge."""
    text = messages[-1].text
    if messages[0].text == "judge":
        passed = "true" if "improved" in text else "false"
        return Reply(Message.assistant(f'{{"passed": {passed}, "feedback": "no"}}').parts)
    reply = call_once("pay")(messages)
    if "not good enough" in text:
        return Reply(Message.assistant(f"improved {reply.message.text}").parts)
    return reply


def judge(messages: Sequence[Message]) -> Reply:
    """Say what all agents of a debate have said."""
    answers = messages[-1].text.split("=====")[1::2]
    return Reply(Message.assistant(" ".join(map(str.strip, answers))).parts)


def think(messages: Sequence[Message]) -> Reply:
    """Do it all, or have it done, or answer a turn."""
    text = messages[0].text
    if text == "delegate":
        return delegate(messages)
    if text == "client":
        return call_once("pay", "mark")(messages)
    return take_turn(messages) if text.startswith("turn") else act(messages)


def delegate(messages: Sequence[Message]) -> Reply:
    """Let another agent act, and say what it says."""
    results = results_of(messages)
    if not results:
        return Reply((ToolCall("ask", "helper", {"task": "go"}),), stop="tool_calls")
    return Reply(Message.assistant(results[0].content).parts)


def act(messages: Sequence[Message]) -> Reply:
    """Call all four at once, then pay alone, then say what each call answered.

    A helper pays once, and that is all.
    """
    names = ("pay",) if messages[0].text == "helper" else TOOLS
    results = results_of(messages)
    if not results:
        calls = [ToolCall(f"{name}-1", name) for name in names]
        return Reply(tuple(calls), stop="tool_calls")
    if len(results) == len(TOOLS):
        return Reply((ToolCall("pay-2", "pay", {"bill": 2}),), stop="tool_calls")
    return say(results)


def take_turn(messages: Sequence[Message]) -> Reply:
    """Call all four at once, then say what each call answered; so in each turn."""
    user_turns = [n for n, message in enumerate(messages) if message.role == "user"]
    results = results_of(messages[user_turns[-1] :])
    if not results:
        calls = [ToolCall(f"{name}-{len(user_turns)}", name) for name in TOOLS]
        return Reply(tuple(calls), stop="tool_calls")
    return say(results)


def results_of(messages: Sequence[Message]) -> list[ToolResult]:
    return [part for each in messages for part in each.parts if isinstance(part, ToolResult)]


def say(results: Sequence[ToolResult]) -> Reply:
    """Say what each call answered."""
    lines = [f"{each.call_id}={_output(each.content)}" for each in results]
    return Reply(Message.assistant(" ".join(lines)).parts)


def _output(content: str) -> str:
    """Return the output of a call, without the words around what strangers have written."""
    return "unknown" if "unknown" in content else content.splitlines()[content.count("\n") // 2]


async def drive(
    store: Any, ledger: Path, plan: CrashPlan, *, attempt: int, order: str
) -> dict[str, Any]:
    """Give the order, or go on with it; the same calls each time, as a user would make them.

    Args:
        store: where the logs are.
        ledger: where effects are written down.
        plan: when to die.
        attempt: how many hours later it is.
        order: "go", "delegate", "client", "session", "remember", "summarize", or one of the teams.
    """
    own = tools(ledger, plan)
    handlers: list[Any] = [
        LLMHandler(FunctionClient(think)),
        ToolHandler(own),
        ChildHandler([HELPER]),
    ]
    clock = ImpatientClock(attempt) if plan.cuts else LaterClock(attempt)
    agents = teams(own) if order in TEAMS else []
    if order == REMEMBER:
        model, memory = FunctionClient(call_once("pay")), memory_of(ledger, plan)
        agents = [Agent(model, name=REMEMBER, tools=own[:1], memory=memory)]
    if order == SUMMARIZE:
        policy = Summarize(
            at_tokens=900, keep_tokens=540, model=FunctionClient(sum_up(ledger, plan))
        )
        model = FunctionClient(call_once("pay"))
        agents = [Agent(model, name=SUMMARIZE, tools=own[:1], context=[policy])]
    engine = Engine(store, handlers, algorithms=ALGORITHMS, agents=agents, clock=clock, poll_s=0.05)
    failures = 0
    async with engine:
        while True:
            try:
                result = await HOW.get(order, ask)(engine, order)
            except StoreError:
                failures += 1
                if not plan.cuts or failures > 1:
                    raise
            else:
                return {**result, "failures": failures}


async def ask(engine: Engine, order: str) -> dict[str, Any]:
    agent = order if order in (*TEAMS, REMEMBER) else None
    who: dict[str, Any] = {"tenant": "acme", "user": "ann"} if order == REMEMBER else {}
    text = HOME if order == REMEMBER else order
    run = await engine.start(text, agent=agent, idempotency_key="the-order", **who)
    result = await run.result()
    return {"outcome": result.outcome, "output": result.output}


async def facts_of(ledger: Path) -> list[tuple[str, int]]:
    """Return what is remembered of the user, superseded facts included, and how often it came."""
    async with Memory(ledger.with_name("facts.db")) as memory:
        facts = await memory.list(tenant="acme", user="ann", superseded=True)
        return [(fact.text, fact.times) for fact in facts]


async def ask_as_client(engine: Engine, order: str) -> dict[str, Any]:
    """Answer the calls that are the client's, once the run does nothing but wait for them."""
    run = await engine.start(order, client_tools=[MARK], idempotency_key="the-order")
    async with aclosing(run.stream()) as items:
        async for item in items:
            if isinstance(item, ToolAwaited):
                await engine.wait_while_driven(run.id)
                with suppress(NotPending):  # it was answered before the process died
                    await run.answer(item.key, "marked", signal_id="marked")
    result = await run.result()
    return {"outcome": result.outcome, "output": result.output}


async def hold_session(engine: Engine, order: str) -> dict[str, Any]:
    """Send two turns before anything is driven, read their answers, and close the session."""
    agent, more = (SUMMARIZE, f" {LONG_TURN}") if order == SUMMARIZE else (None, "")
    engine.hosting.drives = False
    session = await engine.start_session(agent=agent, idempotency_key="the-session")
    turns = [await session.send(f"turn {n}{more}", idempotency_key=f"turn-{n}") for n in (1, 2)]
    engine.hosting.drives = True
    results = [await turn.result() for turn in turns]
    await session.close()
    ends = [*results, await session.run.result()]
    outcomes = {result.outcome for result in ends}
    log = await engine.store.read(session.id)
    logs = [log, *[await engine.store.read(turn.run_id) for turn in turns]]
    return {
        "summaries": sum(event.kind == k.CONTEXT_SUMMARY for each in logs for event in each),
        "turns": [
            f"{event.kind.rpartition('.')[2]} {event.data['key'].removeprefix('turn-')}"
            for event in log
            if event.kind in (k.TURN_STARTED, k.TURN_COMPLETED)
        ],
        "outcome": outcomes.pop() if len(outcomes) == 1 else sorted(map(str, outcomes)),
        "output": " | ".join(result.output for result in results),
    }


HOW = {"client": ask_as_client, "session": hold_session, SUMMARIZE: hold_session}

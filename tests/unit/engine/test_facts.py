"""Facts that algorithms decide: notes, and calls that they answer or refuse themselves."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from lib.engine import (
    Answer,
    Budget,
    Decision,
    Finish,
    LLMRequest,
    Note,
    Refuse,
    Request,
    ToolRequest,
    Wait,
)
from lib.engine.api.check import request_check
from lib.engine.core.decide import next_step
from lib.engine.core.state import fold
from lib.errors import EngineError, InvalidEvent
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.llm import FunctionClient, Message, Reply, ToolCall, reply_from_json, reply_to_json
from lib.testing.agents import kinds, make_engine
from lib.tools import tool

CALLS = tuple(ToolCall(f"c{n}", name, {}) for n, name in enumerate(("wave", "ban", "look")))


@tool(effects="none")
def look() -> str:
    return "seen"


class ClerkState(NamedTuple):
    calls: tuple[ToolCall, ...] = ()
    results: tuple[str, ...] = ()
    noted: int = 0


class Clerk:
    """Makes a note, answers the call of `wave`, refuses that of `ban`, makes all others."""

    name = "clerk"

    def __init__(self, *, notes: int = 1, forgets: bool = False) -> None:
        self.notes, self.forgets = notes, forgets

    def config(self) -> dict[str, object]:
        return {}

    def initial(self, started: Event, history: Sequence[Message] = ()) -> ClerkState:
        return ClerkState()

    def evolve(self, state: ClerkState, event: Event) -> ClerkState:
        match event.kind:
            case k.LLM_COMPLETED:
                return state._replace(calls=reply_from_json(event.data["reply"]).tool_calls)
            case "acme.note" if not self.forgets:
                return state._replace(noted=state.noted + 1)
            case k.TOOL_COMPLETED | k.TOOL_FAILED:
                data = event.data
                text = data.get("output", data.get("message"))
                return state._replace(results=(*state.results, f"{data['call_id']}: {text}"))
            case _:
                return state

    def decide(self, state: ClerkState) -> Decision:
        if not state.calls:
            return [LLMRequest(key="llm/1", messages=[Message.user("go")])]
        if len(state.results) == len(state.calls):
            return Finish(outcome="COMPLETED", output="; ".join(sorted(state.results)))
        done = {result.partition(":")[0] for result in state.results}
        notes = [Note("acme.note", {"n": n}) for n in range(state.noted, self.notes)]
        return [
            *notes,
            *(self._made(call) for call in state.calls if call.id not in done),
        ] or Wait()

    def _made(self, call: ToolCall) -> Request | Answer | Refuse:
        request = ToolRequest(
            key=f"tool/{call.id}", call_id=call.id, name=call.name, arguments=call.arguments
        )
        match call.name:
            case "wave":
                return Answer(request, "waved")
            case "ban":
                return Refuse(request, "not in this shop")
            case _:
                return request


AT = datetime(2026, 11, 24, tzinfo=UTC)


def replied(*calls: ToolCall) -> list[Event]:
    """Return a log in which the model has just made these calls."""
    reply = reply_to_json(Reply(calls, stop="tool_calls"))
    return [
        Event("r", 1, k.RUN_STARTED, {"algorithm": "clerk", "input": []}, AT),
        Event("r", 2, k.LLM_REQUESTED, {"key": "llm/1"}, AT),
        Event("r", 3, k.LLM_COMPLETED, {"key": "llm/1", "reply": reply}, AT),
    ]


def think(_messages: Sequence[Message]) -> Reply:
    return Reply(CALLS, stop="tool_calls")


async def play(clerk: Clerk, budget: Budget | None = None) -> tuple[str | None, list[Event]]:
    store = MemoryEventStore()
    async with make_engine(FunctionClient(think), look, store=store, agent=clerk) as engine:
        run = await engine.start("go", budget=budget)
        result = await run.result()
        report = await verify_store(store, deep=True, checks=[request_check([Clerk()])])
        assert report.faults == []
        return result.output or result.reason, await store.read(run.id)


async def test_facts_enter_the_log_before_the_requests_that_were_decided_with_them() -> None:
    output, log = await play(Clerk())

    assert output == "c0: waved; c1: not in this shop; c2: seen"
    assert kinds(log)[3:-1] == [
        "acme.note",
        *("tool.requested", "tool.completed"),
        *("tool.requested", "tool.failed"),
        *("tool.requested", "tool.completed"),
    ]
    assert [event.data.get("unstarted") for event in log if event.kind == k.TOOL_REQUESTED] == [
        True,
        True,
        None,
    ]


async def test_calls_that_the_algorithm_answers_cost_no_budget() -> None:
    output, log = await play(Clerk(), Budget(tool_calls=1))

    assert output is not None
    assert output.endswith("c2: seen")
    assert log[-1].data["outcome"] == "COMPLETED"


def test_calls_that_a_cancelled_run_would_answer_are_cancelled_like_the_others() -> None:
    cancelled = Event("r", 4, k.CANCEL_REQUESTED, {"signal_id": "s"}, AT)

    step = next_step(Clerk(), fold(Clerk(), [*replied(*CALLS), cancelled]))

    assert [event.data["call_id"] for event in step.settled[::2]] == ["c0", "c1", "c2"]
    assert {event.data["reason"] for event in step.settled[1::2]} == {"cancelled"}
    assert step.finish is not None
    assert step.finish.outcome == "CANCELLED"


def test_a_fact_that_is_decided_for_ever_is_an_error_and_not_an_endless_log() -> None:
    forgetful = Clerk(forgets=True)

    with pytest.raises(EngineError, match="decides a fact again"):
        next_step(forgetful, fold(forgetful, replied(*CALLS)))


@pytest.mark.parametrize("kind", [k.RUN_COMPLETED, k.TOOL_COMPLETED, "lib.unheard.of", ""])
def test_a_note_of_a_kind_that_others_write_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="a prefix of your own"):
        Note(kind, {})


def test_a_note_whose_payload_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidEvent):
        Note(k.SWARM_HANDOFF, {"source": "desk"})

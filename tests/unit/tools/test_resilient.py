"""Tests tools behind breakers and limiters: what is tried again, what never is, and the log."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lib.errors import LLMError, ToolError
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.llm import Reply, ScriptedClient, ToolCall
from lib.observe import spans_from_events
from lib.resilience import CircuitBreaker, RateLimiter, RetryPolicy
from lib.testing.agents import make_engine
from lib.testing.clock import ManualClock
from lib.tools import Effects, Tool, ToolContext, resilient_tool

TWICE = RetryPolicy(attempts=2, base_s=0.0)
DOWN = ToolError("unavailable", "the service is down")
CONTEXT = ToolContext(run_id="r", call_id="c", idempotency_key="r:c")


class Service:
    """A service whose answers a test decides; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.keys: list[str] = []

    async def call(self, _: Mapping[str, Any], context: ToolContext) -> Any:
        self.keys.append(context.idempotency_key)
        answer = self.answers.pop(0)
        if isinstance(answer, asyncio.Event):
            await answer.wait()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def tool_of(service: Service, effects: Effects = "none", name: str = "look") -> Tool:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    return Tool(
        name=name, description="Look.", input_schema=schema, call=service.call, effects=effects
    )


@pytest.mark.parametrize(
    "error",
    [
        DOWN,
        ToolError("rate_limited", "slower"),
        ToolError("timeout", "no answer"),
        ConnectionResetError(),
        TimeoutError(),
        LLMError("down", status=503, retryable=True),
    ],
)
@pytest.mark.parametrize("effects", ["none", "idempotent"])
async def test_a_call_that_may_be_repeated_is_tried_again_under_its_key(
    effects: Effects, error: Exception
) -> None:
    service = Service(error, "found")
    tool = resilient_tool(tool_of(service, effects), retries=TWICE, clock=ManualClock())

    assert await tool.call({}, CONTEXT) == "found"
    assert service.keys == ["r:c", "r:c"]


@pytest.mark.parametrize("error", [ToolError("not_found", "no such"), ValueError("a bug")])
async def test_an_error_that_will_not_pass_is_not_tried_again(error: Exception) -> None:
    service = Service(error, "never")
    tool = resilient_tool(tool_of(service), retries=TWICE, clock=ManualClock())

    with pytest.raises(type(error)):
        await tool.call({}, CONTEXT)
    assert len(service.keys) == 1


@pytest.mark.parametrize("more", [{"retries": TWICE}, {"hedge_after_s": 1.0}])
def test_a_call_that_must_not_be_repeated_takes_no_retries_and_no_hedge(more: Any) -> None:
    with pytest.raises(ValueError, match="is called at most once"):
        resilient_tool(tool_of(Service(), "once"), **more)


async def test_a_call_that_must_not_be_repeated_is_made_once_or_refused() -> None:
    clock, service = ManualClock(), Service(DOWN, "paid")
    breaker = CircuitBreaker("the bank", failures=1, open_s=30.0, clock=clock)
    tool = resilient_tool(tool_of(service, "once"), breaker=breaker, clock=clock)

    with pytest.raises(ToolError, match="is down"):
        await tool.call({}, CONTEXT)
    with pytest.raises(ToolError, match=r"^not called: the bank is not called for") as refusal:
        await tool.call({}, CONTEXT)
    assert refusal.value.code == "unavailable"
    assert len(service.keys) == 1
    clock.advance(30.0)
    assert await tool.call({}, CONTEXT) == "paid"


async def test_a_tool_that_reads_has_another_stand_in_for_it() -> None:
    clock = ManualClock()
    first, second = Service(DOWN), Service("found", "again")
    breaker = CircuitBreaker(failures=1, clock=clock)
    protected = resilient_tool(tool_of(first), breaker=breaker, clock=clock)
    tool = resilient_tool([protected, tool_of(second, name="other")], clock=clock)

    assert [await tool.call({}, CONTEXT), await tool.call({}, CONTEXT)] == ["found", "again"]
    assert (tool.name, len(first.keys)) == ("look", 1)


@pytest.mark.parametrize("effects", ["idempotent", "once"])
def test_a_tool_with_effects_has_no_stand_in(effects: Effects) -> None:
    with pytest.raises(ValueError, match="cannot stand in for each other: only"):
        resilient_tool([tool_of(Service(), effects), tool_of(Service())])


def test_tools_that_make_no_sense_together_are_refused() -> None:
    one = tool_of(Service())
    other = replace(one, input_schema={"type": "object", "properties": {"x": {}}})
    with pytest.raises(ValueError, match="their parameters differ"):
        resilient_tool([one, other])
    with pytest.raises(ValueError, match="stand before one service, got 2"):
        resilient_tool([one, one], breaker=CircuitBreaker())
    with pytest.raises(ValueError, match="empty list"):
        resilient_tool([])
    with pytest.raises(TypeError, match="'call', got str"):
        resilient_tool("look")  # pyright: ignore[reportArgumentType] - wrong on purpose
    with pytest.raises(ValueError, match="deadline_s above 0"):
        resilient_tool(one, deadline_s=0.0)


def test_what_strangers_write_stays_marked_whichever_tool_brings_it() -> None:
    trusted = tool_of(Service())
    tool = resilient_tool([trusted, replace(trusted, untrusted_output=True)])
    assert tool.untrusted_output


async def test_the_model_reads_that_a_rate_is_used_up() -> None:
    clock = ManualClock()
    limiter = RateLimiter("Brave", requests_per_minute=1, max_wait_s=0.0, clock=clock)
    tool = resilient_tool(tool_of(Service("found")), limiter=limiter, clock=clock)
    await tool.call({}, CONTEXT)

    with pytest.raises(ToolError, match="not called: the rate of Brave is used up") as refusal:
        await tool.call({}, CONTEXT)
    assert refusal.value.code == "rate_limited"


async def test_a_slow_call_is_hedged_and_a_too_slow_one_ends() -> None:
    clock, never = ManualClock(), asyncio.Event()
    tool = resilient_tool(tool_of(Service(never, "found")), hedge_after_s=2.0, clock=clock)
    assert await driven(tool, clock) == "found"

    tool = resilient_tool(tool_of(Service(never)), deadline_s=2.0, clock=clock)
    with pytest.raises(ToolError, match="no result within 2 s") as ended:
        await driven(tool, clock)
    assert ended.value.code == "timeout"


async def driven(tool: Tool, clock: ManualClock) -> Any:
    """Return what a call returns, while time goes by."""
    call = asyncio.ensure_future(tool.call({}, CONTEXT))
    while not call.done():
        for _ in range(10):
            await asyncio.sleep(0)  # noqa: TID251 - lets the call go on
        clock.advance(1.0 if clock.sleepers else 0.0)
    return await call


async def test_the_log_and_the_spans_tell_of_the_attempts_inside_a_call() -> None:
    clock = ManualClock()
    first = resilient_tool(tool_of(Service(DOWN, DOWN)), retries=TWICE, clock=clock)
    tool = resilient_tool([first, tool_of(Service("found"))], clock=clock)
    model = ScriptedClient([Reply((ToolCall("c1", "look", {}),)), "done"])
    store = MemoryEventStore()

    async with make_engine(model, tool, store=store) as engine:
        run = await engine.start("hi")
        await run.result()
        log: list[Event] = [*await store.read(run.id)]

    (completed,) = [event.data for event in log if event.kind == k.TOOL_COMPLETED]
    assert {"retries": 1, "fallbacks": 1}.items() <= completed.items()
    (span,) = [span for span in spans_from_events(log) if span.kind == "tool"]
    assert (span.attributes["lib.retries"], span.attributes["lib.fallbacks"]) == (1, 1)

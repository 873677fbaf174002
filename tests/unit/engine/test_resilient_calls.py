"""Tests model calls behind breakers and limiters, with deadlines and hedges, and their log."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from lib.algorithms import React
from lib.engine import Engine, LiveDelta, LLMHandler, Result
from lib.errors import LLMError
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.llm import (
    Delta,
    FunctionClient,
    LLMClient,
    Message,
    Reply,
    ResilientClient,
    ScriptedClient,
    Text,
    Usage,
)
from lib.resilience import CircuitBreaker, RateLimiter, RetryPolicy
from lib.testing.clock import ManualClock

DOWN = LLMError("the server is down", status=503, retryable=True)
ONCE = RetryPolicy(attempts=1)


async def drive(
    clients: LLMClient | Sequence[LLMClient],
    clock: ManualClock,
    *,
    step_s: float = 1.0,
    seen: Callable[[LiveDelta], None] | None = None,
    **options: Any,
) -> tuple[Result, list[Event]]:
    """Drive a run to its end, letting time pass while anything waits for it."""
    handler = LLMHandler(clients, **options)
    store = MemoryEventStore()
    async with Engine(store, [handler], algorithms=[React()], clock=clock) as engine:
        started = await engine.start("hi", stream=seen is not None)
        watching = asyncio.create_task(_watch(started.deltas(), seen)) if seen else None
        while (await started.info()).status == "open":
            for _ in range(20):
                await asyncio.sleep(0)  # noqa: TID251 - lets the run go on
            if clock.sleepers:
                clock.advance(step_s)
        if watching is not None:
            await watching
        return await started.result(), await store.read(started.id)


async def _watch(live: AsyncIterator[LiveDelta], seen: Callable[[LiveDelta], None]) -> None:
    async for delta in live:
        seen(delta)


def ended(log: Sequence[Event]) -> dict[str, Any]:
    """Return what the log says of the model call that ended last."""
    return [e for e in log if e.kind in (k.LLM_COMPLETED, k.LLM_FAILED)][-1].data


def named(model: str, answer: Callable[[], Any]) -> FunctionClient:
    """Return a client of this model whose answers come of a function."""
    return FunctionClient(lambda _: answer(), model=model)


async def never() -> str:
    await asyncio.Event().wait()
    raise AssertionError


# -- breakers --------------------------------------------------------------------------------------


async def test_an_open_circuit_sends_the_call_to_the_next_model_without_a_wait() -> None:
    clock = ManualClock()
    breaker = CircuitBreaker("first", failures=1, clock=clock)
    calls: list[str] = []

    def failing() -> str:
        calls.append("first")
        raise DOWN

    first = ResilientClient(named("first", failing), breaker=breaker)
    models = [first, named("second", lambda: "fine")]
    await drive(models, clock, retries=ONCE)
    result, log = await drive(models, clock, retries=RetryPolicy(attempts=4))

    assert (result.output, calls) == ("fine", ["first"])
    assert clock.monotonic() == 0.0
    data = ended(log)
    assert "attempts" not in data  # one call was sent
    assert [each["error"]["type"] for each in data["failed_models"]] == ["CircuitOpen"]
    assert data["tries"] == [
        {"model": "first", "took_s": 0.0, "error": {"type": "CircuitOpen"}},
        {"model": "second", "took_s": 0.0},
    ]


async def test_the_only_model_is_tried_again_when_its_circuit_lets_a_call_pass() -> None:
    clock = ManualClock()
    breaker = CircuitBreaker(failures=1, open_s=30.0, clock=clock)
    client = ResilientClient(ScriptedClient([DOWN, "back again"]), breaker=breaker)

    result, log = await drive(client, clock, retries=RetryPolicy(attempts=3, base_s=0.0))

    assert (result.output, clock.monotonic()) == ("back again", 30.0)
    assert ended(log)["attempts"] == 2
    assert breaker.state == "closed"


async def test_a_stream_that_breaks_off_is_a_failure_of_the_service() -> None:
    clock = ManualClock()

    class Cut(ScriptedClient):
        async def stream(self, messages: Sequence[Message], **_: Any) -> AsyncIterator[Any]:
            yield Delta(text="so f")

    breaker = CircuitBreaker(failures=1, clock=clock)
    client = ResilientClient(Cut([]), breaker=breaker)
    result, _ = await drive(client, clock, seen=lambda _: None, retries=ONCE)

    assert result.outcome == "FAILED"
    assert breaker.state == "open"


async def test_a_stream_that_is_left_says_nothing_of_the_service() -> None:
    clock = ManualClock()
    breaker = CircuitBreaker(failures=1, open_s=10.0, clock=clock)
    client = ResilientClient(FunctionClient(lambda _: "a long answer"), breaker=breaker)
    with pytest.raises(LLMError), breaker.attempt():
        raise DOWN
    clock.advance(10.0)

    pieces = client.stream([Message.user("hi")])
    assert isinstance(await anext(pieces), Delta)
    await pieces.aclose()
    assert breaker.state == "half_open"
    assert (await client.complete([Message.user("hi")])).text == "a long answer"
    assert breaker.state == "closed"


# -- limiters --------------------------------------------------------------------------------------


async def test_agents_that_share_a_limiter_wait_for_each_other_and_the_log_says_so() -> None:
    clock = ManualClock()
    limiter = RateLimiter(requests_per_minute=1, clock=clock)
    one, other = (ResilientClient(ScriptedClient(["fine"]), limiter=limiter) for _ in range(2))

    _, unhindered = await drive(one, clock)
    result, log = await drive(other, clock)

    assert result.output == "fine"
    assert "tries" not in ended(unhindered)
    assert ended(log)["tries"] == [{"model": "scripted", "took_s": 61.0, "waited_s": 61.0}]


async def test_a_rate_that_is_used_up_for_long_sends_the_call_to_the_next_model() -> None:
    clock = ManualClock()
    limiter = RateLimiter("first", requests_per_minute=1, max_wait_s=5.0, clock=clock)
    await limiter.acquire()
    models = [
        ResilientClient(named("first", lambda: "never"), limiter=limiter),
        named("second", lambda: "fine"),
    ]
    result, log = await drive(models, clock)

    assert (result.output, clock.monotonic()) == ("fine", 0.0)
    assert ended(log)["failed_models"][0]["error"]["type"] == "RateLimited"


async def test_a_wait_that_a_server_asks_for_is_one_for_all_agents() -> None:
    clock = ManualClock()
    limiter = RateLimiter(requests_per_minute=100, clock=clock)
    busy = LLMError("too fast", status=429, retryable=True, retry_after_s=20.0)
    one = ResilientClient(ScriptedClient([busy]), limiter=limiter)
    other = ResilientClient(ScriptedClient(["fine"]), limiter=limiter)

    await drive(one, clock, retries=ONCE)
    await drive(other, clock)

    assert clock.monotonic() == 20.0


async def test_tokens_are_counted_by_the_usage_of_the_reply() -> None:
    clock = ManualClock()
    limiter = RateLimiter(tokens_per_minute=1_000, max_wait_s=0.0, clock=clock)
    reply = Reply((Text("fine"),), usage=Usage(input_tokens=900, output_tokens=50))
    client = ResilientClient(FunctionClient(lambda _: reply), limiter=limiter)

    await client.complete([Message.user("hi")])
    with pytest.raises(LLMError, match="used up"):
        await client.complete([Message.user("hi")], settings={"max_tokens": 100})
    await client.complete([Message.user("hi")])


async def test_a_wrapped_client_has_what_its_client_has() -> None:
    class Provided(ScriptedClient):
        provider = "openai"
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    client = Provided(["fine"], modalities=frozenset({"text", "image"}))
    async with ResilientClient(client) as wrapped:
        assert (wrapped.provider, wrapped.name, wrapped.model) == ("openai", "scripted", "scripted")
        assert wrapped.modalities == {"text", "image"}
        assert not hasattr(wrapped, "nothing")
    assert client.closed == 1


# -- deadlines -------------------------------------------------------------------------------------


async def test_a_call_without_a_reply_ends_at_its_deadline() -> None:
    clock = ManualClock()
    result, log = await drive(named("slow", never), clock, deadline_s=7.0)

    assert (result.outcome, clock.monotonic()) == ("FAILED", 7.0)
    assert ended(log)["error"] == {
        "type": "DeadlineExceeded",
        "message": "no result within 7 s, all attempts together",
    }


async def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    clock = ManualClock()
    busy = LLMError("too fast", status=429, retryable=True, retry_after_s=60.0)
    models = [ScriptedClient([busy]), named("second", lambda: "fine")]
    result, _ = await drive(models, clock, deadline_s=30.0)

    assert (result.output, clock.monotonic()) == ("fine", 0.0)


# -- hedges ----------------------------------------------------------------------------------------


async def test_a_slow_model_gets_the_next_one_beside_it_and_the_first_reply_counts() -> None:
    clock = ManualClock()
    models = [named("slow", never), named("quick", lambda: "fine")]
    result, log = await drive(models, clock, hedge_after_s=3.0)

    data = ended(log)
    assert (result.output, clock.monotonic()) == ("fine", 3.0)
    assert (data["attempts"], data["reply"]["model"]) == (2, "quick")
    assert "failed_models" not in data
    assert data["tries"] == [
        {"model": "slow", "took_s": 3.0, "error": {"type": "CancelledError"}},
        {"model": "quick", "after_s": 3.0, "took_s": 0.0, "hedge": True},
    ]


async def test_an_only_model_is_hedged_with_itself() -> None:
    clock, answers = ManualClock(), iter([never(), "fine"])
    result, log = await drive(named("one", answers.__next__), clock, hedge_after_s=3.0)

    assert (result.output, ended(log)["attempts"]) == ("fine", 2)


async def test_a_reply_of_which_a_piece_was_shown_is_not_hedged() -> None:
    clock = ManualClock()
    shown: list[str] = []
    begun = list[int]()

    class Slow(ScriptedClient):
        async def stream(self, messages: Sequence[Message], **_: Any) -> AsyncIterator[Any]:
            begun.append(1)
            yield Delta(text="slow ")
            await clock.sleep(60.0)
            yield Delta(text="but whole")
            yield Reply((Text("slow but whole"),))

    result, log = await drive(
        Slow([]), clock, seen=lambda each: shown.append(each.delta.text), hedge_after_s=3.0
    )

    assert (result.output, len(begun)) == ("slow but whole", 1)
    assert "tries" not in ended(log)
    assert "".join(shown) == "slow but whole"


async def test_of_two_streams_only_the_first_to_speak_is_shown() -> None:
    clock = ManualClock()
    shown: list[str] = []

    class Streams(ScriptedClient):
        def __init__(self, model: str, first_s: float) -> None:
            super().__init__([])
            self.word, self.first_s = model, first_s

        async def stream(self, messages: Sequence[Message], **_: Any) -> AsyncIterator[Any]:
            await clock.sleep(self.first_s)
            yield Delta(text=self.word)
            await clock.sleep(10.0)
            yield Reply((Text(self.word),))

    models = [Streams("slow", 8.0), Streams("quick", 2.0)]
    result, _ = await drive(
        models, clock, seen=lambda each: shown.append(each.delta.text), hedge_after_s=3.0
    )

    assert (result.output, "".join(shown)) == ("quick", "quick")


@pytest.mark.parametrize("wrong", [{"deadline_s": 0.0}, {"hedge_after_s": -1.0}])
def test_times_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        LLMHandler(ScriptedClient([]), **wrong)  # pyright: ignore[reportArgumentType] - floats

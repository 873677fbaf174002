"""However a driver ends, and whatever fails while it does, another worker can take the run."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from lib.algorithms import React
from lib.engine import Engine, LLMHandler, Result, ToolHandler
from lib.engine.core.settle import PendingEvent
from lib.engine.handlers.base import Call
from lib.errors import StoreError
from lib.events import Event, Lease, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.llm import FunctionClient, Reply, ScriptedClient, ToolCall
from lib.testing.agents import make_engine
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import AT
from lib.tools import tool

from .run_kit import NEVER_ANSWERS, ask, reached

LEASE_S = 0.09
Break = Callable[[], BaseException]


class Breaking(MemoryEventStore):
    """A store of which one operation fails as long as it is broken; it stays open."""

    def __init__(self, operation: str, error: Break, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.broken = False
        self._operation = operation
        self._error = error

    def _break(self, operation: str) -> None:
        if self.broken and operation == self._operation:
            raise self._error()

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        self._break("append")
        return await super().append(run_id, events, expected=expected)

    async def release(self, lease: Lease, *, idle_at: int | None = None) -> None:
        self._break("release")
        await super().release(lease, idle_at=idle_at)

    async def renew(self, lease: Lease, *, ttl_s: float) -> Lease | None:
        self._break("renew")
        return await super().renew(lease, ttl_s=ttl_s)

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        self._break("read")
        return await super().read(run_id, after=after, limit=limit)

    async def close(self) -> None: ...


async def taken_by_another(store: MemoryEventStore, run_id: str, clock: ManualClock) -> Result:
    """Let another worker take the run when its lease has ended, and drive it to its end."""
    for _ in range(3):  # a lease that is still renewed would not end
        clock.advance(LEASE_S * 0.4)
        await asyncio.sleep(LEASE_S * 0.4)  # noqa: TID251 - leases are renewed by real time
    client = FunctionClient(lambda _: "done by another")
    async with make_engine(client, pay, quick, store=store, clock=clock, lease_s=LEASE_S) as engine:
        async with asyncio.timeout(100):
            return await engine.run(run_id).result()


@tool
def pay() -> str:
    """Pay."""
    return "paid"


@tool(effects="idempotent")
async def slow() -> str:
    """Take for ever, and fail when it is cancelled."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise OSError("the clean-up of the tool fails") from None
    return "never"


@tool(name="slow", effects="idempotent")
def quick() -> str:
    """Answer at once."""
    return "quick"


ERRORS: dict[str, Break] = {
    "a store's error": lambda: StoreError("disk full"),
    "an error that passes": lambda: StoreError("busy", retryable=True),
    "an error of a driver": lambda: RuntimeError("the driver's own"),
    "an error of the operating system": lambda: OSError("no route"),
    "a wrong value": lambda: ValueError("odd"),
    "a cancellation from within": asyncio.CancelledError,
}


async def interrupted(engine: Engine, run_id: str) -> None:
    engine.hosting.interrupt(run_id)


async def cancelled(engine: Engine, run_id: str) -> None:
    engine.hosting[run_id].cancel()


async def cancelled_again(engine: Engine, run_id: str) -> None:
    task = engine.hosting[run_id]
    task.cancel()
    await asyncio.sleep(0)  # noqa: TID251 - it has begun to clean up
    task.cancel()


ENDS: list[Callable[[Engine, str], Awaitable[None]]] = [interrupted, cancelled, cancelled_again]


@pytest.mark.parametrize("error", ERRORS.values(), ids=list(ERRORS))
@pytest.mark.parametrize("operation", ["append", "release", "renew", "read"])
async def test_another_worker_takes_a_run_whose_store_failed_while_it_was_left(
    operation: str, error: Break
) -> None:
    async def main(end: Callable[[Engine, str], Awaitable[None]]) -> Result:
        clock = ManualClock()
        store = Breaking(operation, error, clock)
        client = FunctionClient(lambda _: ask("slow"))
        options: dict[str, Any] = {"clock": clock, "lease_s": LEASE_S, "grace_s": LEASE_S}
        engine = make_engine(client, slow, store=store, **options)
        async with engine:
            started = await engine.start("go")
            await reached(started, k.TOOL_REQUESTED)
            task = engine.hosting[started.id]
            store.broken = True
            await end(engine, started.id)
            while not task.done():  # some wait for the end of the lease
                clock.advance(LEASE_S / 90)
                await asyncio.wait([task], timeout=LEASE_S / 90)
            store.broken = False
            assert started.id not in engine.hosting
            return await taken_by_another(store, started.id, clock)

    for end in ENDS:
        assert (await main(end)).output == "done by another", end.__name__


@dataclass
class Odd:
    """A handler of tools that answers one call with what cannot be written."""

    drafts: list[PendingEvent] = field(default_factory=list[PendingEvent])
    handler: ToolHandler = field(default_factory=lambda: ToolHandler([pay]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handler, name)

    async def handle(self, call: Call) -> Sequence[PendingEvent]:
        return self.drafts if call.event.data["call_id"] == "c1" else [completed("c2", output="x")]


def completed(call_id: str = "c1", **data: Any) -> PendingEvent:
    return PendingEvent(k.TOOL_COMPLETED, {"key": f"tool/1/{call_id}", "call_id": call_id, **data})


UNWRITABLE = {
    "no JSON": [completed(output=object())],
    "a set": [completed(output="x", more={1, 2})],
    "no text": [completed(output=7)],
    "not finite": [completed(output="x", more=float("nan"))],
    "without a key": [PendingEvent(k.TOOL_COMPLETED, {"output": "x"})],
}


@pytest.mark.parametrize("drafts", UNWRITABLE.values(), ids=list(UNWRITABLE))
async def test_a_result_that_cannot_be_appended_loses_no_other_result(
    drafts: list[PendingEvent],
) -> None:
    both = Reply((ToolCall("c1", "pay"), ToolCall("c2", "pay")), stop="tool_calls")

    clock = ManualClock()
    store = Breaking("", RuntimeError, clock)
    odd: Any = Odd(drafts)
    handlers = [LLMHandler(ScriptedClient([both])), odd]
    async with Engine(
        store, handlers, algorithms=[React()], clock=clock, lease_s=LEASE_S
    ) as engine:
        started = await engine.start("go")
        with pytest.raises((TypeError, ValueError)):
            await started.result()
        info = await started.info()
        assert (info.status, info.owner) == ("open", None)
        result = await taken_by_another(store, started.id, clock)
        log = await store.read(started.id)
    assert result.output == "done by another"
    ends = [e.kind for e in log if e.kind in (k.TOOL_COMPLETED, k.TOOL_FAILED)]
    assert sorted(ends) == [k.TOOL_COMPLETED, k.TOOL_FAILED]  # the other was paid, and is known


async def test_a_task_that_is_cancelled_before_it_begins_is_forgotten() -> None:
    async def main() -> Result:
        clock = ManualClock()
        store = Breaking("", RuntimeError, clock)
        async with make_engine(NEVER_ANSWERS, store=store, clock=clock, lease_s=LEASE_S) as engine:
            start = {"algorithm": "react", "input": [{"role": "user", "content": "go"}]}
            await store.append("r", [NewEvent(k.RUN_STARTED, start, AT)], expected=0)
            [lease] = await store.claim("w", ttl_s=LEASE_S, run_id="r")
            await engine.hosting.begin(lease)
            engine.hosting["r"].cancel()
            await asyncio.wait([engine.hosting["r"]])
            assert "r" not in engine.hosting
            return await taken_by_another(store, "r", clock)

    assert (await main()).output == "done by another"

"""A store that fails while a run is given back: the first error is raised, nothing else is lost."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from lib.engine import Engine
from lib.errors import StoreError
from lib.events import Event, Lease, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.llm import ScriptedClient
from lib.testing.agents import kinds, make_engine
from lib.tools import Tool

from .run_kit import ask, pay, reached


class Failing(MemoryEventStore):
    """Fails to take leases back, and to append events of some kinds."""

    def __init__(self, *unwritable: str) -> None:
        super().__init__()
        self.unwritable = unwritable
        self.given_back = 0

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        if any(event.kind in self.unwritable for event in events):
            raise StoreError("the first thing that went wrong")
        return await super().append(run_id, events, expected=expected)

    async def release(self, lease: Lease, *, idle_at: int | None = None) -> None:
        self.given_back += 1
        raise StoreError("and then the connection was lost")


async def interrupted_while(store: MemoryEventStore, used: Tool, **options: Any) -> Sequence[str]:
    """Close an engine while it makes a call; return what the log holds then."""
    model = ScriptedClient([ask(used.name), "done"])
    engine: Engine = make_engine(model, used, store=store, **options)
    async with engine:
        started = await engine.start("go")
        await reached(started, k.TOOL_REQUESTED)
    await store.setup()
    return kinds(await store.read(started.id))


async def test_a_run_whose_lease_cannot_be_given_back_has_ended_nonetheless(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Failing()
    async with make_engine(ScriptedClient(["done"]), store=store) as engine:
        started = await engine.start("go")
        assert (await started.result()).output == "done"
    assert store.given_back == 1
    warnings = [record for record in caplog.records if "was not given back" in record.getMessage()]
    assert [record.levelno for record in warnings] == [logging.WARNING]


async def test_a_lease_that_cannot_be_given_back_does_not_hide_what_went_wrong_before() -> None:
    async with make_engine(ScriptedClient(["done"]), store=Failing(k.LLM_COMPLETED)) as engine:
        started = await engine.start("go")
        with pytest.raises(StoreError, match="the first thing that went wrong"):
            await started.result()


async def test_a_result_that_cannot_be_written_while_the_engine_closes_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = await interrupted_while(Failing(k.TOOL_COMPLETED), pay)

    assert log[-1] == "tool.requested"
    [record] = [r for r in caplog.records if "results may be lost" in r.getMessage()]
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "the first thing that went wrong"


async def test_a_result_that_comes_after_a_signal_while_the_engine_closes_is_kept() -> None:
    class Signalled(MemoryEventStore):
        signalled = False

        async def append(
            self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
        ) -> list[Event]:
            if events[0].kind == k.TOOL_COMPLETED and not self.signalled:
                self.signalled = True
                signal = NewEvent(k.CANCEL_REQUESTED, {"signal_id": "s"}, events[0].at)
                await super().append(run_id, [signal], expected=None)
            return await super().append(run_id, events, expected=expected)

    log = await interrupted_while(Signalled(), pay)

    assert log[-3:] == ["tool.requested", "cancel.requested", "tool.completed"]

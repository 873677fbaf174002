"""A committed event is never answered with an error, which would make callers repeat it."""

import asyncio
import logging
from typing import Any

import pytest

from lib import Agent
from lib._util.clock import SYSTEM_CLOCK
from lib.engine import Engine
from lib.errors import IdempotencyMismatch, RunErased, StoreError
from lib.events import Event, MemoryBlobStore, MemoryEventStore, RunInfo
from lib.events import kinds as k
from lib.llm import FunctionClient
from lib.testing.agents import make_engine


class Flaky(MemoryEventStore):
    """Loses its connection, once, as soon as an event of this kind has been appended."""

    def __init__(self, kind: str, call: str) -> None:
        super().__init__()
        self._kind, self._call = kind, call
        self.lost = 0
        self._next = False

    async def append(self, run_id: str, events: Any, *, expected: int | None) -> list[Event]:
        appended = await super().append(run_id, events, expected=expected)
        self._next = self._next or (events[0].kind == self._kind and not self.lost)
        return appended

    def _lose(self, call: str) -> None:
        if self._next and call == self._call:
            self._next = False
            self.lost += 1
            raise StoreError("the connection is lost")

    async def run(self, run_id: str) -> RunInfo | None:
        self._lose("run")
        return await super().run(run_id)

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        self._lose("read")
        return await super().read(run_id, after=after, limit=limit)

    async def claim(self, *args: Any, **kwargs: Any) -> Any:
        self._lose("claim")
        return await super().claim(*args, **kwargs)


def answering(store: MemoryEventStore, **options: Any) -> Engine:
    return make_engine(FunctionClient(lambda _: "ok"), store=store, **options)


@pytest.mark.parametrize("call", ["run", "claim", "read"])
async def test_a_turn_is_answered_once_if_the_connection_drops_after_the_send(
    call: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Flaky(k.TURN_REQUESTED, call)
    async with answering(store) as engine:
        session = await engine.start_session()
        await engine.wait_while_driven(session.id)
        with caplog.at_level(logging.WARNING):
            turn = await session.send("pay my bill")
        assert store.lost == 1
        assert "could not be" in caplog.text
        assert (await turn.result()).output == "ok"
        assert [message.text for message in await session.history()] == ["pay my bill", "ok"]


async def test_a_run_that_was_started_is_not_started_again_when_it_cannot_be_driven_at_once() -> (
    None
):
    store = Flaky(k.RUN_STARTED, "claim")
    async with answering(store) as engine:
        started = await engine.start("pay my bill")
        assert store.lost == 1
        assert (await started.result()).output == "ok"
        assert len(await store.runs()) == 1


class Yielding(MemoryEventStore):
    """Lets others go first after each look at a log."""

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        events = await super().read(run_id, after=after, limit=limit)
        await SYSTEM_CLOCK.sleep(0)
        return events


async def test_the_second_of_two_concurrent_texts_under_one_key_is_refused() -> None:
    client = FunctionClient(lambda messages: f"answer to {messages[-1].text}")
    async with make_engine(client, store=Yielding()) as engine:
        session = await engine.start_session()
        sent = await asyncio.gather(
            *(
                engine.session(session.id).send(text, idempotency_key="k")
                for text in ("A", "B", "A")
            ),
            return_exceptions=True,
        )
        refused = [each for each in sent if isinstance(each, IdempotencyMismatch)]
        assert [error.run_id for error in refused] == [session.id]
        outputs = [(await t.result()).output for t in sent if not isinstance(t, BaseException)]
        assert outputs in (["answer to A"] * 2, ["answer to B"])


async def test_an_empty_tenant_name_is_refused() -> None:
    async with answering(MemoryEventStore()) as engine:
        with pytest.raises(ValueError, match="expected a tenant's id, got an empty text"):
            await engine.start("hi", tenant="")
        with pytest.raises(ValueError, match="expected a tenant's id, got an empty text"):
            await engine.start_session(tenant="")
        assert await engine.store.runs() == []


async def test_a_start_that_races_an_erasure_raises() -> None:
    class Gone(MemoryEventStore):
        async def read(
            self, run_id: str, *, after: int = 0, limit: int | None = None
        ) -> list[Event]:
            await self.erase(run_id)
            return await super().read(run_id, after=after, limit=limit)

    async with answering(Gone(), drive=False) as engine:
        await engine.start("hi", idempotency_key="k")
        with pytest.raises(RunErased):
            await engine.start("hi", idempotency_key="k")


async def test_a_handle_says_that_its_start_was_a_repetition() -> None:
    async with answering(MemoryEventStore()) as engine:
        runs = [await engine.start("hi", idempotency_key="k") for _ in range(2)]
        sessions = [await engine.start_session(idempotency_key="s") for _ in range(2)]
        turns = [await sessions[0].send("hi", idempotency_key="t") for _ in range(2)]
        fresh = [await engine.start("hi") for _ in range(2)]

    for handles in (runs, sessions, turns):
        assert [handle.repeated for handle in handles] == [False, True]
    assert [run.repeated for run in fresh] == [False, False]


async def test_an_engine_shows_its_agents_and_its_blobs() -> None:
    agent = Agent(FunctionClient(lambda _: ""), name="echo")

    engine = Engine("memory:", agents=[agent], blobs=MemoryBlobStore())

    assert engine.agents == {"echo": agent}
    assert engine.blobs is not None
    assert Engine("memory:", agents=[agent]).blobs is None

"""Sessions of older clients are read, and their answers found, by every process over a store."""

import asyncio
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ClientCapabilities, ElicitationCapability

from lib.events import MemoryEventStore
from lib.mcp.sessions import LegacySessions
from lib.testing.clock import ManualClock

DECLARED = {"elicitation": {}, "tools": {"of": "no concern"}}
OWNER = '["acme","ada"]'


async def two(clock: ManualClock) -> tuple[LegacySessions, LegacySessions]:
    """Return the sessions as two processes over one store have them."""
    store = MemoryEventStore()
    await store.setup()
    return LegacySessions(store, clock=clock), LegacySessions(store, clock=clock)


async def test_each_process_reads_what_the_client_has_declared() -> None:
    one, other = await two(ManualClock())
    begun = await one.begin(DECLARED, OWNER)

    found = await other.read(begun.id, OWNER)
    assert found is not None
    assert found.capabilities == ClientCapabilities(elicitation=ElicitationCapability())
    assert found == begun
    assert begun.id.isascii()
    assert begun.id.isprintable()


async def test_a_session_is_its_callers_for_a_time_and_cannot_be_made_up() -> None:
    clock = ManualClock()
    one, other = await two(clock)
    begun = await one.begin(DECLARED, OWNER)

    assert await other.read(begun.id, '["umbrella","ada"]') is None
    assert await other.read(begun.id[:-4] + "AAAA", OWNER) is None
    assert await other.read("0" * 32, OWNER) is None
    assert await other.read("." * 9_000, OWNER) is None
    clock.advance(7 * 86_400 + 1)
    assert await other.read(begun.id, OWNER) is None


@pytest.mark.parametrize("declared", [None, 7, [], {"sampling": 7}, {"x" * 9_000: {}}])
async def test_what_is_malformed_or_unknown_counts_as_not_declared(declared: Any) -> None:
    one, _ = await two(ManualClock())

    assert (await one.begin(declared, OWNER)).capabilities == ClientCapabilities()


async def question_to(sessions: LegacySessions, session: Any) -> tuple[str, asyncio.Task[Any]]:
    """Ask, and return the id of the question, and what waits for its answer."""
    sent: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def send(question_id: str) -> None:
        sent.set_result(question_id)

    waiting = asyncio.create_task(sessions.ask(session, send))
    return await sent, waiting


async def test_an_answer_that_another_process_gets_is_found() -> None:
    clock = ManualClock()
    one, other = await two(clock)
    session = await one.begin(DECLARED, OWNER)
    question_id, waiting = await question_to(one, session)

    taken = await other.answer(session, {"jsonrpc": "2.0", "id": question_id, "result": {"a": 1}})
    while not waiting.done():
        clock.advance(1)
        await asyncio.sleep(0)  # noqa: TID251 - lets the poll look

    assert taken
    assert waiting.result()["result"] == {"a": 1}


async def test_the_first_answer_counts_and_only_its_clients() -> None:
    one, _ = await two(ManualClock())
    session, foreign = await one.begin(DECLARED, OWNER), await one.begin(DECLARED, OWNER)
    question_id, waiting = await question_to(one, session)

    assert not await one.answer(foreign, {"id": question_id, "result": {"a": 0}})
    assert not await one.answer(session, {"id": session.id, "result": {"a": 0}})
    assert not await one.answer(session, {"id": 1, "result": {"a": 0}})
    for number in (1, 2):
        assert await one.answer(session, {"id": question_id, "result": {"a": number}})

    assert (await waiting)["result"] == {"a": 1}


async def test_an_answer_that_nothing_waits_for_is_kept_for_a_time() -> None:
    clock = ManualClock()
    store = MemoryEventStore()
    await store.setup()
    one = LegacySessions(store, clock=clock)
    session = await one.begin(DECLARED, OWNER)
    for _ in range(2):
        question_id, waiting = await question_to(one, session)
        waiting.cancel()
        await asyncio.wait([waiting])
        await one.answer(session, {"id": question_id, "result": {}})
        clock.advance(601)

    assert len(await store.marks("mcp/answers/")) == 1


async def test_a_question_ends_with_the_server() -> None:
    one, _ = await two(ManualClock())
    session, stopping = await one.begin(DECLARED, OWNER), asyncio.Event()

    async def send(_: str) -> None:
        stopping.set()

    with pytest.raises(MCPError, match="the server stops"):
        await one.ask(session, send, stopping=stopping)

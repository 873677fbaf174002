"""Cancel, death and poison of runs that have started others: everything ends, and is paired."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fakes.team import boss_of, child_of, children_of, echo, say, task, team, until, verified
from lib.engine import Result, Run
from lib.engine.core.settle import fail_pending
from lib.engine.core.state import MAX_RESUMES
from lib.errors import RunAbandoned, RunErased, RunNotFound, StoreError
from lib.events import Event, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.llm import Message, Reply, ScriptedClient, ToolCall
from lib.testing.agents import kinds, make_engine
from lib.tools import tool

AT = datetime(2026, 1, 1, tzinfo=UTC)


async def never(_messages: Sequence[Message]) -> Reply:
    await asyncio.Event().wait()
    return say("never")


@tool(effects="idempotent")
async def hang() -> str:
    await asyncio.Event().wait()
    return "never"


class Mortal(MemoryEventStore):
    """A store that fails at chosen appends: `dies` sees each batch before it is appended."""

    def __init__(self, dies: Callable[[str, Sequence[NewEvent]], bool]) -> None:
        super().__init__()
        self.dies = dies

    async def append(
        self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
    ) -> list[Event]:
        if self.dies(run_id, events):
            raise StoreError("the disk is gone")
        return await super().append(run_id, events, expected=expected)


def starts_a_child(_run_id: str, events: Sequence[NewEvent]) -> bool:
    return "parent" in events[0].data


def fails_never(_run_id: str, _events: Sequence[NewEvent]) -> bool:
    return False


async def ended(
    store: MemoryEventStore, run_: Run
) -> tuple[Result, list[Event], list[list[Event]]]:
    result = await run_.result()
    await verified(store)
    return result, await store.read(run_.id), await children_of(store, run_.id)


async def test_a_cancel_reaches_the_children_and_waits_for_their_ends() -> None:
    store = MemoryEventStore()
    boss = boss_of(task(0, "a"), task(1, "b"), ToolCall("c2", "hang"))

    async def main() -> tuple[Result, list[Event], list[list[Event]]]:
        async with team(boss, never, hang, store=store) as engine:
            started = await engine.start("go")
            child = await child_of(store, started.id)
            await until(store, child.run_id, k.LLM_REQUESTED)
            await started.cancel("enough")
            return await ended(store, started)

    result, log, children = await main()

    assert (result.outcome, result.reason) == ("CANCELLED", "enough")
    for child in children:
        requests = [event.data for event in child if event.kind == k.CANCEL_REQUESTED]
        key = child[0].data["parent"]["key"]
        assert requests == [{"signal_id": f"cancel/{result.run_id}/{key}", "reason": "enough"}]
        assert child[-1].data == {"outcome": "CANCELLED", "reason": "enough"}
    assert [e.data["outcome"] for e in log if e.kind == k.CHILD_COMPLETED] == ["CANCELLED"] * 2
    assert [e.data["reason"] for e in log if e.kind == k.TOOL_FAILED] == ["cancelled"]


async def test_a_child_that_waits_for_a_person_is_cancelled_with_its_parent() -> None:
    @tool(approval=True)
    def ask() -> str:
        return "approved"

    store = MemoryEventStore()

    async with team(boss_of(task(0, "a")), boss_of(ToolCall("x", "ask")), ask, store=store) as e:
        started = await e.start("go")
        child = await child_of(store, started.id)
        await until(store, child.run_id, k.APPROVAL_REQUESTED)
        await e.wait_while_driven(child.run_id)
        await started.cancel()
        result, _, children = await ended(store, started)

    assert result.outcome == "CANCELLED"
    assert kinds(children[0])[-1] == "run.completed"


async def test_a_cancelled_parent_that_is_taken_over_passes_the_cancel_on() -> None:
    store = MemoryEventStore()

    async with team(boss_of(task(0, "a")), never, store=store) as engine:
        started = await engine.start("go")
        child = await child_of(store, started.id)
        await until(store, child.run_id, k.LLM_REQUESTED)
    await store.setup()
    cancel = NewEvent(k.CANCEL_REQUESTED, {"signal_id": "s", "reason": "late"}, AT)
    await store.append(started.id, [cancel], expected=None)
    async with team(boss_of(task(0, "a")), never, store=store) as engine:
        result, _, children = await ended(store, engine.run(started.id))

    assert (result.outcome, result.reason) == ("CANCELLED", "late")
    assert children[0][-1].data == {"outcome": "CANCELLED", "reason": "late"}


async def test_a_requested_child_that_is_cancelled_before_it_begins_does_nothing() -> None:
    store = Mortal(starts_a_child)

    async with team(boss_of(task(0, "a")), echo, store=store) as engine:
        started = await engine.start("go")
        with pytest.raises(StoreError, match="the disk is gone"):
            await started.result()
    store.dies = fails_never
    await store.setup()
    cancel = NewEvent(k.CANCEL_REQUESTED, {"signal_id": "s"}, AT)
    await store.append(started.id, [cancel], expected=None)
    async with team(boss_of(task(0, "a")), echo, store=store) as engine:
        result, log, children = await ended(store, engine.run(started.id))

    assert result.outcome == "CANCELLED"
    assert kinds(log)[-2:] == ["child.completed", "run.completed"]
    assert kinds(children[0]) == ["run.started", "cancel.requested", "run.completed"]


async def test_a_cancel_that_comes_while_a_child_is_being_started_reaches_it() -> None:
    cancels: list[Callable[[], Awaitable[object]]] = []

    class Slow(MemoryEventStore):
        async def append(
            self, run_id: str, events: Sequence[NewEvent], *, expected: int | None
        ) -> list[Event]:
            stored = await super().append(run_id, events, expected=expected)
            if "parent" in events[0].data:
                await cancels[0]()
            return stored

    store = Slow()

    async with team(boss_of(task(0, "a")), never, store=store) as engine:
        started = await engine.start("go")

        async def cancel() -> None:
            await started.cancel("now")
            await asyncio.sleep(0.05)  # noqa: TID251 - the driver hears of it

        cancels.append(cancel)
        result, _, children = await ended(store, started)

    assert result.outcome == "CANCELLED"
    assert kinds(children[0])[1] == "cancel.requested"


async def test_a_child_may_be_cancelled_alone() -> None:
    store = MemoryEventStore()

    async with team(boss_of(task(0, "a")), never, store=store) as engine:
        started = await engine.start("go")
        child = await child_of(store, started.id)
        await until(store, child.run_id, k.LLM_REQUESTED)
        await engine.run(child.run_id).cancel("not this one")
        result, _, _ = await ended(store, started)

    assert result.outcome == "COMPLETED"
    assert result.output == "the agent ended as CANCELLED (not this one)"


async def interrupted(store: MemoryEventStore, *calls: ToolCall) -> str:
    async with team(boss_of(*calls), never, hang, store=store) as engine:
        started = await engine.start("go")
        child = await child_of(store, started.id)
        await until(store, child.run_id, k.LLM_REQUESTED)
    return started.id


def resumed(times: int) -> list[NewEvent]:
    return [NewEvent(k.RUN_RESUMED, {"worker": "w", "epoch": n}, AT) for n in range(times)]


async def test_a_poisoned_run_cancels_its_children_and_ends_after_them() -> None:
    store = MemoryEventStore()

    run_id = await interrupted(store, task(0, "a"), ToolCall("c1", "hang"))
    await store.setup()
    head = len(await store.read(run_id))
    await store.append(run_id, resumed(MAX_RESUMES - 1), expected=head)
    async with team(boss_of(), never, hang, store=store) as engine:
        result, log, children = await ended(store, engine.run(run_id))

    assert (result.outcome, result.reason) == ("FAILED", "poison")
    assert kinds(log)[-3:] == ["tool.failed", "child.completed", "run.completed"]
    assert children[0][-1].data["outcome"] == "CANCELLED"


async def test_a_poisoned_run_that_is_taken_over_again_stays_poisoned() -> None:
    store = MemoryEventStore()

    run_id = await interrupted(store, task(0, "a"), ToolCall("c1", "hang"))
    await store.setup()
    log = await store.read(run_id)
    tool_request = next(event for event in log if event.kind == k.TOOL_REQUESTED)
    settled = fail_pending(tool_request, "unknown", "unknown")
    more = [*resumed(MAX_RESUMES), NewEvent(settled.kind, settled.data, AT), *resumed(1)]
    await store.append(run_id, more, expected=len(log))
    async with team(boss_of(), echo, hang, store=store) as engine:
        result, _, _ = await ended(store, engine.run(run_id))

    assert (result.outcome, result.reason) == ("FAILED", "poison")


async def test_takeovers_of_a_run_that_only_waits_for_children_do_not_count_against_it() -> None:
    store = MemoryEventStore()

    run_id = await interrupted(store, task(0, "a"))
    await store.setup()
    head = len(await store.read(run_id))
    await store.append(run_id, resumed(MAX_RESUMES + 1), expected=head)
    async with team(boss_of(), echo, store=store) as engine:
        result, _, _ = await ended(store, engine.run(run_id))

    assert (result.outcome, result.output) == ("COMPLETED", "done: a")


def test_a_run_that_was_started_has_no_failure_but_its_end() -> None:
    request = Event("run", 2, k.CHILD_REQUESTED, {"key": "tool/1/a"}, AT)

    with pytest.raises(ValueError, match="has no failure"):
        fail_pending(request, "cancelled", "cancelled")


# -- runs that are gone ------------------------------------------------------------------------


async def test_a_run_that_is_erased_while_it_is_driven_stops_without_a_warning() -> None:
    store = MemoryEventStore()
    begun = asyncio.Event()

    @tool
    async def slow() -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    @tool
    async def erase() -> str:
        await begun.wait()
        await store.erase(started[0].id)
        return "erased"

    started: list[Run] = []
    client = ScriptedClient([Reply((ToolCall("a", "slow"), ToolCall("b", "erase")))])

    async with make_engine(client, slow, erase, store=store) as engine:
        started.append(await engine.start("go"))
        with pytest.raises(RunNotFound):
            await started[0].result()
        with pytest.raises(RunErased):
            await engine.signal(started[0].id, k.CANCEL_REQUESTED, {})


async def test_a_run_that_was_erased_before_it_is_taken_up_is_abandoned() -> None:
    class Late(MemoryEventStore):
        async def read(
            self, run_id: str, *, after: int = 0, limit: int | None = None
        ) -> list[Event]:
            await self.erase(run_id)
            return []

    store = Late()

    async with make_engine(ScriptedClient([]), store=store) as engine:
        start = NewEvent(k.RUN_STARTED, {"algorithm": "react", "input": []}, AT)
        await store.append("r", [start], expected=0)
        await engine.resume("r")
        assert await engine.wait_while_driven("r") is None


async def test_a_log_that_does_not_hold_what_was_appended_stops_its_run() -> None:
    class Restored(MemoryEventStore):
        """Goes back to an earlier state, as a store does that is restored from a back-up."""

        def forget(self, run_id: str) -> None:
            kept = self._runs[run_id]
            kept.log = kept.log[:1]
            kept.info = replace(kept.info, head=1)

    store = Restored()

    @tool
    async def restore() -> str:
        store.forget(started[0])
        return "restored"

    started: list[str] = []
    client = ScriptedClient([Reply((ToolCall("a", "restore"),))])

    async with make_engine(client, restore, store=store) as engine:
        run_ = await engine.start("go")
        started.append(run_.id)
        task_ = engine.hosting[run_.id]
        with pytest.raises(RunAbandoned, match="its log has been replaced"):
            await task_

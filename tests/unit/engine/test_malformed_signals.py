"""Signals that cannot be read are refused; those that an older release has stored are ignored."""

from typing import Any

import pytest

from lib.engine import Result
from lib.errors import InvalidEvent
from lib.events import Event, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.llm import ScriptedClient
from lib.testing.agents import kinds, make_engine
from lib.testing.event_store.kit import AT
from lib.tools import tool

from .run_kit import Kept, ask, reached

MALFORMED: list[tuple[str, Any]] = [
    (k.APPROVAL_DECIDED, {}),
    (k.APPROVAL_DECIDED, {"key": "tool/1/c1"}),
    (k.APPROVAL_DECIDED, {"key": 7, "approved": True}),
    (k.APPROVAL_DECIDED, {"key": ["tool/1/c1"], "approved": True}),
    (k.APPROVAL_DECIDED, {"key": "tool/1/c1", "approved": "no"}),
    (k.APPROVAL_DECIDED, {"key": "tool/1/c1", "approved": True, "comment": {}}),
    (k.CANCEL_REQUESTED, {"reason": None}),
    (k.CANCEL_REQUESTED, {"reason": 5}),
    (k.CANCEL_REQUESTED, {"key": {}}),
    (k.CLOSE_REQUESTED, {"signal_id": 5}),
    (k.TURN_REQUESTED, {}),
    (k.TURN_REQUESTED, {"input": "hello"}),
    (k.TURN_REQUESTED, {"input": [{"role": "wizard", "content": "hello"}]}),
    (k.TURN_REQUESTED, {"input": [{"role": "user", "parts": [{"type": "text"}]}]}),
    (k.EVAL_SCORE, {}),
    (k.EVAL_SCORE, {"name": "quality", "value": None}),
    (k.EVAL_SCORE, {"name": 3, "value": 1}),
    (k.EVAL_SCORE, {"name": "quality", "value": 1, "meta": "x"}),
]


@tool(approval=True)
def act() -> str:
    return "acted"


async def test_a_signal_that_cannot_be_read_is_refused_and_the_run_goes_on() -> None:
    async def main() -> Result:
        client = ScriptedClient([ask("act"), "done"])
        async with make_engine(client, act) as engine:
            started = await engine.start("go")
            await reached(started, k.APPROVAL_REQUESTED)
            for kind, data in MALFORMED:
                with pytest.raises(InvalidEvent) as caught:
                    await engine.signal(started.id, kind, data)
                assert (caught.value.kind, isinstance(caught.value, ValueError)) == (kind, True)
            with pytest.raises(TypeError, match="expected a dict as the payload"):
                await engine.signal(started.id, k.CLOSE_REQUESTED, [])  # pyright: ignore[reportArgumentType] - not all callers are typed
            await started.approve("tool/1/c1")
            return await started.result()

    assert (await main()).output == "done"


async def test_the_error_names_the_field_and_never_its_content() -> None:
    async def main() -> None:
        async with make_engine(ScriptedClient([])) as engine:
            data = {"key": "a", "approved": "hunter2"}
            await engine.signal("r", k.APPROVAL_DECIDED, data)

    with pytest.raises(InvalidEvent) as caught:
        await main()
    assert str(caught.value) == (
        "the payload of 'lib.approval.decided' is malformed: expected true or false in "
        "'approved', got str; see lib.events.kinds"
    )


class Older(Kept):
    """A store that an older release has written: notes in it are signals that nothing can read."""

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        events = await super().read(run_id, after=after, limit=limit)
        for event in events:
            if event.kind == "note":
                event.kind, event.data = event.data["kind"], event.data["data"]
        return events


def note(kind: str, data: Any) -> NewEvent:
    return NewEvent("note", {"kind": kind, "data": data}, AT)


OF_OLDER = [entry for entry in MALFORMED if entry != (k.EVAL_SCORE, {})][:-1]


async def test_a_run_with_signals_of_an_older_release_can_be_approved_cancelled_and_verified() -> (
    None
):
    async def main(*, cancel: bool) -> tuple[Result, MemoryEventStore]:
        store = Older()
        client = ScriptedClient([ask("act"), "done"])
        async with make_engine(client, act, store=store) as engine:
            started = await engine.start("go")
            await reached(started, k.APPROVAL_REQUESTED)
            signals = [note(kind, data) for kind, data in OF_OLDER]
            await store.append(started.id, signals, expected=None)
            assert [call.key for call in await started.pending()] == ["tool/1/c1"]
            head = (await started.info()).head
            unread = range(head - len(signals) + 1, head + 1)
            assert set((await started.state()).malformed) <= set(unread)
            if cancel:
                await started.cancel("enough")
            else:
                await started.approve("tool/1/c1")
            result = await started.result()
            faults = (await verify_store(store)).faults
            assert {fault.rule for fault in faults} == {"payload"}
            assert {fault.run_id for fault in faults} == {started.id}
            assert {fault.seq for fault in faults} <= set(unread)
            return result, store

    for cancel in (False, True):
        result, _ = await main(cancel=cancel)
        assert result.outcome == ("CANCELLED" if cancel else "COMPLETED")


async def test_a_run_whose_start_cannot_be_read_ends_as_failed() -> None:
    class Damaged(Kept):
        async def read(
            self, run_id: str, *, after: int = 0, limit: int | None = None
        ) -> list[Event]:
            events = await super().read(run_id, after=after, limit=limit)
            for event in events:
                if event.kind == k.RUN_STARTED:
                    event.data |= {"input": "go", "budget": {"tokens": "many"}}
            return events

    store = Damaged()
    await store.setup()
    begin = NewEvent(k.RUN_STARTED, {"algorithm": "react"}, AT)
    await store.append("r", [begin], expected=0)
    async with make_engine(ScriptedClient([]), store=store) as engine:
        result = await engine.run("r").result()
        assert kinds(await store.read("r")) == ["run.started", "run.completed"]
    assert (result.outcome, result.reason) == ("FAILED", "malformed")

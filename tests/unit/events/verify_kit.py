"""Helpers of the tests of verification: events, a sound log, and the faults of a store."""

from collections.abc import Mapping, Sequence
from typing import Any

from lib.events import EventStore, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.events.verify import VerifyReport, verify_store
from lib.testing.aio import run
from lib.testing.event_store.kit import AT, ended, note, started

Logs = Mapping[str, Sequence[NewEvent]]
"""The events that are appended to each run."""


def new(kind: str, **data: Any) -> NewEvent:
    return NewEvent(kind, data, AT)


def call(call_id: str) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": "look"}


def reply(*calls: str) -> NewEvent:
    parts = [{"type": "text", "text": "hm"}, *(call(call_id) for call_id in calls)]
    return new(k.LLM_COMPLETED, key="llm/1", reply={"parts": parts})


def tool(call_id: str, kind: str = k.TOOL_REQUESTED, **data: Any) -> NewEvent:
    return new(kind, key=f"tool/{call_id}", call_id=call_id, **data)


SOUND = [
    started(tenant="t"),
    new(k.LLM_REQUESTED, key="llm/1"),
    reply("c1", "c2"),
    tool("c1"),
    tool("c2"),
    note("in between"),
    tool("c2", k.TOOL_FAILED),
    tool("c1", k.TOOL_COMPLETED),
    new(k.LLM_REQUESTED, key="llm/2"),
    new(k.LLM_FAILED, key="llm/2"),
    ended("FAILED"),
    new(k.EVAL_SCORE, signal_id="s"),
    note("afterwards"),
]


async def fill(store: EventStore, logs: Logs) -> None:
    await store.setup()
    for run_id, events in logs.items():
        await store.append(run_id, events, expected=0)


def verified(logs: Logs, **options: Any) -> list[tuple[str, int, str]]:
    """Append logs to a store and return what is wrong with them."""

    async def main() -> VerifyReport:
        store = MemoryEventStore()
        await fill(store, logs)
        return await verify_store(store, **options)

    report = run(main())
    assert report.runs == len(logs)
    assert report.events == sum(len(events) for events in logs.values())
    return found(report)


def found(report: VerifyReport) -> list[tuple[str, int, str]]:
    return [(fault.run_id, fault.seq, fault.rule) for fault in report.faults]


def child(
    run_id: str, *, key: str = "child/1", root: str = "root", tenant: str | None = None
) -> NewEvent:
    return started(tenant=tenant, root=root, parent={"run_id": run_id, "key": key})


def asks(run_id: str, key: str = "child/1") -> NewEvent:
    return new(k.CHILD_REQUESTED, key=key, run_id=run_id)


def hears(run_id: str, outcome: str = "COMPLETED", key: str = "child/1") -> NewEvent:
    return new(k.CHILD_COMPLETED, key=key, run_id=run_id, outcome=outcome)

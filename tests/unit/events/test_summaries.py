"""Pointers to summaries: to the log of the run that has made one, and gone with that run."""

import pytest

from lib.events import Event, EventStore, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.events.summaries import share_summary, shared_summary, unshare_summaries
from lib.testing.logs import at


async def summed_up(store: EventStore, run_id: str, text: str = "They talked.") -> Event:
    """Store a run with a summary; return the intent before it."""
    started = NewEvent(k.RUN_STARTED, {"algorithm": "react", "input": []}, at(0))
    intent = NewEvent(
        k.CONTEXT_REQUESTED, {"key": "summary/1", "covers": "c", "messages": 2}, at(0)
    )
    made = NewEvent(k.CONTEXT_SUMMARY, {"key": "summary/1", "covers": "c", "text": text}, at(0))
    return (await store.append(run_id, [started, intent, made], expected=0))[1]


async def test_a_summary_is_found_by_its_name_until_its_run_is_erased() -> None:
    async with MemoryEventStore() as store:
        await share_summary(store, "a", await summed_up(store, "first"))
        await share_summary(store, "a", await summed_up(store, "second", "They spoke."))

        await unshare_summaries(store, "first")
        found = await shared_summary(store, "a")
        await unshare_summaries(store, "second")

        assert found is not None
        assert found.data["text"] == "They spoke."
        assert await shared_summary(store, "a") is None
        assert await store.marks("summary/") == {}


@pytest.mark.parametrize("pointer", ["", "gone", "7 gone", "x first", "² first"])
async def test_a_pointer_to_nothing_is_no_summary(pointer: str) -> None:
    async with MemoryEventStore() as store:
        await summed_up(store, "first")
        await store.set_mark("summary/a", pointer)

        assert await shared_summary(store, "a") is None

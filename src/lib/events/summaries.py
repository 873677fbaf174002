"""Summaries that runs share: found by the digest of what was summed up.

The text stands in the log of the run that has made it, and nowhere else. A mark by the digest
points there. A mark of that run names the digest, so that the pointer is erased with the run.
"""

from __future__ import annotations

from typing import Final

from lib.events import kinds as k
from lib.events.event import Event
from lib.events.store import EventStore, run_mark

_FOLDER: Final = "summary/"
_EVENTS: Final = 64  # after its intent, among which a summary stands


async def share_summary(store: EventStore, name: str, intent: Event) -> None:
    """Point to the summary that follows an intent (`lib.context.requested`); safe to repeat.

    Args:
        store: where the run of the intent is.
        name: a digest of what is summed up, and of all else that has to be equal.
        intent: the summary need not stand behind it yet.
    """
    await store.set_mark(run_mark(intent.run_id, _FOLDER + name), "")
    await store.set_mark(_FOLDER + name, f"{intent.seq} {intent.run_id}")


async def shared_summary(store: EventStore, name: str) -> Event | None:
    """Return the summary that was shared under this name, None if there is none any more."""
    seq, _, run_id = (await store.mark(_FOLDER + name) or "").partition(" ")
    if not (seq.isascii() and seq.isdecimal()):
        return None
    events = await store.read(run_id, after=int(seq), limit=_EVENTS)
    return next((event for event in events if event.kind == k.CONTEXT_SUMMARY), None)


async def unshare_summaries(store: EventStore, run_id: str) -> None:
    """Erase the pointers to summaries of a run that is to be erased."""
    folder = run_mark(run_id, _FOLDER)
    for mark in await store.marks(folder):
        pointer = _FOLDER + mark.removeprefix(folder)
        there = await store.mark(pointer)
        if there is not None and there.partition(" ")[2] == run_id:
            await store.compare_and_set_mark(pointer, expected=there, value=None)

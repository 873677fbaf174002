"""Whole stores are verified: lists, payloads and blobs, while others write, and by extra checks."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from lib.errors import StoreCorrupt
from lib.events import Event, EventStore, MemoryEventStore, NewEvent, RunInfo, RunQuery
from lib.events.blobs import DirectoryBlobStore, MemoryBlobStore
from lib.events.verify import Fault, VerifyReport, verify_store
from lib.testing.event_store.kit import AT, NOTE, begin, ended, note, started

from .verify_kit import SOUND, asks, hears, tool, verified


def test_extra_checks_see_the_runs_that_keep_the_rules() -> None:
    def check(info: RunInfo, events: Sequence[Event]) -> Iterable[Fault]:
        yield Fault(info.run_id, len(events), "mine", "why not")

    broken = [started(), asks("kid"), hears("kid")]

    assert verified({"root": broken, "ok": SOUND}, checks=[check]) == [
        ("root", 3, "child"),
        ("root", 3, "mine"),
        ("ok", 13, "mine"),
    ]
    assert verified({"cut": [started(), tool("c1"), ended()]}, checks=[check]) == [
        ("cut", 2, "request")
    ]


async def test_missing_blobs_are_found_and_by_a_deep_check_damaged_ones(tmp_path: Path) -> None:
    blobs = DirectoryBlobStore(tmp_path)
    digests = {text: await blobs.put(text.encode()) for text in ("good", "bad", "short", "gone")}
    references = {
        text: {
            "$blob": digest,
            "size": 99 if text == "short" else len(text),
            "type": "text/plain",
        }
        for text, digest in digests.items()
    }
    store = MemoryEventStore()
    await store.setup()
    events = [NewEvent(NOTE, {"content": [reference]}, AT) for reference in references.values()]
    await store.append("run", [started(), *events, events[3]], expected=0)
    await blobs.delete(digests["gone"])
    bad = tmp_path / digests["bad"][:2] / digests["bad"]
    await asyncio.to_thread(bad.write_bytes, b"baad")

    unchecked = await verify_store(store)
    shallow = await verify_store(store, blobs=blobs)
    deep = await verify_store(store, blobs=blobs, deep=True)
    empty = await verify_store(store, blobs=MemoryBlobStore())

    assert unchecked == VerifyReport(1, 6, [])
    assert [(f.seq, f.rule) for f in shallow.faults] == [(5, "blob"), (6, "blob")]
    assert [(f.seq, f.rule) for f in deep.faults] == [(n, "blob") for n in (3, 4, 5, 6)]
    assert "damaged" in deep.faults[0].message
    assert "5 bytes, not 99" in deep.faults[1].message
    assert [f.seq for f in empty.faults] == [2, 3, 4, 5, 6]


class Meddling(MemoryEventStore):
    """Is changed by another process while it is verified."""

    listed = 0

    async def runs(self, query: RunQuery | None = None) -> list[RunInfo]:
        found = await super().runs(query)
        self.listed += 1
        if self.listed == 1:
            await self.append("grows", [note("more")], expected=None)
            await self.erase("goes")
            await self.append("ends", [ended()], expected=1)
        return found


async def test_a_store_that_is_written_meanwhile_is_sound() -> None:
    store = Meddling()
    await store.setup()
    for name in ("grows", "goes", "ends"):
        await begin(store, name)

    assert await verify_store(store) == VerifyReport(2, 2, [])


class Lying(MemoryEventStore):
    """Lists fewer events than it has."""

    async def runs(self, query: RunQuery | None = None) -> list[RunInfo]:
        return [replace(info, head=2) for info in await super().runs(query)]

    async def run(self, run_id: str) -> RunInfo | None:
        info = await super().run(run_id)
        return replace(info, head=2) if info else None


async def test_a_list_that_hides_events_is_found() -> None:
    store = Lying()
    await store.setup()
    await begin(store, "run", notes=3)
    report = await verify_store(store)

    assert (report.runs, report.events) == (1, 4)
    assert [(fault.seq, fault.rule) for fault in report.faults] == [(4, "sequence")]


class Unreadable(MemoryEventStore):
    """Has events that cannot be read."""

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        found = await super().read(run_id, after=after, limit=limit)
        if any(event.data.get("text") == "damaged" for event in found):
            raise StoreCorrupt("this one is damaged")
        return found


async def test_events_that_cannot_be_read_are_found_one_by_one() -> None:
    store: EventStore = Unreadable()
    await store.setup()
    events = [started(), note("damaged"), note(), note("damaged"), ended()]
    await store.append("run", events, expected=0)
    await begin(store, "sound")
    report = await verify_store(store)

    assert (report.runs, report.events) == (2, 4)
    assert report.faults[:2] == [
        Fault("run", 2, "payload", "this one is damaged"),
        Fault("run", 4, "payload", "this one is damaged"),
    ]
    assert {fault.run_id for fault in report.faults} == {"run"}

"""Logs that break a rule are found, each by the rule that they break."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lib.errors import StoreCorrupt
from lib.events import Event, EventStore, MemoryEventStore, NewEvent, RunInfo, RunQuery
from lib.events import kinds as k
from lib.events.blobs import DirectoryBlobStore, MemoryBlobStore
from lib.events.rules import Fault, log_faults
from lib.events.runs import fold
from lib.events.verify import VerifyReport, verify_store
from lib.testing.aio import run
from lib.testing.event_store.kit import AT, NOTE, begin, ended, note, started


def new(kind: str, **data: Any) -> NewEvent:
    return NewEvent(kind, data, AT)


def call(call_id: str) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": "look"}


def reply(*calls: str) -> NewEvent:
    parts = [{"type": "text", "text": "hm"}, *(call(call_id) for call_id in calls)]
    return new(k.LLM_COMPLETED, key="llm/1", reply={"parts": parts})


def tool(call_id: str, kind: str = k.TOOL_REQUESTED) -> NewEvent:
    return new(kind, key=f"tool/{call_id}", call_id=call_id)


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


def logged(
    events: Iterable[NewEvent], *, run_id: str = "run", tenant: str | None = "t"
) -> list[Event]:
    return [
        Event(run_id, seq, event.kind, event.data, event.at, tenant, event.user)
        for seq, event in enumerate(events, 1)
    ]


def without(*places: int) -> list[NewEvent]:
    return [event for place, event in enumerate(SOUND) if place not in places]


def listed(events: Sequence[Event], **changes: Any) -> RunInfo:
    """Return how a store lists a log, sound or not."""
    return replace(fold(logged([*SOUND])), head=len(events), **changes)


def rules(info: RunInfo, events: Sequence[Event]) -> list[tuple[int, str]]:
    return [(fault.seq, fault.rule) for fault in log_faults(info, events)]


def test_a_sound_log_has_no_fault() -> None:
    log = logged(SOUND)

    assert log_faults(fold(log), log) == []
    for length in range(1, len(log)):
        assert log_faults(fold(log[:length]), log[:length]) == []


BROKEN: dict[str, tuple[list[NewEvent], list[tuple[int, str]]]] = {
    "no start": (without(0), [(1, "start")]),
    "two starts": ([SOUND[0], *SOUND], [(2, "start")]),
    "a late start": ([note(), SOUND[0], ended()], [(1, "start"), (2, "start")]),
    "two ends": ([started(), ended(), ended()], [(3, "end")]),
    "work after the end": (
        [started(), ended(), new(k.LLM_REQUESTED, key="llm/1"), tool("c1"), note()],
        [(3, "end"), (4, "end"), (3, "request"), (4, "request")],
    ),
    "an open request": (without(9), [(9, "request")]),
    "an open call": (without(6), [(5, "request"), (8, "call")]),
    "a key asked for twice": (
        [
            started(),
            tool("c1"),
            tool("c1", k.TOOL_COMPLETED),
            tool("c1"),
            tool("c1", k.TOOL_FAILED),
            ended(),
        ],
        [(4, "request")],
    ),
    "a request without a key": (
        [started(), new(k.TOOL_REQUESTED, key=["x"])],
        [(2, "request"), (2, "request")],
    ),
    "a result without a request": (without(3), [(7, "result")]),
    "a result of another kind": (
        [started(), tool("c1"), new(k.MEMORY_COMPLETED, key="tool/c1"), ended()],
        [(3, "result")],
    ),
    "two results": (
        [started(), tool("c1"), tool("c1", k.TOOL_FAILED), tool("c1", k.TOOL_COMPLETED), ended()],
        [(4, "result")],
    ),
    "a call that nobody answered": (without(4, 6), [(7, "call")]),
}


@pytest.mark.parametrize(("events", "faults"), BROKEN.values(), ids=list(BROKEN))
def test_each_broken_rule_is_named_at_its_event(
    events: list[NewEvent], faults: list[tuple[int, str]]
) -> None:
    log = logged(events)

    assert rules(listed(log), log) == faults


@pytest.mark.parametrize(
    "unreadable",
    [
        {},
        {"reply": None},
        {"reply": {"parts": 1}},
        {"reply": {"parts": [1, {"type": "tool_call"}]}},
    ],
)
def test_a_reply_that_is_none_has_no_calls(unreadable: dict[str, Any]) -> None:
    asked = [new(k.LLM_REQUESTED, key=f"llm/{n}") for n in (1, 2)]
    log = logged(
        [
            started(tenant="t"),
            asked[0],
            NewEvent(k.LLM_COMPLETED, {"key": "llm/1", **unreadable}, AT),
            asked[1],
        ]
    )

    assert log_faults(fold(log), log) == []


@pytest.mark.parametrize(
    ("gone", "faults"),
    [
        ([5], [(5, "sequence")]),
        ([12], [(12, "sequence")]),
        ([5, 11], [(5, "sequence"), (11, "sequence")]),
        (range(13), [(0, "sequence")]),
    ],
)
def test_a_hole_is_found(gone: Sequence[int], faults: list[tuple[int, str]]) -> None:
    log = logged(SOUND)

    assert rules(fold(log), [e for place, e in enumerate(log) if place not in gone]) == faults


def test_an_event_of_another_tenant_is_found() -> None:
    log = logged(SOUND)
    log[3].tenant, log[7].tenant = "other", None

    assert rules(fold(logged(SOUND)), log) == [(4, "tenant"), (8, "tenant")]


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": "other"},
        {"outcome": "COMPLETED"},
        {"status": "open"},
        {"ready": True},
        {"user": "u"},
        {"root_id": "root"},
        {"parent_id": "parent"},
        {"created_at": AT.replace(year=2000)},
        {"updated_at": AT.replace(year=2000)},
    ],
)
def test_a_list_that_says_something_else_than_the_log_is_found(change: dict[str, Any]) -> None:
    log = logged(SOUND)
    [fault] = log_faults(replace(fold(log), **change), log)

    assert (fault.seq, fault.rule) == (0, "projection")
    assert next(iter(change)) in fault.message


def test_what_the_log_cannot_tell_is_no_fault() -> None:
    log = logged(SOUND[:4])
    info = replace(fold(log), owner="me", lease_until=AT, ready=False)

    assert log_faults(info, log) == []


def test_a_log_that_cannot_be_folded_is_found() -> None:
    log = logged([started(tenant="t"), NewEvent(k.RUN_COMPLETED, {}, AT)])

    assert rules(listed(log), log) == [(0, "projection")]


# -- whole stores ------------------------------------------------------------------------------


def verified(*runs: tuple[str, list[NewEvent]], **options: Any) -> list[tuple[str, int, str]]:
    """Append logs to a store and return what is wrong with them."""

    async def main() -> list[tuple[str, int, str]]:
        store = MemoryEventStore()
        await store.setup()
        for run_id, events in runs:
            await store.append(run_id, events, expected=0)
        report = await verify_store(store, **options)
        assert report.runs == len(runs)
        assert report.events == sum(len(events) for _, events in runs)
        return [(fault.run_id, fault.seq, fault.rule) for fault in report.faults]

    return run(main())


def child(
    run_id: str, *, key: str = "child/1", root: str = "root", tenant: str | None = None
) -> NewEvent:
    return started(tenant=tenant, root=root, parent={"run_id": run_id, "key": key})


def asks(run_id: str, key: str = "child/1") -> NewEvent:
    return new(k.CHILD_REQUESTED, key=key, run_id=run_id)


def hears(run_id: str, outcome: str = "COMPLETED", key: str = "child/1") -> NewEvent:
    return new(k.CHILD_COMPLETED, key=key, run_id=run_id, outcome=outcome)


TURN = new(k.TURN_REQUESTED, signal_id="turn-1")
TREES: dict[str, tuple[list[tuple[str, list[NewEvent]]], list[tuple[str, int, str]]]] = {
    "sound": (
        [
            ("root", [started(), asks("kid"), hears("kid"), asks("kid2", "child/2")]),
            ("kid", [child("root"), asks("grandkid"), hears("grandkid", "FAILED"), ended()]),
            ("grandkid", [child("kid"), ended("FAILED")]),
            ("kid2", [child("root", key="child/2")]),
        ],
        [],
    ),
    "turns": (
        [
            (
                "root",
                [
                    started(),
                    TURN,
                    TURN,
                    new(k.TURN_STARTED, key="turn-1", run_id="kid", algorithm="react", upto=2),
                    new(
                        k.TURN_COMPLETED,
                        key="turn-1",
                        signal_id="turn-1",
                        run_id="kid",
                        outcome="COMPLETED",
                    ),
                    TURN,
                ],
            ),
            ("kid", [child("root", key="turn-1"), ended()]),
        ],
        [],
    ),
    "a turn that another run was started for": (
        [
            (
                "root",
                [
                    started(),
                    TURN,
                    new(k.TURN_STARTED, key="turn-1", run_id="other", algorithm="react", upto=2),
                ],
            ),
            ("kid", [child("root", key="turn-1")]),
        ],
        [("kid", 1, "parent")],
    ),
    "a turn that nobody asked for": (
        [("root", [started(), new(k.TURN_COMPLETED, signal_id="turn-1", run_id="kid")])],
        [("root", 2, "result")],
    ),
    "turns written by hand": (
        [
            (
                "root",
                [
                    started(),
                    TURN,
                    new(k.TURN_COMPLETED, signal_id="turn-1", run_id="kid", outcome="COMPLETED"),
                ],
            ),
            ("kid", [child("root", key="turn-1"), ended()]),
        ],
        [],
    ),
    "no parent": ([("kid", [child("root")])], [("kid", 1, "parent")]),
    "a parent that did not ask": (
        [("root", [started()]), ("kid", [child("root")])],
        [("kid", 1, "parent")],
    ),
    "a parent that asked for another": (
        [("root", [started(), asks("other")]), ("kid", [child("root")])],
        [("kid", 1, "parent")],
    ),
    "another root": (
        [("root", [started(), asks("kid")]), ("kid", [child("root", root="elsewhere")])],
        [("kid", 1, "parent")],
    ),
    "another tenant": (
        [("root", [started(), asks("kid")]), ("kid", [child("root", tenant="t")])],
        [("kid", 1, "parent")],
    ),
    "no child": ([("root", [started(), asks("kid"), hears("kid")])], [("root", 3, "child")]),
    "a child that is still open": (
        [("root", [started(), asks("kid"), hears("kid")]), ("kid", [child("root")])],
        [("root", 3, "child")],
    ),
    "a child with another outcome": (
        [
            ("root", [started(), asks("kid"), hears("kid")]),
            ("kid", [child("root"), ended("FAILED")]),
        ],
        [("root", 3, "child")],
    ),
    "a child of another": (
        [("root", [started(), asks("kid"), hears("kid")]), ("kid", [started(), ended()])],
        [("root", 3, "child")],
    ),
}


@pytest.mark.parametrize(("runs", "faults"), TREES.values(), ids=list(TREES))
def test_parents_and_children_agree(
    runs: list[tuple[str, list[NewEvent]]], faults: list[tuple[str, int, str]]
) -> None:
    assert verified(*runs) == faults


def test_many_runs_and_many_parents_are_followed() -> None:
    runs: list[tuple[str, list[NewEvent]]] = []
    for number in range(150):
        root = f"root-{number}"
        runs.append((root, [started(), asks(f"kid-{number}"), asks(f"late-{number}", "child/2")]))
    runs += [
        (f"kid-{number}", [child(f"root-{number}", root=f"root-{number}")]) for number in range(150)
    ]
    runs += [
        (f"late-{number}", [child(f"root-{number}", key="child/2", root=f"root-{number}")])
        for number in range(149)
    ]
    runs += [("later", [child("root-149", key="child/3", root="root-149")])]
    runs += [("late-149", [child("root-149", key="child/3", root="root-149")])]

    assert verified(*runs) == [("later", 1, "parent"), ("late-149", 1, "parent")]


def test_extra_checks_see_the_runs_that_keep_the_rules() -> None:
    def check(info: RunInfo, events: Sequence[Event]) -> Iterable[Fault]:
        yield Fault(info.run_id, len(events), "mine", "why not")

    broken = [started(), asks("kid"), hears("kid")]

    assert verified(("root", broken), ("ok", SOUND), checks=[check]) == [
        ("root", 3, "child"),
        ("root", 3, "mine"),
        ("ok", 13, "mine"),
    ]
    assert verified(("cut", [started(), tool("c1"), ended()]), checks=[check]) == [
        ("cut", 2, "request")
    ]


def test_blobs_are_there_and_deep_down_what_they_should_be(tmp_path: Path) -> None:
    async def main() -> None:
        blobs = DirectoryBlobStore(tmp_path)
        digests = {
            text: await blobs.put(text.encode()) for text in ("good", "bad", "short", "gone")
        }
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

    run(main())


def test_an_erased_relative_is_no_fault_and_one_that_never_was_is() -> None:
    async def main() -> list[tuple[str, int, str]]:
        store = MemoryEventStore()
        await store.setup()
        logs = {
            "root": [started(), asks("kid"), hears("kid"), asks("lost", "child/2")],
            "kid": [child("root"), asks("grandkid"), ended()],
            "grandkid": [child("kid"), ended()],
            "orphan": [child("never")],
            "mother": [started(), asks("none"), hears("none")],
        }
        for run_id, events in logs.items():
            await store.append(run_id, events, expected=0)
        await store.erase("kid")
        report = await verify_store(store)
        return [(fault.run_id, fault.seq, fault.rule) for fault in report.faults]

    assert run(main()) == [("orphan", 1, "parent"), ("mother", 3, "child")]


class Vanishing(MemoryEventStore):
    """Erases a parent between two looks at it."""

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        found = await super().read(run_id, after=after, limit=limit)
        if run_id == "kid":
            await self.erase("root")
        return found


def test_a_parent_that_is_erased_just_now_is_no_fault() -> None:
    async def main() -> None:
        store = Vanishing()
        await store.setup()
        await store.append("root", [started(), asks("kid")], expected=0)
        await store.append("kid", [child("root")], expected=0)

        assert (await verify_store(store)).faults == []

    run(main())


class Meddling(MemoryEventStore):
    """Is changed by somebody else while it is verified."""

    listed = 0

    async def runs(self, query: RunQuery | None = None) -> list[RunInfo]:
        found = await super().runs(query)
        self.listed += 1
        if self.listed == 1:
            await self.append("grows", [note("more")], expected=None)
            await self.erase("goes")
            await self.append("ends", [ended()], expected=1)
        return found


def test_a_store_that_is_written_meanwhile_is_sound() -> None:
    async def main() -> None:
        store = Meddling()
        await store.setup()
        for name in ("grows", "goes", "ends"):
            await begin(store, name)

        assert await verify_store(store) == VerifyReport(2, 2, [])

    run(main())


class Lying(MemoryEventStore):
    """Lists fewer events than it has."""

    async def runs(self, query: RunQuery | None = None) -> list[RunInfo]:
        return [replace(info, head=2) for info in await super().runs(query)]

    async def run(self, run_id: str) -> RunInfo | None:
        info = await super().run(run_id)
        return replace(info, head=2) if info else None


def test_a_list_that_hides_events_is_found() -> None:
    async def main() -> None:
        store = Lying()
        await store.setup()
        await begin(store, "run", notes=3)
        report = await verify_store(store)

        assert (report.runs, report.events) == (1, 4)
        assert [(fault.seq, fault.rule) for fault in report.faults] == [(4, "sequence")]

    run(main())


class Unreadable(MemoryEventStore):
    """Has events that cannot be read."""

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        found = await super().read(run_id, after=after, limit=limit)
        if any(event.data.get("text") == "damaged" for event in found):
            raise StoreCorrupt("this one is damaged")
        return found


def test_events_that_cannot_be_read_are_found_one_by_one() -> None:
    async def main() -> None:
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

    run(main())

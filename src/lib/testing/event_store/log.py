"""The contract of an event store: appending to a log, and reading it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from lib.errors import Conflict, RunNotFound
from lib.events import Event, EventStore, NewEvent
from lib.events import kinds as k
from lib.events.codec import MAX_DEPTH
from lib.events.runs import MAX_RUN_ID_BYTES, fold
from lib.events.store import run_mark
from lib.testing.event_store.kit import (
    AT,
    NOTE,
    RESUMED,
    StoreTests,
    Using,
    all_events,
    begin,
    ended,
    note,
    started,
)


def nested(levels: int) -> dict[str, Any]:
    """Return a payload of so many objects, each in the one before."""
    payload: dict[str, Any] = {}
    for _ in range(levels - 1):
        payload = {"in": payload}
    return payload


def circle() -> dict[str, Any]:
    """Return a payload that holds itself."""
    payload: dict[str, Any] = {}
    payload["in"] = [payload]
    return payload


BEYOND = timezone(timedelta(hours=-1))
REFUSED: dict[str, tuple[str, list[NewEvent], int | None]] = {
    "an empty batch": ("run", [], 1),
    "an empty run id": ("", [started()], 0),
    "a second start": ("run", [started()], 1),
    "no start": ("new", [note()], 0),
    "a batch of which the second is refused": ("new", [started(), started()], 0),
    "more than signals without expected": ("run", [note(), RESUMED], None),
    "another tenant": ("run", [replace(note(), tenant="other")], 1),
    "a time without a zone": ("run", [note(at=AT.replace(tzinfo=None))], 1),
    "a time that is none in UTC": ("run", [note(at=datetime.max.replace(tzinfo=BEYOND))], 1),
    "a kind that is no text": ("run", [replace(note(), kind="\ud800")], 1),
    "a user that is no text": ("run", [note(user="\ud800")], 1),
    "a run id that is no text": ("\ud800", [started()], 0),
    "a tenant that is no text": ("new", [started(tenant="\ud800")], 0),
    "a number that is not finite": ("run", [replace(note(), data={"x": float("nan")})], 1),
    "a payload nested too deeply": ("run", [NewEvent(NOTE, nested(MAX_DEPTH + 1), AT)], 1),
    "a payload nested far too deeply": ("run", [NewEvent(NOTE, nested(5_000), AT)], 1),
    "a payload that holds itself": ("run", [NewEvent(NOTE, circle(), AT)], 1),
    "a run id that is too long": ("ä" * (MAX_RUN_ID_BYTES // 2) + "a", [started()], 0),
    "a parent without a run": ("new", [started(parent={"key": "child/1"})], 0),
    "a parent that is no object": ("new", [started(parent="run")], 0),
    "a root that is no text": ("new", [started(root=1)], 0),
    "an algorithm that is no text": ("new", [started(algorithm="\ud800")], 0),
    "an end without an outcome": ("run", [NewEvent(k.RUN_COMPLETED, {}, AT)], 1),
    "two ends": ("run", [ended(), ended()], 1),
    "more than signals after the end": ("run", [ended(), RESUMED], 1),
}
NOT_JSON: dict[str, Any] = {
    "bytes": {"x": b"raw"},
    "an object": {"x": object()},
    "a set": {"x": {1}},
    "a list for a payload": [1],
}
PAYLOADS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "depth": {"a": {"b": [{"c": [[], {}, [None, True, False]]}]}},
    "as much depth as may be": nested(MAX_DEPTH),
    "many lists side by side": {"lists": [[[]]] * MAX_DEPTH},
    "text": {"text": "naïve 日本語 🦜 \x00 \x7f \u2028 \\ \" '"},
    "lone surrogates": {"\udc80": "a \ud83d b"},
    "large numbers": {"int": 2**63, "more": -(10**40), "float": 1.7976931348623157e308},
    "small numbers": {"zero": 0, "float": 5e-324, "third": 1 / 3},
    "a megabyte": {"text": "ü" * 500_000},
}


class LogContract(StoreTests):
    """Appending and reading."""

    def test_appended_events_are_numbered_from_one_and_read_back_as_returned(
        self, using: Using
    ) -> None:
        async def body(store: EventStore) -> None:
            first = await store.append("run", [started(tenant="t", user="u")], expected=0)
            later = await store.append("run", [note("a", user="v"), note("b")], expected=1)

            assert first == [Event("run", 1, k.RUN_STARTED, {"algorithm": "react"}, AT, "t", "u")]
            assert later == [
                Event("run", 2, NOTE, {"text": "a"}, AT, "t", "v"),
                Event("run", 3, NOTE, {"text": "b"}, AT, "t", None),
            ]
            assert await store.read("run") == first + later

        using(body)

    def test_a_run_that_does_not_exist_reads_as_empty(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run")

            assert await store.read("other") == []

        using(body)

    def test_reading_begins_after_a_seq_and_stops_at_a_limit(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            log = await begin(store, "run", notes=4)

            assert await store.read("run", after=2) == log[2:]
            assert await store.read("run", limit=2) == log[:2]
            assert await store.read("run", after=1, limit=3) == log[1:4]
            assert await store.read("run", after=5) == []
            assert await store.read("run", limit=0) == []

        using(body)

    @pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
    def test_payloads_come_back_as_they_were(self, using: Using, payload: dict[str, Any]) -> None:
        async def body(store: EventStore) -> None:
            events = [started(), NewEvent(NOTE, payload, AT)]
            stored = await store.append("run", events, expected=0)

            assert stored[1].data == payload
            assert (await store.read("run"))[1].data == payload
            assert (await all_events(store))[1].data == payload

        using(body)

    def test_tuples_come_back_as_the_lists_that_json_has(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            events = [started(), NewEvent(NOTE, {"pair": (1, 2)}, AT)]

            assert (await store.append("run", events, expected=0))[1].data == {"pair": [1, 2]}

        using(body)

    def test_payloads_are_copied_in_and_out_of_the_store(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            data = {"items": [1]}
            appended = await store.append("run", [started(), NewEvent(NOTE, data, AT)], expected=0)
            data["items"].append(2)
            appended[1].data["items"].append(3)
            page = await store.read("run")
            page.pop().data["items"].append(4)
            (await all_events(store))[1].data["items"].append(5)

            assert (await store.read("run"))[1].data == {"items": [1]}
            assert (await all_events(store))[1].data == {"items": [1]}

        using(body)

    def test_times_are_kept_to_the_microsecond_and_in_utc(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            east = timezone(timedelta(hours=5, minutes=30))
            times = [
                AT.astimezone(east),
                datetime(1, 1, 2, tzinfo=UTC),
                datetime.max.replace(tzinfo=UTC),
            ]
            events = [started(at=times[0]), note(at=times[1]), note(at=times[2])]
            stored = await store.append("run", events, expected=0)

            assert [event.at for event in stored] == times
            assert stored == await store.read("run")
            assert {event.at.tzinfo for event in stored} == {UTC}

        using(body)

    @pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
    def test_a_batch_that_breaks_a_rule_is_refused_as_a_whole(
        self, using: Using, case: tuple[str, list[NewEvent], int | None]
    ) -> None:
        async def body(store: EventStore) -> None:
            log = await begin(store, "run")
            before = await store.runs()
            run_id, events, expected = case
            with pytest.raises(ValueError):
                await store.append(run_id, events, expected=expected)

            assert await all_events(store) == log
            assert await store.runs() == before

        using(body)

    def test_a_refused_append_leaves_concurrent_appends_alone(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            for name in ("run", "other"):
                await begin(store, name)
            refused: list[Awaitable[Any]] = []
            stored: list[Awaitable[Any]] = []
            for head, (run_id, events, expected) in enumerate(REFUSED.values(), 1):
                place = head + 1 if expected == 1 else expected
                stored.append(store.append("run", [note(str(head))], expected=None))
                refused.append(store.append(run_id, events, expected=place))
                stored.append(store.append("other", [note(str(head))], expected=head))
            pairs = zip(stored[::2], refused, stored[1::2], strict=True)
            async with asyncio.timeout(200):
                outcomes = await asyncio.gather(
                    *(one for pair in pairs for one in pair), return_exceptions=True
                )
                await store.append("run", [note("later")], expected=None)

            assert {type(outcome) for outcome in outcomes[::3] + outcomes[2::3]} == {list}
            refusals = ValueError | Conflict  # by what was there when it was looked at again
            assert [out for out in outcomes[1::3] if not isinstance(out, refusals)] == []
            for name in ("run", "other"):
                texts = [event.data.get("text") for event in await store.read(name)]
                numbers = [str(number) for number in range(1, len(REFUSED) + 1)]
                assert texts == [None, *numbers, *(["later"] if name == "run" else [])]

        using(body)

    def test_the_longest_run_id_has_room_for_marks_of_its_own(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            run_id = "ä" * (MAX_RUN_ID_BYTES // 2)
            log = await begin(store, run_id, notes=1)
            mark = run_mark(run_id, "dead/" + "g" * 900)
            await store.set_mark(mark, "kept")

            assert await store.read(run_id) == log
            assert await store.mark(mark) == "kept"
            assert await store.erase(run_id) is True
            assert await store.mark(mark) is None

        using(body)

    @pytest.mark.parametrize("payload", NOT_JSON.values(), ids=NOT_JSON)
    def test_a_payload_that_is_not_json_is_refused(self, using: Using, payload: Any) -> None:
        async def body(store: EventStore) -> None:
            with pytest.raises(TypeError):
                await store.append("run", [started(), NewEvent(NOTE, payload, AT)], expected=0)

            assert await store.runs() == []

        using(body)

    @pytest.mark.parametrize(
        ("run_id", "expected", "actual"), [("run", 1, 3), ("run", 4, 3), ("new", 2, 0)]
    )
    def test_an_append_that_expected_another_head_conflicts(
        self, using: Using, run_id: str, expected: int, actual: int
    ) -> None:
        async def body(store: EventStore) -> None:
            log = await begin(store, "run", notes=2)
            with pytest.raises(Conflict) as caught:
                await store.append(run_id, [note()], expected=expected)

            error = caught.value
            assert (error.run_id, error.expected, error.actual) == (run_id, expected, actual)
            assert await all_events(store) == log

        using(body)

    def test_a_signal_needs_no_expected_but_a_run(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run", end=True)
            signals = [NewEvent(k.EVAL_SCORE, {"signal_id": "s"}, AT), note("well done")]
            stored = await store.append("run", signals, expected=None)
            with pytest.raises(RunNotFound) as caught:
                await store.append("other", signals, expected=None)

            assert [event.seq for event in stored] == [3, 4]
            assert caught.value.run_id == "other"
            assert (await store.run("run")) == fold(await store.read("run"))

        using(body)

    def test_of_appends_with_one_expectation_exactly_one_wins(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run")
            attempts = [store.append("run", [note(str(n))], expected=1) for n in range(10)]
            outcomes = await asyncio.gather(*attempts, return_exceptions=True)

            won = [outcome for outcome in outcomes if isinstance(outcome, list)]
            assert [type(outcome) for outcome in outcomes].count(Conflict) == 9
            assert won == [(await store.read("run"))[1:]]

        using(body)

    def test_appends_at_the_same_time_are_all_kept(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            async def write(run_id: str) -> None:
                await begin(store, run_id)
                for head in range(1, 8):
                    await store.append(run_id, [note(str(head))], expected=head)
                    await store.append("signalled", [note(run_id)], expected=None)

            await begin(store, "signalled")
            names = [f"run-{number}" for number in range(20)]
            await asyncio.gather(*(write(name) for name in names))

            feed = await all_events(store, limit=50)
            for name in names:
                log = await store.read(name)
                assert [event.seq for event in log] == list(range(1, 9))
                assert [event for event in feed if event.run_id == name] == log
            signalled = await store.read("signalled")
            assert sorted(event.data["text"] for event in signalled[1:]) == sorted(names * 7)

        using(body)

    def test_a_cancelled_append_leaves_a_sound_store(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run")
            for _ in range(10):
                head = len(await store.read("run"))
                tasks = [
                    asyncio.create_task(store.append("run", [note()], expected=None))
                    for _ in range(4)
                ]
                await asyncio.sleep(0)  # noqa: TID251 - lets them begin
                for task in tasks[1:3]:
                    task.cancel()
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)

                log = await store.read("run")
                assert [event.seq for event in log] == list(range(1, len(log) + 1))
                assert head + 2 <= len(log) <= head + 4
                kept = [outcome[0] for outcome in outcomes if isinstance(outcome, list)]
                assert all(event in log for event in kept)

        using(body)

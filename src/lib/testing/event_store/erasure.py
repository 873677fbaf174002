"""The contract of an event store: what is left of erased runs, and which runs use a blob."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from lib.errors import RunErased
from lib.events import EventStore, NewEvent
from lib.events import kinds as k
from lib.events.store import Tombstone, erasures_of, tombstone_name
from lib.testing.aio import run
from lib.testing.event_store.kit import (
    AT,
    NOTE,
    RESUMED,
    StoreTests,
    Using,
    all_events,
    attached,
    begin,
    note,
    started,
)

APPENDS: dict[str, tuple[Sequence[NewEvent], int | None]] = {
    "a start": ([started()], 0),
    "a start and more": ([started(), note()], 0),
    "the next event": ([note()], 3),
    "an event somewhere": ([RESUMED], 1),
    "a signal": ([NewEvent(k.CANCEL_REQUESTED, {"signal_id": "s"}, AT)], None),
    "an annotation": ([note()], None),
}
A, B = "a" * 64, "b0" * 32


def blob(digest: str, **changed: Any) -> dict[str, Any]:
    """Return a reference to a blob."""
    return {"$blob": digest, "size": 3, "type": "text/plain", **changed}


_CALL = {"key": "tool/1/c", "call_id": "c"}
NO_USE: dict[str, Any] = {
    "a text": f'{{"$blob": "{A}", "size": 3, "type": "text/plain"}}',
    "no size": {"$blob": A, "type": "text/plain"},
    "no digest": blob("text"),
    "upper case": blob(A.upper()),
    "too long": blob(A + "a"),
    "no text": blob("\ud800" * 64),
    "a line more": blob(A + "\n"),
    "a list": {"$blob": [A], "size": 3, "type": "text/plain"},
    "the name alone": ["$blob", A],
    "more": blob(A, card="x"),
    "less than nothing": blob(A, size=-1),
}


class ErasureContract(StoreTests):
    """Erasing runs, and what remains."""

    def test_listeners_of_a_run_wake_when_it_is_erased(self, using: Using) -> None:
        @using
        async def _(store: EventStore) -> None:
            await begin(store, "run")
            with store.wakeups.listen("run") as gone, store.wakeups.listen("other") as other:
                assert not await store.erase("missing")
                assert await store.erase("run")
                assert await gone.wait(5)
                assert not await other.wait(0)

    def test_a_tombstone_records_the_length_of_its_run(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run", notes=2)
            await begin(store, "other")
            alive = await store.tombstone("run")
            await store.erase("run")
            erased_at = using.clock.now()
            using.clock.advance(9)
            await store.erase("run")

            assert alive is None
            left = Tombstone(tombstone_name("run"), 3, erased_at)
            assert await store.tombstone("run") == left
            assert await store.tombstone("other") is None
            assert await store.tombstone("missing") is None

        using(body)

    def test_erasing_a_missing_run_leaves_no_tombstone(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            assert await store.erase("run") is False
            assert await store.tombstone("run") is None
            assert await begin(store, "run")

        using(body)

    @pytest.mark.parametrize("append", APPENDS.values(), ids=APPENDS)
    def test_nothing_is_appended_to_an_erased_run(
        self, using: Using, append: tuple[Sequence[NewEvent], int | None]
    ) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run", notes=2)
            await store.erase("run")
            events, expected = append
            with pytest.raises(RunErased) as caught:
                await store.append("run", events, expected=expected)

            assert caught.value.run_id == "run"
            assert (await store.run("run"), await all_events(store)) == (None, [])

        using(body)

    def test_a_concurrent_append_and_erasure_leave_no_event(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            for number in range(10):
                name = f"run-{number}"
                await begin(store, name)
                tasks: list[Awaitable[object]] = [
                    store.append(name, [note()], expected=None) for _ in range(4)
                ]
                tasks.insert(number % 5, store.erase(name))
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)

                refused = [one for one in outcomes if isinstance(one, Exception)]
                assert {type(one) for one in refused} <= {RunErased}
                tombstone = await store.tombstone(name)
                assert tombstone is not None
                assert tombstone.events == 5 - len(refused)
            assert (await all_events(store), await store.runs()) == ([], [])

        using(body)

    def test_every_erasure_changes_the_number_of_erasures(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            numbers = [await erasures_of(store)]
            if numbers == [None]:
                return  # it is optional
            await begin(store, "a")
            for name in ("b", "c"):
                await begin(store, name, notes=2, parent={"run_id": "a", "key": name}, root="a")
            assert await erasures_of(store) == numbers[0]
            for name in ("b", "c", "a"):
                await store.erase(name)
                numbers.append(await erasures_of(store))
            assert len(set(numbers)) == 4
            await begin(store, "d", notes=1)
            assert await erasures_of(store) == numbers[-1]

        using(body)

    def test_concurrent_erasures_are_counted_each(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            before = await erasures_of(store)
            if before is None:
                return
            names = [f"run-{number}" for number in range(10)]
            for name in names:
                await begin(store, name)
            assert all(await asyncio.gather(*map(store.erase, names)))
            after = await erasures_of(store)
            assert after is not None
            assert after >= before + len(names)

        using(body)

    def test_an_erasure_through_another_store_object_changes_the_count(self, using: Using) -> None:
        async def main() -> None:
            async with using.opened() as here, using.opened() as there:
                await begin(here, "run")
                before = await erasures_of(here)
                if before is None:
                    return
                await there.erase("run")
                assert await erasures_of(here) != before
                assert await erasures_of(here) == await erasures_of(there)

        if using.kind.shared:
            run(main())

    def test_the_lease_of_an_erased_run_is_lost(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run")
            [lease] = await store.claim("me", ttl_s=30)
            await store.erase("run")

            assert await store.renew(lease, ttl_s=30) is None
            await store.release(lease)
            using.clock.advance(31)
            assert await store.claim("me", ttl_s=30, run_id="run") == []
            assert await store.claim("me", ttl_s=30) == []

        using(body)

    def test_children_of_an_erased_run_stay(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run")
            link = {"run_id": "run", "key": "child/1"}
            log = await begin(store, "child", root="run", parent=link)
            await store.erase("run")

            assert await store.read("child") == log
            assert await all_events(store) == log
            assert await store.append("child", [note()], expected=1)

        using(body)

    def test_tombstones_and_blob_users_last_as_long_as_the_store(self, using: Using) -> None:
        async def main() -> None:
            store = using.kind.open(using.place, using.clock)
            await store.setup()
            await begin(store, "erased")
            await begin(store, "run")
            await store.append("run", [NewEvent(NOTE, {"file": blob(A)}, AT)], expected=1)
            await store.erase("erased")
            left = await store.tombstone("erased")
            await store.close()
            await store.setup()

            if using.kind.survives_close:
                assert await store.tombstone("erased") == left is not None
                assert await store.blob_users(A) == ["run"]
                with pytest.raises(RunErased):
                    await begin(store, "erased")
            else:
                assert await store.tombstone("erased") is None
                assert await store.blob_users(A) == []
            await store.close()

        run(main())

    def test_the_users_of_a_blob_are_the_runs_that_refer_to_it(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            deep = NewEvent(NOTE, {"list": [{"x": {"file": blob(A)}}, blob(A), blob(B)]}, AT)
            await begin(store, "one")
            await store.append("one", [deep], expected=1)
            await store.append("one", [deep, deep], expected=None)
            await begin(store, "two", input=attached(A))
            await begin(store, "three")

            assert sorted(await store.blob_users(A, limit=9)) == ["one", "two"]
            [either] = await store.blob_users(A)
            assert either in ("one", "two")
            assert await store.blob_users(B, limit=9) == ["one"]
            assert await store.blob_users("c" * 64) == []

        using(body)

    def test_an_erased_run_uses_no_blob_and_others_still_do(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            for name in ("one", "two"):
                await begin(store, name, input=attached(A))
            await store.erase("one")
            after_one = await store.blob_users(A, limit=9)
            await store.erase("two")
            after_two = await store.blob_users(A, limit=9)
            await begin(store, "three")
            await begin(store, "four")

            assert (after_one, after_two) == (["two"], [])
            assert await store.blob_users(A, limit=9) == []

        using(body)

    @pytest.mark.parametrize("value", NO_USE.values(), ids=NO_USE)
    def test_values_that_resemble_a_blob_reference_are_none(self, using: Using, value: Any) -> None:
        async def body(store: EventStore) -> None:
            part = {"type": "of-a-newer-release", "blob": value}
            message = {"role": "user", "content": "x", "file": value}
            log = await begin(store, "run", input=[message, {"role": "user", "parts": [part]}])
            log += await store.append("run", [NewEvent(NOTE, {"file": value}, AT)], expected=1)

            assert await store.read("run") == log
            for digest in (A, A.upper(), "text", A + "a"):
                assert await store.blob_users(digest) == []

        using(body)

    def test_output_of_a_model_refers_to_no_blob(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            [message] = attached(A)
            call = {"type": "tool_call", "id": "c", "name": "f", "arguments": {"x": blob(A)}}
            await begin(store, "run", config=blob(A))
            made = [
                NewEvent(k.LLM_COMPLETED, {"key": "llm/1", "reply": {"parts": [call]}}, AT),
                NewEvent(k.TOOL_REQUESTED, {**_CALL, "args": {**message, **blob(A)}}, AT),
            ]
            await store.append("run", made, expected=1)

            assert await store.blob_users(A) == []

        using(body)

    def test_appends_to_a_run_erased_an_hour_ago_are_refused(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run")
            await store.erase("run")
            using.clock.advance(timedelta(hours=1).total_seconds())
            with pytest.raises(RunErased):
                await begin(store, "run")

        using(body)

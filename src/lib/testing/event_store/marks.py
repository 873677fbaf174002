"""The contract of an event store: small durable values."""

from __future__ import annotations

import asyncio

import pytest

from lib.events import EventStore
from lib.events.store import run_mark
from lib.testing.event_store.kit import StoreTests, Using, begin

HOSTILE = ["%", "_", "\\", "*", "[", "]", "?", "^", "[a", "\\%", "a%", "a_", "a*", "-", "{", "}"]
NAMES = [
    *(f"{prefix}{rest}" for prefix in HOSTILE for rest in ("", "b", "%", "_")),
    *("a", "ab", "abc", "A", "Ab", "b", "é", "é/x", "e\u0301", "z", "Z", "\uffff", "\U0001f600"),
    *("\ud7ff", "\ue000", "\U0010ffff", "\U0010ffff\U0010ffff", "\U0010ffffx", " ", "\n"),
]


class MarksContract(StoreTests):
    """Keeping, swapping and listing marks."""

    def test_marks_are_kept_and_replaced(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            assert await store.mark("bus/a") is None
            await store.set_mark("bus/a", "1")
            await store.set_mark("bus/ä", "")
            await store.set_mark("bus/a", "2")

            assert [await store.mark(name) for name in ("bus/a", "bus/ä", "bus")] == ["2", "", None]

        using(body)

    def test_a_mark_is_changed_only_if_it_is_as_expected(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            assert await store.compare_and_set_mark("a", expected="1", value="2") is False
            assert await store.compare_and_set_mark("a", expected=None, value="1") is True
            assert await store.compare_and_set_mark("a", expected=None, value="2") is False
            assert await store.mark("a") == "1"
            assert await store.compare_and_set_mark("a", expected="1", value="") is True
            assert await store.compare_and_set_mark("a", expected="", value=None) is True
            assert await store.compare_and_set_mark("a", expected=None, value=None) is True
            assert await store.mark("a") is None

        using(body)

    def test_of_concurrent_changes_of_a_mark_one_succeeds(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            swaps = [store.compare_and_set_mark("a", expected=None, value=str(n)) for n in range(8)]
            swapped = await asyncio.gather(*swaps)

            assert swapped.count(True) == 1
            assert await store.mark("a") == str(swapped.index(True))

        using(body)

    def test_erasing_a_run_deletes_its_marks_and_no_others(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            names = [run_mark(run_id, "x") for run_id in ("a", "a/x", "a0", "ab", "ä", "A")]
            await begin(store, "a")
            for name in [*names, "run", "runs"]:
                await store.set_mark(name, "kept")
            await store.erase("a")

            found = [await store.mark(name) for name in [*names, "run", "runs"]]
            assert found == [None, *["kept"] * 7]

        using(body)

    @pytest.mark.parametrize(
        "prefix", ["", "a", "Ab", "é", "none", "\ud7ff", "\U0010ffff", *HOSTILE]
    )
    def test_marks_are_listed_by_any_prefix_of_their_names(self, using: Using, prefix: str) -> None:
        async def body(store: EventStore) -> None:
            await asyncio.gather(*(store.set_mark(name, f"<{name}>") for name in NAMES))
            found = await store.marks(prefix)

            expected = {name: f"<{name}>" for name in sorted(NAMES) if name.startswith(prefix)}
            assert list(found.items()) == list(expected.items())

        using(body)

    def test_listed_marks_are_as_they_are_now(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            assert await store.marks("") == {}
            for number in range(3):
                await store.set_mark(f"bus/{number}", "1")
            await store.compare_and_set_mark("bus/0", expected="1", value=None)
            await store.compare_and_set_mark("bus/1", expected="1", value="2")

            assert await store.marks("bus/") == {"bus/1": "2", "bus/2": "1"}

        using(body)

    def test_the_marks_of_a_run_are_listed_until_it_is_erased(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run")
            await begin(store, "run-2")
            for name in (run_mark("run", "dead/g/2"), run_mark("run", "trace"), run_mark("run-2")):
                await store.set_mark(name, "x")
            before = await store.marks(run_mark("run"))
            await store.erase("run")

            assert list(before) == ["run/run/dead/g/2", "run/run/trace"]
            assert await store.marks("run/") == {"run/run-2/": "x"}

        using(body)

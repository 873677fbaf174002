"""The contract of a vector store: it can be read from one end to the other, and says what it is."""

from __future__ import annotations

from typing import Any

import pytest

from lib.errors import InvalidMeta, StoreClosed
from lib.testing.vector_store.kit import StoreTests, Using, ids, points
from lib.vector import EVERYTHING, Record, VectorStore
from lib.vector.contract import ScanStore
from lib.vector.records import Layout

NAMES = ["b", "a", "ab", "a b", "Z", "é", "e\u0301", "10", "9", "\U0001f600", "\uffff", "%", "_"]


class ScanContract(StoreTests):
    """Reading page by page, of a store that declares it."""

    @pytest.mark.parametrize("limit", [1, 2, 5, 100])
    def test_every_record_is_read_once_and_whole_in_the_order_of_code_points(
        self, using: Using, limit: int
    ) -> None:
        async def body(store: ScanStore) -> None:
            stored = {
                name: Record(name, [3.0, -4.0], f"text of {name}", {"x": [name]}) for name in NAMES
            }
            await store.upsert(list(stored.values()))
            await store.upsert(points("c"), namespace="other")

            found = await everything(store, limit)
            assert found == [stored[name] for name in sorted(NAMES)]

        self._with_scan(using, body)

    def test_a_page_begins_behind_any_id_whether_it_exists_or_not(self, using: Using) -> None:
        async def body(store: ScanStore) -> None:
            await store.upsert(points("a", "c", "e"))

            assert ids(await store.scan(after="a")) == ["c", "e"]
            assert ids(await store.scan(after="b", limit=1)) == ["c"]
            assert await store.scan(after="e") == []
            assert await store.scan(namespace="other") == []

        self._with_scan(using, body)

    def test_what_is_deleted_between_two_pages_leaves_no_gap(self, using: Using) -> None:
        async def body(store: ScanStore) -> None:
            await store.upsert(points(*"abcdef"))
            assert ids(await store.scan(limit=2)) == ["a", "b"]
            await store.delete(["c", "e"])

            assert ids(await store.scan(after="b", limit=2)) == ["d", "f"]
            assert ids(await store.scan(after="b", limit=1)) == ["d"]
            assert ids(await store.scan(after="d", limit=1)) == ["f"]

        self._with_scan(using, body)

    def test_the_first_page_shows_all_that_has_been_written_before_it(self, using: Using) -> None:
        async def body(store: ScanStore) -> None:
            await store.upsert(points("b", "d"))
            assert ids(await store.scan(limit=1)) == ["b"]
            await store.upsert([Record("d", [0.0, 1.0], "new"), *points("a", "c")])

            (record,) = [one for one in await store.scan(after="b") if one.id == "d"]
            assert record == Record("d", [0.0, 1.0], "new")
            assert ids(await store.scan(limit=3)) == ["a", "b", "c"]

        self._with_scan(using, body)

    def test_two_namespaces_are_read_in_turns(self, using: Using) -> None:
        async def body(store: ScanStore) -> None:
            await store.upsert(points("a", "b", "c"))
            await store.upsert(points("b", "x", "y"), namespace="other")

            assert ids(await store.scan(limit=2)) == ["a", "b"]
            assert ids(await store.scan(limit=1, namespace="other")) == ["b"]
            assert ids(await store.scan(after="b", limit=2)) == ["c"]
            assert ids(await store.scan(after="b", limit=2, namespace="other")) == ["x", "y"]

        self._with_scan(using, body)

    def test_what_passes_a_filter_is_read_page_by_page(self, using: Using) -> None:
        async def body(store: ScanStore) -> None:
            await store.upsert([Record(f"{n:02}", [1.0, n], "", {"n": n % 3}) for n in range(20)])
            await store.upsert(points("00", n=1), namespace="other")
            assert await store.scan(filter={"n": {"$in": []}}) == []
            assert len(await store.scan(filter=EVERYTHING)) == 20
            if not using.kind.takes_equality(store):
                return

            wanted = [f"{n:02}" for n in range(1, 20, 3)]
            for limit in (1, 3, 100):
                found, after = list[str](), None
                while page := await store.scan(filter={"n": 1}, after=after, limit=limit):
                    found += ids(page)
                    after = page[-1].id
                assert found == wanted
            first = ids(await store.scan(filter={"n": 1}, limit=3))
            await store.upsert(points("10", n=2))
            await store.delete(["13"])
            rest = await store.scan(filter={"n": 1}, after=first[-1], limit=3)
            assert ids(rest) == ["16", "19"]
            assert ids(await store.scan(filter={"n": 2}, after="09", limit=2)) == ["10", "11"]

        self._with_scan(using, body)

    def test_records_are_listed_one_by_one_from_a_cursor_on(self, using: Using) -> None:
        async def body(store: Any) -> None:
            if not hasattr(store, "list_records"):
                return
            await store.upsert([Record(f"{n:02}", [1.0, n], "", {"n": n % 3}) for n in range(20)])
            every = await store.scan()
            for size in (1, 7, 20, 10_000):
                assert [one async for one in store.list_records(batch_size=size)] == every

            read = store.list_records(batch_size=4)
            seen = [await anext(read) for _ in range(6)]
            await read.aclose()
            rest = [one async for one in store.list_records(after=seen[-1].id, batch_size=4)]
            assert seen + rest == every
            if using.kind.takes_equality(store):
                passing = [one async for one in store.list_records(filter={"n": 1}, batch_size=2)]
                assert ids(passing) == [f"{n:02}" for n in range(1, 20, 3)]
            with pytest.raises(ValueError, match="limit is"):
                await anext(store.list_records(batch_size=0))
            assert [one async for one in store.list_records(namespace="other")] == []

        self._with_scan(using, body)

    @pytest.mark.parametrize("limit", [0, -1, True, 1.0, "1", None, 10_001])
    def test_a_page_has_a_size(self, using: Using, limit: Any) -> None:
        async def body(store: ScanStore) -> None:
            with pytest.raises(ValueError, match="limit is"):
                await store.scan(limit=limit)

        self._with_scan(using, body)

    @pytest.mark.parametrize("after", ["", "a\0", "x" * 513, 1])
    def test_what_is_no_id_is_none_to_begin_behind(self, using: Using, after: Any) -> None:
        async def body(store: ScanStore) -> None:
            with pytest.raises(InvalidMeta):
                await store.scan(after=after)

        self._with_scan(using, body)

    def test_a_closed_store_is_not_read(self, using: Using) -> None:
        async def body(store: ScanStore) -> None:
            await store.close()

            with pytest.raises(StoreClosed):
                await store.scan()

        self._with_scan(using, body)

    def test_a_place_says_what_it_was_made_for_and_looking_makes_nothing(
        self, using: Using
    ) -> None:
        elsewhere = using.place / "elsewhere"
        elsewhere.mkdir()

        async def body(store: VectorStore) -> None:
            await store.upsert(points("a"))
            other: Any = using.kind.open(using.place, 3, "euclidean")
            if not using.kind.can(other, "existing"):
                await other.close()
                return
            made = Layout(dimension=2, metric="dot") if using.kind.shared else None
            assert await other.existing() == made
            await other.close()

            virgin: Any = using.kind.open(elsewhere, 3, "euclidean")
            assert await virgin.existing() is None
            assert await virgin.existing() is None
            await virgin.setup()
            await virgin.close()

        using(body, metric="dot")

    def _with_scan(self, using: Using, body: Any) -> None:
        """Run the body, if the store declares that it can be read in order."""

        async def main(store: Any) -> None:
            if using.kind.can(store, "scan"):
                await body(store)

        using(main)


async def everything(store: ScanStore, limit: int) -> list[Record]:
    """Return all records, read so many at a time."""
    found, after = list[Record](), None
    while page := await store.scan(after=after, limit=limit):
        found += page
        after = page[-1].id
        if len(page) < limit:
            assert await store.scan(after=after, limit=limit) == []
    return found

"""The contract of a vector store: records that are left alone, and metadata that changes alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from lib.errors import DimensionMismatch, InvalidFilter, InvalidMeta, StoreClosed, UnsupportedFilter
from lib.testing.vector_store.kit import StoreTests, Using, case, ids, points
from lib.vector import EVERYTHING, F, Record


class ChangeContract(StoreTests):
    """Inserting what is not there and changing metadata, of a store that declares it."""

    def test_an_insert_leaves_records_alone_that_are_there(self, using: Using) -> None:
        async def body(store: Any) -> None:
            old = Record("a", [3.0, -4.0], "old", {"x": 1})
            new = Record("b", [1.0, 2.0], "new", {"x": [2]})
            await store.upsert([old])
            await store.upsert([Record("b", [9.0, 9.0])], namespace="other")

            assert await store.insert([Record("a", [1.0, 0.0], "new"), new]) == 1
            assert await store.get(["a", "b"]) == [old, new]
            assert await store.insert([Record("b", [5.0, 5.0]), Record("a", [5.0, 5.0])]) == 0
            assert await store.insert([]) == 0
            assert await store.get(["a", "b"]) == [old, new]
            assert await store.count() == 2

        self._with(using, "insert", body)

    def test_of_an_id_that_is_inserted_twice_the_last_record_counts(self, using: Using) -> None:
        async def body(store: Any) -> None:
            last = Record("a", [0.0, 1.0], "last", {"x": 2})

            assert await store.insert([Record("a", [1.0, 0.0], "first"), last], namespace="n") == 1
            assert await store.get(["a"], namespace="n") == [last]
            assert ids(await store.query([0.0, 1.0], namespace="n")) == ["a"]

        self._with(using, "insert", body)

    def test_many_records_are_inserted_beside_many(self, using: Using) -> None:
        async def body(store: Any) -> None:
            await store.upsert(points(*(f"{n:04}" for n in range(0, 1200, 2)), x=1))

            assert await store.insert(points(*(f"{n:04}" for n in range(1200)), x=2)) == 600
            assert await store.count() == 1200
            if using.kind.takes_equality(store):
                assert await store.count(filter={"x": 1}) == 600

        self._with(using, "insert", body)

    def test_an_insert_is_checked_before_anything_is_written(self, using: Using) -> None:
        async def body(store: Any) -> None:
            with pytest.raises(DimensionMismatch):
                await store.insert([Record("a", [1.0, 0.0]), Record("b", [1.0])])
            with pytest.raises(InvalidMeta):
                await store.insert([Record("a", [1.0, 0.0], "", {"x": object()})])
            assert await store.count() == 0
            await store.close()
            with pytest.raises(StoreClosed):
                await store.insert(points("a"))

        self._with(using, "insert", body)

    def test_metadata_changes_and_the_rest_of_a_record_stays(self, using: Using) -> None:
        async def body(store: Any) -> None:
            vector = [0.1, -3e-5]
            await store.upsert(
                [Record("a", vector, "a text", {"x": 1, "y": [1, {"z": None}]}), *points("b", "c")]
            )
            (stored,) = await store.get(["a"])

            changes = {"x": "two", "new": {"deep": [1.5, None]}}
            assert await store.update_meta(changes, ids=["a", "unknown", "a"]) == 1
            changed = Record("a", stored.vector, "a text", {**stored.meta, **changes})
            assert await store.get(["a"]) == [changed]
            assert [one.meta for one in await store.get(["b", "c"])] == [{}, {}]
            (match,) = await store.query(vector, 1, include_vectors=True)
            assert (match.id, match.meta, match.vector) == ("a", changed.meta, changed.vector)

            assert await store.update_meta({}, ids=["b"]) == 1
            assert await store.update_meta({"x": 1}, ids=[]) == 0
            assert await store.update_meta({"x": 1}, ids=["a"], namespace="other") == 0
            assert await store.get(["a"]) == [changed]

        self._with(using, "update", body)

    def test_filters_see_the_changed_metadata_at_once(self, using: Using) -> None:
        async def body(store: Any) -> None:
            await store.upsert([*points("a", "b", x=1), *points("c", "d", x=2)])
            if not using.kind.takes_equality(store):
                return
            assert ids(await store.query([1.0, 0.0], filter={"x": 1})) == ["a", "b"]

            assert await store.update_meta({"x": 2, "seen": True}, filter=F("x") == 1) == 2
            assert await store.count(filter={"x": 1}) == 0
            assert ids(await store.query([1.0, 0.0], filter={"x": 2})) == ["a", "b", "c", "d"]
            assert await store.update_meta({"x": 3}, ids=["a", "c"], filter={"seen": True}) == 1
            assert ids(await store.query([1.0, 0.0], filter={"x": 3})) == ["a"]
            assert await store.update_meta({"x": None}, ids=["a"]) == 1
            assert await store.count(filter=F("x").exists()) == 3
            assert await store.update_meta({"x": 9}, filter={"x": {"$in": []}}) == 0

        self._with(using, "update", body)

    def test_every_record_changes_where_that_is_said(self, using: Using) -> None:
        async def body(store: Any) -> None:
            await store.upsert([Record(f"{n:04}", [1.0, n], f"{n}", {"n": n}) for n in range(1200)])

            assert await store.update_meta({"done": True}, filter=EVERYTHING) == 1200
            found = await store.get([f"{n:04}" for n in range(1200)])
            assert found == [
                Record(f"{n:04}", [1.0, n], f"{n}", {"n": n, "done": True}) for n in range(1200)
            ]

        self._with(using, "update", body)

    def test_what_cannot_be_changed_is_refused_and_changes_nothing(self, using: Using) -> None:
        async def body(store: Any) -> None:
            await store.upsert(points("a", x=1))
            wrong: list[tuple[type[Exception], dict[str, Any]]] = [
                (ValueError, {"ids": None}),
                (ValueError, {"ids": None, "filter": {}}),
                (InvalidFilter, {"filter": {"x": {"$like": "a"}}}),
                (InvalidMeta, {"ids": "a"}),
                (InvalidMeta, {"meta": {"x": object()}}),
                (InvalidMeta, {"meta": {1: 1}}),
                (InvalidMeta, {"meta": [("x", 1)]}),
                (InvalidMeta, {"meta": {"x": float("nan")}}),
            ]
            for error, change in wrong:
                with case(change), pytest.raises(error):
                    await store.update_meta(**{"meta": {"x": 2}, "ids": ["a"], **change})
            hard = F("x") > "a"
            if not using.kind.takes(store, hard):
                with pytest.raises(UnsupportedFilter):
                    await store.update_meta({"x": 2}, filter=hard)
            assert (await store.get(["a"]))[0].meta == {"x": 1}
            await store.close()
            with pytest.raises(StoreClosed):
                await store.update_meta({"x": 2}, ids=["a"])

        self._with(using, "update", body)

    def test_what_is_deleted_while_metadata_changes_does_not_come_back(self, using: Using) -> None:
        async def body(store: Any) -> None:
            names = [f"{n:04}" for n in range(600)]
            for gone, kept in ((names[:300], names[300:]), (names[300:], names[:300])):
                await store.upsert(points(*names))

                works: list[Awaitable[int]] = [
                    store.update_meta({"x": 1}, ids=names),
                    store.delete(gone),
                ]
                changed, deleted = await asyncio.gather(*works)

                assert deleted == 300
                assert 300 <= changed <= 600
                left = await store.get(names)
                assert ids(left) == kept
                assert all(one.meta == {"x": 1} for one in left)

        self._with(using, "update", body)

    def test_what_is_stored_while_others_read_and_write_back_is_kept(self, using: Using) -> None:
        async def body(store: Any) -> None:
            await store.upsert(points("a", "b", x=1))
            works = [store.upsert([Record("a", [0.0, 1.0], "new"), Record("c", [0.0, 1.0], "new")])]
            if using.kind.can(store, "update"):
                works.append(store.update_meta({"x": 2}, ids=["a"]))
            works.append(store.insert(points("a", "c", x=3)))

            await asyncio.gather(*works)

            found = await store.get(["a", "b", "c"])
            assert [one.text for one in found] == ["new", "", "new"]

        self._with(using, "insert", body)

    def _with(self, using: Using, capability: Any, body: Any) -> None:
        """Run the body, if the store declares the capability."""

        async def main(store: Any) -> None:
            if using.kind.can(store, capability):
                await body(store)

        using(main)

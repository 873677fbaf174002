"""The contract of a vector store: what goes in comes out, and only there."""

from __future__ import annotations

import asyncio
from array import array
from typing import Any

import numpy as np
import pytest

from lib.errors import StoreClosed
from lib.testing.vector_store.kit import METRICS, StoreTests, Using, case, ids, points
from lib.vector import EVERYTHING, F, Metric, Record, VectorStore

NAMES = ("a", "ä/ö", "it's", 'say "x"', "日本", "a b", "%", "\U0001f600", "x" * 512, "\uffff" * 512)
METAS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "depth": {"a": {"b": [{"c": [[], {}, [None, True, False]]}]}},
    "odd keys": {"": 1, " ": 2, "a.b": 3, "$x": 4, "it's": 5, '"': 6, "\\": 7, "日本": 8, "\n": 9},
    "text": {"text": "naïve 日本語 🦜 \x01 \x7f \u2028 \\ \" ' </script>"},
    "large numbers": {"most": 2**63 - 1, "least": -(2**63), "float": 1.7976931348623157e308},
    "small numbers": {"zero": 0, "minus": -1, "float": 5e-324, "third": 1 / 3},
    "much": {f"key{number}": "ü" * 100 for number in range(100)},
}


class RecordContract(StoreTests):
    """Upserting, getting, deleting, counting."""

    def test_a_record_comes_back_as_it_went_in(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            for name, meta in METAS.items():
                with case(name):
                    record = Record("a", [0.5, -2.25], "text\nof it", meta)
                    await store.upsert([record])

                    assert await store.get(["a"]) == [record]
                    (match,) = await store.query([1.0, 0.0], include_vectors=True)
                    assert Record("a", match.vector or [], match.text, match.meta) == record

        using(body)

    @pytest.mark.parametrize("metric", METRICS)
    def test_vectors_come_back_to_the_last_bit(self, using: Using, metric: Metric) -> None:
        async def body(store: VectorStore) -> None:
            noise = np.random.default_rng(5).standard_normal((24, 64)).astype(np.float32)
            noise[:2] = [3.0, 9.0, *[0.0] * 62], [1 / 3, -1e-3, *[7e8] * 62]
            wanted: dict[str, Any] = {f"{n:02}": row.tolist() for n, row in enumerate(noise)}
            await store.upsert([Record(name, vector) for name, vector in wanted.items()])

            found = await store.query(noise[0], 100, include_vectors=True)
            assert {match.id: match.vector for match in found} == wanted
            read = await store.get(list(wanted))
            assert {record.id: record.vector for record in read} == wanted

        using(body, dimension=64, metric=metric)

    def test_any_text_can_name_a_record_and_a_namespace(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            for name in NAMES:
                with case(name):
                    record = Record(name, [1.0, 0.0])
                    await store.upsert([record], namespace=name)

                    assert await store.get([name], namespace=name) == [record]
            assert await store.namespaces() == sorted(NAMES)

        using(body)

    def test_records_come_in_the_requested_order_without_the_unknown(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert(points("a", "b", "c"))

            assert ids(await store.get(["c", "x", "a"])) == ["c", "a"]
            assert await store.get([]) == []
            assert await store.get(["a"], namespace="other") == []

        using(body)

    def test_an_upsert_replaces_a_record_as_a_whole(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert([Record("a", [1.0, 0.0], "old words", {"x": 1, "y": 1})])
            fresh = Record("a", [0.0, 1.0], "", {"y": 2})
            await store.upsert([fresh])

            assert await store.get(["a"]) == [fresh]
            assert await store.count() == 1
            if using.kind.takes_equality(store):
                assert await store.count(filter={"x": 1}) == 0

        using(body)

    def test_of_an_id_that_comes_twice_in_a_batch_the_last_counts(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            last = Record("a", [0.0, 1.0], "last")
            await store.upsert([*points("a", "b"), last])

            assert await store.get(["a"]) == [last]
            assert await store.count() == 2

        using(body)

    def test_any_sequence_of_numbers_is_a_vector(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            vectors = [
                [1, 2],
                (1.0, 2.0),
                array("d", [1.0, 2.0]),
                np.array([1.0, 2.0]),
                np.array([1, 2], np.float32),
                np.array([[1, 0], [2, 0]])[:, 0],
            ]
            named = [Record(str(number), vector) for number, vector in enumerate(vectors)]
            await store.upsert(named)

            stored = await store.get([record.id for record in named])
            assert [record.vector for record in stored] == [[1.0, 2.0]] * len(vectors)
            for vector in vectors:
                assert len(await store.query(vector, 10)) == len(vectors)

        using(body)

    def test_nothing_is_shared_with_the_caller(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            vector, meta = [1.0, 0.0], {"list": [1], "object": {"x": 1}}
            await store.upsert([Record("a", vector, "", meta)])
            wanted = Record("a", [1.0, 0.0], "", {"list": [1], "object": {"x": 1}})

            vector[0] = 9.0
            meta["list"].append(2)  # type: ignore[union-attr] - the caller's own list
            assert await store.get(["a"]) == [wanted]
            (match,) = await store.query([1.0, 0.0], include_vectors=True)
            match.meta["object"]["x"] = 2
            (got,) = await store.get(["a"])
            got.meta["list"].clear()
            assert await store.get(["a"]) == [wanted]

        using(body)

    def test_a_large_batch_is_stored(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert(points(*map(str, range(3000))))

            assert await store.count() == 3000
            assert len(await store.query([1.0, 0.0], 2500)) == 2500

        using(body)

    def test_an_empty_batch_changes_nothing(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert([])

            assert await store.count() == 0
            assert await store.namespaces() == []

        using(body)

    def test_a_namespace_is_a_wall(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            mine, yours = Record("a", [1.0, 0.0], "mine"), Record("a", [0.0, 1.0], "yours")
            await store.upsert([mine], namespace="me")
            await store.upsert([yours, *points("b")], namespace="you")

            assert ids(await store.query([0.0, 1.0], namespace="me")) == ["a"]
            assert await store.get(["a", "b"], namespace="me") == [mine]
            assert await store.count(namespace="me") == 1
            await store.delete(["a", "b"], namespace="me")
            assert await store.get(["a"], namespace="you") == [yours]
            assert await store.count() == 0

        using(body)

    def test_no_namespace_is_the_one_with_the_empty_name(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert(points("a"))

            assert await store.count(namespace="") == 1
            assert await store.namespaces() == [""]

        using(body)

    def test_namespaces_that_hold_records_are_listed_by_prefix_and_sorted(
        self, using: Using
    ) -> None:
        async def body(store: VectorStore) -> None:
            for name in ("t:b", "t:a", "u", "gone", "t_", "\U0001f600", "\uffff"):
                await store.upsert(points("a"), namespace=name)
            await store.delete(["a"], namespace="gone")

            assert await store.namespaces("t:") == ["t:a", "t:b"]
            assert await store.namespaces() == ["t:a", "t:b", "t_", "u", "\uffff", "\U0001f600"]
            assert await store.namespaces("x%") == []

        using(body)

    def test_records_are_deleted_by_id_by_filter_or_by_both(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert([*points("a", "b", x=1), *points("c", "d", x=2)])

            await store.delete(["a", "unknown"])
            assert await store.count() == 3
            if using.kind.takes_equality(store):
                await store.delete(["b", "c"], filter={"x": 2})
                assert ids(await store.get(["a", "b", "c", "d"])) == ["b", "d"]
                await store.delete(filter=F("x") == 2)
                assert ids(await store.get(["b", "d"])) == ["b"]
            await store.delete(["c", "d"], filter=EVERYTHING)
            await store.delete([], filter=EVERYTHING)
            await store.delete(filter={"x": {"$in": []}})
            assert await store.count() == 1
            await store.delete(filter=EVERYTHING)
            assert await store.count() == 0

        using(body)

    def test_a_deletion_returns_how_many_records_it_has_deleted(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert([*points("a", "b", "c", x=1), *points(*"defgh", x=2)])
            await store.upsert(points("a", x=1), namespace="other")

            assert await store.delete(["a", "unknown", "a"]) == 1
            assert await store.delete(["a"]) == 0
            assert await store.delete([]) == 0
            assert await store.delete(["b"], namespace="none") == 0
            left = 7
            if using.kind.takes_equality(store):
                assert await store.delete(["b", "d", "e", "unknown"], filter={"x": 2}) == 2
                assert await store.delete(filter={"x": 2}) == 3
                assert await store.delete(filter={"x": 3}) == 0
                left = 2
            assert await store.delete(filter={"x": {"$in": []}}) == 0
            assert await store.delete(filter=EVERYTHING) == left
            assert await store.delete(filter=EVERYTHING) == 0
            assert await store.count(namespace="other") == 1

        using(body)

    def test_a_deletion_of_nothing_in_particular_is_refused(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert(points("a"))

            for call in (store.delete, lambda: store.delete(filter={})):
                with pytest.raises(ValueError, match="EVERYTHING"):
                    await call()
            assert await store.count() == 1

        using(body)

    def test_a_deleted_record_can_come_back(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert(points("a", x=1))
            await store.delete(["a"])
            await store.delete(["a"])
            assert await store.query([1.0, 0.0]) == []
            await store.upsert(points("a", x=2))

            assert [match.meta for match in await store.query([1.0, 0.0])] == [{"x": 2}]

        using(body)

    def test_a_query_sees_each_batch_whole_or_not_at_all(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert(points(*map(str, range(300)), batch=-1))

            async def write() -> None:
                for batch in range(12):
                    await store.upsert(points(*map(str, range(300)), batch=batch))

            writing = asyncio.create_task(write())
            seen: list[int] = []
            while not writing.done():
                found = await store.query([1.0, 0.0], 300)
                (batch,) = {match.meta["batch"] for match in found}
                assert len(found) == 300
                seen.append(batch)
                await asyncio.wait([writing], timeout=0)
            await writing

            assert seen == sorted(seen)

        using(body)

    def test_setting_up_twice_and_at_once_does_no_harm(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert(points("a"))
            await asyncio.gather(store.setup(), store.setup())

            assert await store.count() == 1

        using(body)

    def test_objects_for_one_place_hold_the_same_or_nothing_in_common(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            async with using.opened() as other:
                for turn, (writer, reader) in enumerate([(store, other), (other, store)] * 3):
                    assert await reader.query([1.0, 0.0], 100) is not None
                    await writer.upsert([*points(str(turn)), Record("moving", [0.0, 1.0])])
                    found = ids(await reader.query([0.0, 1.0], 100))
                    assert (str(turn) in found) == using.kind.shared
                    assert found[:1] == (["moving"] if using.kind.shared else found[:1])
                    await reader.delete(["moving"])
                    assert ("moving" in ids(await writer.get(["moving"]))) != using.kind.shared

        using(body)

    def test_a_closed_store_says_so(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert(points("a"))
            await store.close()
            await store.close()

            for call in (
                store.setup,
                lambda: store.upsert(points("a")),
                lambda: store.query([1.0, 0.0]),
                lambda: store.get(["a"]),
                lambda: store.delete(["a"]),
                store.count,
                store.namespaces,
            ):
                with pytest.raises(StoreClosed):
                    await call()

        using(body)

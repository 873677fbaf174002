"""The contract of a vector store: bad input is refused by name, and changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import reduce
from typing import Any

import numpy as np
import pytest

from lib.errors import DimensionMismatch, InvalidMeta, InvalidVector
from lib.testing.vector_store.kit import StoreTests, Using, case, points
from lib.vector import Metric, Record, VectorStore

VECTORS: dict[str, Any] = {
    "NaN": [float("nan"), 1.0],
    "infinity": [1.0, float("-inf")],
    "too large for 32 bits": [1e39, 1.0],
    "an enormous integer": [10**400, 1],
    "too long for 32 bits": [1e30, 1e30],
    "text": "ab",
    "bytes": b"ab",
    "numbers as text": ["1", "2"],
    "None": [None, 1.0],
    "no sequence": 1.0,
    "a matrix": np.ones((1, 2)),
    "a masked array": np.ma.array([1.0, 2.0], mask=[False, True]),
    "an array of objects": np.array([None, 1.0]),
    "an array of bools": np.array([True, False]),
    "a mapping": {0: 1.0, 1: 1.0},
    "a set": {1.0, 2.0},
    "nothing": [],
}
NO_DIRECTION = ([0.0, -0.0], [1e-30, 0.0], [1e-60, 0.0])
LOOP: list[Any] = []
LOOP.append(LOOP)
RECORDS: dict[str, Any] = {
    "an empty id": Record("", [1.0, 0.0]),
    "a long id": Record("x" * 513, [1.0, 0.0]),
    "NUL in an id": Record("a\0", [1.0, 0.0]),
    "a surrogate in an id": Record("\ud800", [1.0, 0.0]),
    "an id that is no text": Record(1, [1.0, 0.0]),  # type: ignore[arg-type] - on purpose
    "NUL in a text": Record("a", [1.0, 0.0], "a\0b"),
    "a surrogate in a text": Record("a", [1.0, 0.0], "\ud83d"),
    "a text that is none": Record("a", [1.0, 0.0], None),  # type: ignore[arg-type] - on purpose
    "metadata that is none": Record("a", [1.0, 0.0], "", None),  # type: ignore[arg-type] - on purpose
    "NaN": Record("a", [1.0, 0.0], "", {"x": [float("nan")]}),
    "infinity": Record("a", [1.0, 0.0], "", {"x": float("inf")}),
    "an integer that is too large": Record("a", [1.0, 0.0], "", {"x": 2**63}),
    "one that is too small": Record("a", [1.0, 0.0], "", {"x": {"y": -(2**63) - 1}}),
    "NUL in a key": Record("a", [1.0, 0.0], "", {"\0": 1}),
    "NUL in a value": Record("a", [1.0, 0.0], "", {"x": "\0"}),
    "a surrogate in a value": Record("a", [1.0, 0.0], "", {"x": "\udfff"}),
    "a key that is no text": Record("a", [1.0, 0.0], "", {1: 1}),  # type: ignore[dict-item] - on purpose
    "a nested one": Record("a", [1.0, 0.0], "", {"x": {None: 1}}),
    "a datetime": Record("a", [1.0, 0.0], "", {"x": datetime(2026, 1, 1, tzinfo=UTC)}),
    "bytes": Record("a", [1.0, 0.0], "", {"x": b""}),
    "a tuple": Record("a", [1.0, 0.0], "", {"x": (1,)}),
    "a set": Record("a", [1.0, 0.0], "", {"x": {1}}),
    "an array": Record("a", [1.0, 0.0], "", {"x": np.ones(1)}),
    "NaN of numpy": Record("a", [1.0, 0.0], "", {"x": np.float32("nan")}),
    "depth": Record("a", [1.0, 0.0], "", reduce(lambda inner, _: {"x": inner}, range(65), {})),
    "a loop": Record("a", [1.0, 0.0], "", {"x": LOOP}),
    "no record": ("a", [1.0, 0.0]),
}


class InputContract(StoreTests):
    """Refusals."""

    def test_what_is_no_vector_is_refused(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            for name, vector in VECTORS.items():
                with case(name), pytest.raises(InvalidVector):
                    await store.upsert([*points("good"), Record("bad", vector)])
                with case(name), pytest.raises(InvalidVector):
                    await store.query(vector)
                assert await store.count() == 0, name

        using(body, metric="dot")

    @pytest.mark.parametrize("vector", NO_DIRECTION)
    def test_cosine_refuses_a_vector_without_a_direction(
        self, using: Using, vector: list[float]
    ) -> None:
        async def body(store: VectorStore) -> None:
            with pytest.raises(InvalidVector, match="direction"):
                await store.upsert([*points("good"), Record("bad", vector)])
            with pytest.raises(InvalidVector, match="direction"):
                await store.query(vector)
            assert await store.count() == 0

        using(body)

    @pytest.mark.parametrize("metric", ["dot", "euclidean"])
    @pytest.mark.parametrize("vector", NO_DIRECTION)
    def test_other_metrics_need_no_direction(
        self, using: Using, vector: list[float], metric: Metric
    ) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert([Record("zero", vector)])

            assert [match.id for match in await store.query(vector)] == ["zero"]

        using(body, metric=metric)

    def test_a_vector_of_another_length_is_refused_with_both_lengths(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert(points("there"))

            with pytest.raises(DimensionMismatch) as refusal:
                await store.upsert([*points("good"), Record("bad", [1.0, 2.0, 3.0])])
            assert (refusal.value.expected, refusal.value.got) == (2, 3)
            with pytest.raises(DimensionMismatch) as refusal:
                await store.query([1.0])
            assert (refusal.value.expected, refusal.value.got) == (2, 1)
            assert await store.count() == 1

        using(body)

    def test_what_no_store_can_keep_is_refused_and_so_is_its_batch(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert(points("there"))

            for name, record in RECORDS.items():
                with case(name), pytest.raises(InvalidMeta):
                    await store.upsert([*points("good"), record])
                assert await store.count() == 1, name

        using(body)

    @pytest.mark.parametrize("name", ["x" * 513, "a\0", "\ud800", 1])
    def test_what_is_no_name_is_refused_for_a_namespace_and_for_an_id(
        self, using: Using, name: Any
    ) -> None:
        async def body(store: VectorStore) -> None:
            for call in (
                lambda: store.upsert(points("a"), namespace=name),
                lambda: store.query([1.0, 0.0], namespace=name),
                lambda: store.get(["a"], namespace=name),
                lambda: store.delete(["a"], namespace=name),
                lambda: store.count(namespace=name),
                lambda: store.get([name]),
                lambda: store.delete([name]),
            ):
                with pytest.raises(InvalidMeta):
                    await call()

        using(body)

    def test_what_is_no_list_of_ids_or_records_is_refused(self, using: Using) -> None:
        ids: list[Any] = ["ab", 1]
        records: list[Any] = [Record("c", [1.0, 0.0]), None]

        async def body(store: VectorStore) -> None:
            await store.upsert(points("a", "b"))

            for one in ids:
                with case(str(one)), pytest.raises(InvalidMeta, match="list"):
                    await store.get(one)
                with case(str(one)), pytest.raises(InvalidMeta, match="list"):
                    await store.delete(one)
            for one in records:
                with case(str(one)), pytest.raises(InvalidMeta, match="list"):
                    await store.upsert(one)
            assert await store.count() == 2

        using(body)

    def test_numbers_of_numpy_are_those_of_python(self, using: Using) -> None:
        async def body(store: VectorStore) -> None:
            numbers = {
                "a": np.int64(3),
                "b": np.bool_(1),
                "c": np.float32(0.5),
                "d": np.str_("x"),
            }
            masked: Any = np.ma
            vector = masked.array([1.0, 0.0])
            await store.upsert([Record("0", vector, "", dict(numbers)), *points("1", "2")])

            (record,) = await store.get(["0"])
            plain = {"a": 3, "b": True, "c": 0.5, "d": "x"}
            assert record == Record("0", [1.0, 0.0], "", plain)
            assert [type(value) for value in record.meta.values()] == [int, bool, float, str]
            two: Any = np.int64(2)
            assert len(await store.query(vector, two)) == 2
            for field, value in numbers.items():
                if using.kind.takes_equality(store):
                    filter: Any = {field: value}
                    assert await store.count(filter=filter) == 1

        using(body)

    @pytest.mark.parametrize("k", [0, -1, True, 1.0, "1", None, np.True_, np.float64(2)])
    def test_k_is_a_positive_int(self, using: Using, k: Any) -> None:
        async def body(store: VectorStore) -> None:
            with pytest.raises(ValueError, match="k is"):
                await store.query([1.0, 0.0], k)

        using(body)

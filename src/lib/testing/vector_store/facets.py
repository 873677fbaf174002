"""The contract of a vector store: the values of a metadata field."""

from __future__ import annotations

from typing import Any

import pytest

from lib.errors import InvalidFilter, StoreClosed, UnsupportedFilter
from lib.testing.vector_store.kit import StoreTests, Using, case
from lib.vector import F, Facet, Record

METAS: tuple[dict[str, Any], ...] = (
    {"x": "a", "n": 3},
    {"x": "b", "n": -1.5},
    {"x": "a", "n": 3.0},
    {"x": ["a", "c", "a", None, ["d"], 1], "n": "3"},
    {"x": True, "n": None},
    {"x": 1, "y": "b"},
    {"x": {"a": 1, "deep": {"b": "z"}}},
    {"o": {"x": "a"}},
    {"o": {"x": ["b", "a"]}},
    {"o": [{"x": "a"}]},
    {"o.x": "c"},
    {},
)
VALUES = Facet(
    values=[("a", 3), (1, 2), (True, 1), ("b", 1), ("c", 1)], distinct=5, minimum=1, maximum=1
)
NOTHING = Facet(values=[], distinct=0, minimum=None, maximum=None)


class FacetContract(StoreTests):
    """Facets, of a store that declares them."""

    def test_each_value_of_a_field_is_counted_once_a_record(self, using: Using) -> None:
        async def body(store: Any) -> None:
            await filled(store)

            assert comparable(await store.facet("x")) == comparable(VALUES)
            numbers = await store.facet("n")
            assert comparable(numbers)["values"] == [
                ("int", 3, 2),
                ("int", -1.5, 1),
                ("str", "3", 1),
            ]
            assert (numbers.minimum, numbers.maximum) == (-1.5, 3)
            assert await store.facet("y") == Facet(
                values=[("b", 1)], distinct=1, minimum=None, maximum=None
            )
            assert (await store.facet(("x", "a"))).values == [(1, 1)]
            assert (await store.facet(("x", "deep", "b"))).values == [("z", 1)]
            assert (await store.facet(("o", "x"))).values == [("a", 2), ("b", 1)]
            assert await store.facet(("y",)) == await store.facet("y")
            for field in (
                "none",
                "",
                "x.a",
                'say "x"',
                "it's",
                ("o", "none"),
                ("y", "b"),
                ("o", "0"),
            ):
                with case(field):
                    assert await store.facet(field) == NOTHING

        self._with_facets(using, body)

    def test_a_limit_leaves_the_rarer_values_out_and_they_still_count(self, using: Using) -> None:
        async def body(store: Any) -> None:
            await filled(store)
            assert (await store.facet("x", limit=2)).values == [("a", 3), (1, 2)]
            assert (await store.facet("x", limit=2)).distinct == 5
            for limit in (0, -1, True, "1"):
                with case(limit), pytest.raises(ValueError, match="limit is"):
                    await store.facet("x", limit=limit)
            for field in (None, (), ("x", 1), ["x"]):
                with case(field), pytest.raises(TypeError, match="name of a field"):
                    await store.facet(field)

        self._with_facets(using, body)

    def test_a_facet_is_of_what_passes_in_one_namespace(self, using: Using) -> None:
        async def body(store: Any) -> None:
            await filled(store)
            await store.upsert([Record("a", [1.0, 0.0], "", {"x": "z"})], namespace="other")
            await store.delete(["0"])

            assert (await store.facet("x")).values[0] == (1, 2)
            assert (await store.facet("x", namespace="other")).values == [("z", 1)]
            assert await store.facet("x", namespace="none") == NOTHING
            assert await store.facet("x", filter={"x": {"$in": []}}) == NOTHING
            if using.kind.takes_equality(store):
                assert (await store.facet("x", filter=F("n") == 3)).values == [("a", 1)]
            with pytest.raises(InvalidFilter):
                await store.facet("x", filter={"x": {"$like": "a"}})
            if not using.kind.takes(store, F("x") > "a"):
                with pytest.raises(UnsupportedFilter):
                    await store.facet("x", filter=F("x") > "a")
            await store.close()
            with pytest.raises(StoreClosed):
                await store.facet("x")

        self._with_facets(using, body)

    def test_every_record_of_many_is_counted(self, using: Using) -> None:
        async def body(store: Any) -> None:
            await store.upsert(
                [Record(f"{n:04}", [1.0, n], "", {"n": n % 7, "id": n}) for n in range(2100)]
            )

            assert (await store.facet("n")).values == [(n, 300) for n in range(7)]
            ids = await store.facet("id", limit=1)
            assert (ids.values, ids.distinct, ids.maximum) == ([(0, 1)], 2100, 2099)

        self._with_facets(using, body)

    def _with_facets(self, using: Using, body: Any) -> None:
        """Run the body, if the store declares facets."""

        async def main(store: Any) -> None:
            if using.kind.can(store, "facet"):
                await body(store)

        using(main)


async def filled(store: Any) -> None:
    """Store one record for each metadata."""
    await store.upsert([Record(f"{n}", [1.0, n], "", meta) for n, meta in enumerate(METAS)])


def comparable(facet: Facet) -> dict[str, Any]:
    """Return a facet so that 1 and True differ, and 1 and 1.0 do not."""
    values = [
        ("int" if type(value) is float else type(value).__name__, value, count)
        for value, count in facet.values
    ]
    return {"values": values, "bounds": (facet.distinct, facet.minimum, facet.maximum)}

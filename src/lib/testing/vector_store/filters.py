"""The contract of a vector store: a filter means what the reference says, or is refused."""

from __future__ import annotations

import os
from functools import reduce
from random import Random
from typing import Any

import pytest

from lib.errors import InvalidFilter, UnsupportedFilter
from lib.testing.vector_store.cases import random_filter, random_meta, random_nested_meta
from lib.testing.vector_store.kit import StoreKind, StoreTests, Using, case, ids
from lib.vector import F, Filter, Record, VectorStore
from lib.vector.filter import Field, matches

METAS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "none": {"x": None},
    "true": {"x": True},
    "false": {"x": False},
    "zero": {"x": 0},
    "one": {"x": 1},
    "one and a half": {"x": 1.5},
    "wide": {"x": 2**53 + 1},
    "a": {"x": "a"},
    "A": {"x": "A"},
    "1": {"x": "1"},
    "empty text": {"x": ""},
    "list of a": {"x": ["a"]},
    "mixed list": {"x": [1, "1", True, None, ["a"]]},
    "empty list": {"x": []},
    "object": {"x": {"a": "a"}},
    "other field": {"y": 1, "$x": 1, "x.a": 1},
}
FILTERS: dict[str, tuple[Filter, set[str]]] = {
    "number": (F("x") == 1, {"one"}),
    "bool": (F("x") == True, {"true"}),  # noqa: E712 - builds a filter
    "string": (F("x") == "a", {"a"}),
    "none": (F("x") == None, {"nothing", "none", "other field"}),  # noqa: E711 - builds a filter
    "one of": (F("x").in_([1, "a", None]), {"one", "a", "nothing", "none", "other field"}),
    "above": (F("x") > 1, {"one and a half", "wide"}),
    "above text": (F("x") >= "A", {"A", "a"}),
    "below text": (F("x") < "a", {"empty text", "1", "A"}),
    "between": ((F("x") >= 0) & (F("x") < 1.5), {"zero", "one"}),
    "contains": (F("x").contains("a"), {"list of a"}),
    "contains a number": (F("x").contains(1), {"mixed list"}),
    "exists": (F("x").exists(), METAS.keys() - {"nothing", "none", "other field"}),
    "exists not": (F("x").exists(present=False), {"nothing", "none", "other field"}),
    "not": (~(F("x") == "a"), METAS.keys() - {"a"}),
    "not equal": (F("x") != 1, METAS.keys() - {"one"}),
    "none of": (F("x").not_in(["a", 1]), METAS.keys() - {"a", "one"}),
    "not above": (~(F("x") > 0), METAS.keys() - {"one", "one and a half", "wide"}),
    "of nothing": (F("x").in_([]), set()),
    "not of nothing": (F("x").not_in([]), {*METAS}),
    "dollar field": (F("$x") == 1, {"other field"}),
    "dotted field": (F("x.a") == 1, {"other field"}),
    "or": ((F("x") == "a") | (F("y") == 1), {"a", "other field"}),
    "wide number": (F("x") == 2**53 + 1, {"wide"}),
}
NESTED_METAS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "one": {"x": {"a": 1, "b": ["u"]}},
    "text": {"x": {"a": "1", "b": "u"}},
    "none": {"x": {"a": None}},
    "no step": {"x": None},
    "text step": {"x": "a"},
    "JSON step": {"x": '{"a": 1}'},
    "list step": {"x": [{"a": 1}, "u"]},
    "deep": {"x": {"a": {"b": 2}}},
    "dotted": {"x.a": 1, "x": {"a.b": 2}},
    "quoted": {'"': {"\\": 1}},
    "dollar": {"$x": {"$a": 1}},
}
NESTED_FILTERS: dict[str, tuple[Filter, set[str]]] = {
    "number": (F("x", "a") == 1, {"one"}),
    "not equal": (F("x", "a") != 1, NESTED_METAS.keys() - {"one"}),
    "absent": (F("x", "a") == None, NESTED_METAS.keys() - {"one", "text", "deep"}),  # noqa: E711 - builds a filter
    "one of": (F("x", "a").in_([1, "1"]), {"one", "text"}),
    "above": (F("x", "a") > 0, {"one"}),
    "above text": (F("x", "a") >= "", {"text"}),
    "contains": (F("x", "b").contains("u"), {"one"}),
    "exists": (F("x", "a").exists(), {"one", "text", "deep"}),
    "exists not": (F("x", "b").exists(present=False), NESTED_METAS.keys() - {"one", "text"}),
    "three names": (F("x", "a", "b") == 2, {"deep"}),
    "dots in names": (F("x", "a.b") == 2, {"dotted"}),
    "a dotted name": (F("x.a") == 1, {"dotted"}),
    "no place in a list": (F("x", "0", "a") == 1, set()),
    "quotes": (F('"', "\\") == 1, {"quoted"}),
    "dollars": (F("$x", "$a") == 1, {"dollar"}),
    "beside others": (
        (F("x", "a") == 1) | ~F("x").exists(),
        {"one", "nothing", "no step", "quoted", "dollar"},
    ),
}
INVALID: dict[str, tuple[Any, str, Field | None, str | None]] = {
    "no mapping": ([], "R9", None, None),
    "an unknown operator": ({"x": {"$regex": "a"}}, "R11", "x", "$regex"),
    "an unknown connective": ({"$nor": [{}]}, "R11", None, "$nor"),
    "no operator": ({"x": {}}, "R9", "x", None),
    "a list": ({"x": ["a"]}, "R4", "x", "$eq"),
    "an object": ({"x": {"$ne": {}}}, "R4", "x", "$ne"),
    "a range of bools": ({"x": {"$gt": True}}, "R5", "x", "$gt"),
    "a range of None": ({"x": {"$lte": None}}, "R5", "x", "$lte"),
    "one of no list": ({"x": {"$in": "abc"}}, "R4", "x", "$in"),
    "containing None": ({"x": {"$contains": None}}, "R6", "x", "$contains"),
    "existing a little": ({"x": {"$exists": 1}}, "R7", "x", "$exists"),
    "an empty or": ({"$or": []}, "R9", None, "$or"),
    "an empty and": ({"$and": []}, "R9", None, "$and"),
    "NaN": ({"x": float("nan")}, "R2", "x", "$eq"),
    "an integer that is too large": ({"x": {"$lt": 2**63}}, "R2", "x", "$lt"),
    "NUL": ({"x": {"$in": ["a\0"]}}, "R2", "x", "$in"),
    "a key that is no text": ({1: 1}, "R1", None, None),
    "bytes": ({"x": b"a"}, "R2", "x", "$eq"),
    "no name": ({(): 1}, "R1", None, None),
    "a name that is no text": ({("x", 1): 1}, "R1", None, None),
    "too many names": ({("x",) * 17: 1}, "R11", None, None),
    "NUL in a nested name": ({("x", "\0"): 1}, "R2", ("x", "\0"), None),
    "an operand of a nested field": ({("x", "$in"): [1]}, "R4", ("x", "$in"), "$eq"),
    "depth": (reduce(lambda inner, _: {"$not": inner}, range(17), {"x": 1}), "R11", None, None),
    "many conditions": ({"$or": [{"x": 1}] * 257}, "R11", None, None),
    "many values": ({"x": {"$in": list(range(10_001))}}, "R11", "x", "$in"),
}
SPECS: tuple[Any, ...] = (
    None,
    {},
    {"x": {"$in": [1, "a"]}},
    {"$or": [{"x": 1}, {"y": 1}]},
    {("x", "a"): "a"},
    {("x",): 1},
)
FILTERS_A_BATCH = 250
BATCHES = 40 if os.environ.get("LIB_TEST_LONG") else 2
"""So many random filters for each store: 500, or 10,000 in the long mode."""


class FilterContract(StoreTests):
    """Filters in every call that takes one."""

    def test_a_filter_lets_through_what_its_rules_say(self, using: Using, kind: StoreKind) -> None:
        using(lambda store: let_through(store, kind, METAS, FILTERS))

    def test_a_nested_field_is_a_key_of_an_object_and_of_nothing_else(
        self, using: Using, kind: StoreKind
    ) -> None:
        using(lambda store: let_through(store, kind, NESTED_METAS, NESTED_FILTERS))

    @pytest.mark.parametrize("seed", range(BATCHES))
    def test_random_filters_let_through_what_the_reference_does(
        self, using: Using, kind: StoreKind, seed: int
    ) -> None:
        async def body(store: VectorStore) -> None:
            random = Random(seed)  # noqa: S311 - tests repeat
            metas = {str(number): random_meta(random) for number in range(60)}
            await agrees(
                store, kind, metas, [random_filter(random) for _ in range(FILTERS_A_BATCH)]
            )

        using(body)

    def test_random_filters_on_nested_fields_do_so_too(self, using: Using, kind: StoreKind) -> None:
        async def body(store: VectorStore) -> None:
            random = Random(0)  # noqa: S311 - tests repeat
            metas = {str(number): random_nested_meta(random) for number in range(60)}
            filters = [random_filter(random, nested=True) for _ in range(FILTERS_A_BATCH)]
            await agrees(store, kind, metas, filters)

        using(body)

    def test_what_is_no_filter_is_refused_by_rule_field_and_operator(self, using: Using) -> None:
        async def refuse(store: VectorStore, spec: Any, facts: list[Field | None]) -> None:
            for call in (
                lambda: store.query([1.0, 0.0], filter=spec),
                lambda: store.delete(["a"], filter=spec),
                lambda: store.count(filter=spec),
            ):
                with pytest.raises(InvalidFilter) as refusal:
                    await call()
                error = refusal.value
                assert [error.rule, error.field, error.operator] == facts
            assert await store.count() == 1

        async def body(store: VectorStore) -> None:
            await store.upsert([Record("a", [1.0, 0.0])])
            for name, (spec, *facts) in INVALID.items():
                with case(name):
                    await refuse(store, spec, facts)

        using(body)

    def test_a_mapping_means_the_same_as_the_filter_that_it_is_parsed_to(
        self, using: Using, kind: StoreKind
    ) -> None:
        async def body(store: VectorStore) -> None:
            await store.upsert([Record(name, [1.0, 0.0], "", meta) for name, meta in METAS.items()])

            for spec in SPECS:
                parsed = Filter.parse(spec)
                if parsed is not None and not kind.takes(store, parsed):
                    continue
                assert await store.query([1.0, 0.0], 50, filter=spec) == await store.query(
                    [1.0, 0.0], 50, filter=parsed
                )

        using(body)


async def let_through(
    store: VectorStore,
    kind: StoreKind,
    metas: dict[str, dict[str, Any]],
    filters: dict[str, tuple[Filter, set[str]]],
) -> None:
    """Expect of each filter the records that are named beside it, or that it is refused."""
    for name, (filter, expected) in filters.items():
        with case(name):
            await store.upsert([Record(each, [1.0, 0.0], "", metas[each]) for each in metas])
            if not kind.takes(store, filter):
                await refused(store, filter)
                continue

            assert set(ids(await store.query([1.0, 0.0], 50, filter=filter))) == expected
            assert await store.count(filter=filter) == len(expected)
            await store.delete(filter=filter)
            assert await store.count() == len(metas) - len(expected)


async def agrees(
    store: VectorStore, kind: StoreKind, metas: dict[str, dict[str, Any]], filters: list[Filter]
) -> None:
    """Expect of each filter what the reference lets through, or that it is refused."""
    await store.upsert([Record(name, [1.0, 0.0], "", meta) for name, meta in metas.items()])
    for filter in filters:
        if not kind.takes(store, filter):
            await refused(store, filter)
            continue
        expected = {name for name in metas if matches(filter, metas[name])}
        assert set(ids(await store.query([1.0, 0.0], 60, filter=filter))) == expected, filter


async def refused(store: VectorStore, filter: Filter) -> None:
    """Expect `UnsupportedFilter` of every call that takes a filter."""
    before = await store.count()
    for call in (
        lambda: store.query([1.0, 0.0], filter=filter),
        lambda: store.delete(filter=filter),
        lambda: store.count(filter=filter),
    ):
        with pytest.raises(UnsupportedFilter) as refusal:
            await call()
        assert refusal.value.store == type(store).__name__
        assert refusal.value.operator.startswith("$")
    assert await store.count() == before

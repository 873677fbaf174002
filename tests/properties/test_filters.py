"""Thousands of random filters on random metadata: every implementation says the same."""

import os
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.testing.vector_store import random_filter, random_meta, random_nested_meta
from lib.vector import Filter, InMemoryVectorStore, Record, SQLiteVectorStore
from lib.vector.filter import And, Leaf, Not, Or, fold, matches

RECORDS = 30
FILTERS_PER_SEED = 1_000 if os.environ.get("LIB_TEST_LONG") else 250


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("nested", [False, True])
async def test_memory_sqlite_and_the_reference_agree(seed: int, nested: bool) -> None:
    random, made = Random(seed), random_nested_meta if nested else random_meta
    metas = {str(number): made(random) for number in range(RECORDS)}
    records = [Record(name, [1.0], "", meta) for name, meta in metas.items()]
    memory, file = InMemoryVectorStore(), SQLiteVectorStore(dimension=1)
    for store in (memory, file):
        await store.upsert(records)
    passed = 0
    for _ in range(FILTERS_PER_SEED):
        filter = random_filter(random, nested=nested)
        expected = {name for name in metas if matches(filter, metas[name])}
        for store in (memory, file):
            found = await store.query([1.0], RECORDS, filter=filter)
            assert {match.id for match in found} == expected, filter
        scanned = await file.scan(filter=filter)  # in SQL; a query decides in memory
        assert {record.id for record in scanned} == expected, filter
        passed += len(expected)
    for store in (memory, file):
        await store.close()

    assert RECORDS * FILTERS_PER_SEED // 4 < passed < RECORDS * FILTERS_PER_SEED * 3 // 4


randoms = st.randoms(use_true_random=False)
filters = randoms.map(random_filter) | randoms.map(
    lambda random: random_filter(random, nested=True)
)
metas = randoms.map(random_meta) | randoms.map(random_nested_meta)


@given(filters, metas)
def test_folding_and_complementing_change_no_meaning(filter: Filter, meta: dict[str, Any]) -> None:
    passes = matches(filter, meta)

    folded = fold(filter)
    assert (folded if isinstance(folded, bool) else matches(folded, meta)) == passes
    assert matches(~filter, meta) != passes
    assert matches(filter & filter, meta) == passes
    assert matches(filter | filter, meta) == passes


@given(filters)
def test_a_filter_that_is_written_as_a_mapping_is_read_back(filter: Filter) -> None:
    assert Filter.parse(mapping(filter)) == filter


def mapping(filter: Filter) -> Any:
    """Write a filter as a mapping; what a mapping cannot address stays a filter."""
    match filter:
        case And(parts):
            return {"$and": [mapping(part) for part in parts]}
        case Or(parts):
            return {"$or": [mapping(part) for part in parts]}
        case Not(part):
            return {"$not": mapping(part)}
        case Leaf(field, operator, operand) if isinstance(field, tuple) or field[:1] != "$":
            return {field: {operator: operand}}
        case _:
            return filter

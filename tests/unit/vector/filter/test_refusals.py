"""An error names what a store cannot express: the operator, the field, and a way out."""

import pytest

from lib.errors import UnsupportedFilter
from lib.vector import (
    ChromaVectorStore,
    F,
    Filter,
    InMemoryVectorStore,
    LanceDBVectorStore,
    PineconeVectorStore,
    PostgresVectorStore,
    QdrantVectorStore,
    SQLiteVectorStore,
)
from lib.vector.filter import And, Field, Not
from lib.vector.filter.field import top_level
from lib.vector.filter.refusals import FEATURES, checked, declared_refusals, features

STORES = (
    ChromaVectorStore,
    InMemoryVectorStore,
    LanceDBVectorStore,
    PineconeVectorStore,
    PostgresVectorStore,
    QdrantVectorStore,
    SQLiteVectorStore,
)


@pytest.mark.parametrize(
    ("filter", "operator", "field", "way_out"),
    [
        (F("day") > "2026-01-01", "$gt", "day", "epoch seconds"),
        (F("id").in_([1, 2**53]), "$in", "id", "store a string"),
        ((F("a") == 1) & (F("b") != 2), "$ne", "b", "not documented"),
        (F("a").exists(present=False), "$exists", "a", "not documented"),
        (~(F("a") == 1), "$not", "a", "not documented"),
        (Not(And((F("x") == 1, F("y") == 2))), "$not", "x", "not documented"),
        (Not(Not(F("z") == 1)), "$not", "z", "not documented"),
        ((F("a") == 1) & (F("a", "b") == 2), "$eq", ("a", "b"), "top-level fields"),
    ],
)
def test_a_refusal_names_operator_field_and_way_out(
    filter: Filter, operator: str, field: Field, way_out: str
) -> None:
    with pytest.raises(UnsupportedFilter, match=way_out) as refusal:
        checked(filter, store=PineconeVectorStore)

    assert (refusal.value.operator, refusal.value.field) == (operator, field)
    assert checked(filter, store=SQLiteVectorStore) is filter


def test_a_key_with_a_quote_is_refused_by_the_one_store_that_cannot_address_it() -> None:
    for store in STORES:
        if "quoted key" in declared_refusals(store):
            with pytest.raises(UnsupportedFilter, match="backslash"):
                checked(F('"') == 1, store=store)
        else:
            checked(F('"') == 1, store=store)
        checked(F('"').exists(), store=store)


def test_every_feature_is_refused_somewhere_and_none_by_the_reference() -> None:
    assert {word for store in STORES for word in declared_refusals(store)} == set(FEATURES)
    assert declared_refusals(InMemoryVectorStore(2)) == frozenset()


def test_a_store_declares_operators_that_it_does_not_have() -> None:
    class Narrow:
        refusals = ("$in", "$or", "$not")

    for filter, operator in (
        (F("x").in_([1]), "$in"),
        ((F("x") == 1) | (F("y") == 1), "$or"),
        (~(F("x") == 1), "$not"),
    ):
        with pytest.raises(UnsupportedFilter, match="by Narrow") as refusal:
            checked(filter, store=Narrow())
        assert (refusal.value.operator, refusal.value.store) == (operator, "Narrow")
    checked((F("x") == 1) & (F("y") > "a"), store=Narrow())


def test_a_translator_takes_no_nested_field_for_a_top_level_one() -> None:
    assert top_level("a") == "a"
    with pytest.raises(TypeError, match="declare a refusal"):
        top_level(("a", "b"))


def test_a_store_that_declares_nothing_takes_every_filter() -> None:
    checked(~(F("x") > "a"), store=object())


@pytest.mark.parametrize("words", [{"strings"}, "scan", ["$regex"]])
def test_an_unknown_refusal_is_an_error_that_names_the_known_ones(words: object) -> None:
    class Misspelled:
        refusals = words

    with pytest.raises(
        ValueError, match=r"refusals of Misspelled hold .* known are .*string order"
    ):
        checked(F("x") == 1, store=Misspelled())


def test_the_error_names_what_a_filter_may_be() -> None:
    with pytest.raises(TypeError, match="not a filter"):
        features(Filter())
    with pytest.raises(TypeError, match="not a filter"):
        features(Not(Filter()))

"""Tests how filters are written, and the words of refusals."""

from functools import reduce
from typing import Any

import pytest

from lib.errors import InvalidFilter
from lib.testing.vector_store import features
from lib.vector.filter import EVERYTHING, And, F, Filter, Leaf, Not, Or, fold, matches
from lib.vector.filter.columns import Columns
from lib.vector.stores.sqlite.filter import condition

SAME: dict[str, tuple[Filter, dict[Any, Any]]] = {
    "equality": (F("x") == 1, {"x": 1}),
    "equality, spelled out": (F("x") == "a", {"x": {"$eq": "a"}}),
    "absence": (F("x") == None, {"x": None}),  # noqa: E711 - builds a filter
    "difference": (F("x") != 1.5, {"x": {"$ne": 1.5}}),
    "order": (F("x") > 1, {"x": {"$gt": 1}}),
    "order or equality": (F("x") >= "a", {"x": {"$gte": "a"}}),
    "reverse order": (F("x") < 1, {"x": {"$lt": 1}}),
    "reverse order or equality": (F("x") <= 1, {"x": {"$lte": 1}}),
    "membership": (F("x").in_([1, None, "a"]), {"x": {"$in": [1, None, "a"]}}),
    "no membership": (F("x").not_in(()), {"x": {"$nin": []}}),
    "existence": (F("x").exists(), {"x": {"$exists": True}}),
    "no existence": (F("x").exists(present=False), {"x": {"$exists": False}}),
    "containing": (F("x").contains("a"), {"x": {"$contains": "a"}}),
    "and": ((F("x") == 1) & (F("y") == 2), {"$and": [{"x": 1}, {"y": 2}]}),
    "or": ((F("x") == 1) | (F("y") == 2), {"$or": [{"x": 1}, {"y": 2}]}),
    "not": (~(F("x") == 1), {"$not": {"x": 1}}),
    "two fields": ((F("x") == 1) & (F("y") == 2), {"x": 1, "y": 2}),
    "two operators": ((F("x") >= 1) & (F("x") < 2), {"x": {"$gte": 1, "$lt": 2}}),
    "a nested field": (F("x", "y") > 1, {("x", "y"): {"$gt": 1}}),
    "a field of one name": (F("x") == 1, {("x",): 1}),
    "nested and not": (
        (F("x", "y.z") == 1) & (F("x") == 2),
        {("x", "y.z"): 1, "x": 2},
    ),
    "a nested field of dollars": (F("$x", "$and") == 1, {("$x", "$and"): 1}),
    "a chain": (
        (F("x") == 1) | (F("x") == 2) | (F("x") == 3),
        {"$or": [{"x": 1}, {"x": 2}, {"x": 3}]},
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_a_mapping_and_the_builder_write_the_same_filter(name: str) -> None:
    built, spec = SAME[name]

    assert Filter.parse(spec) == built
    assert Filter.parse(built) is built


def test_what_says_nothing_is_no_filter() -> None:
    assert Filter.parse(None) is None
    assert Filter.parse({}) is None
    assert Filter.parse(EVERYTHING) is EVERYTHING


def test_an_empty_mapping_inside_says_that_everything_passes() -> None:
    assert fold(Filter.parse({"$or": [{}, {"x": 1}]})) is True
    assert fold(Filter.parse({"$not": {}})) is False


def test_filters_may_stand_inside_a_mapping() -> None:
    assert Filter.parse({"$or": [F("x") == 1, {"y": 2}]}) == (F("x") == 1) | (F("y") == 2)
    assert Filter.parse({"$not": F("x") == 1}) == ~(F("x") == 1)


def test_any_key_is_a_field_for_the_builder_and_any_other_than_an_operator_for_a_mapping() -> None:
    for name in ("", "a.b", "$x", "it's", 'say "x"', "日本"):
        assert (F(name) == 1) == Leaf(name, "$eq", 1)
    assert Filter.parse({"a.b": 1, "": 2}) == (F("a.b") == 1) & (F("") == 2)


def test_filters_are_equal_when_they_are_written_alike() -> None:
    assert (F("x") == 1) == (F("x") == 1)
    assert (F("x") == 1) != (F("x") == True)  # noqa: E712 - builds a filter
    assert (F("x") == 1) != (F("x") == 1.0)
    assert (F("x") == 1) != "x"
    assert (F("x", "y") == 1) != (F("x.y") == 1)


def test_operands_lose_what_only_their_class_has() -> None:
    class Name(str):
        __slots__ = ()

    class Number(int):
        pass

    class Ratio(float):
        pass

    built = F(Name("x")).in_([Name("a"), Number(1), Ratio(0.5)])
    assert built == Leaf("x", "$in", ("a", 1, 0.5))
    assert isinstance(built, Leaf)
    assert isinstance(built.operand, tuple)
    assert [type(value) for value in built.operand] == [str, int, float]


@pytest.mark.parametrize("mistake", [F("x") == 1, F("x"), EVERYTHING])
def test_neither_a_filter_nor_a_field_is_true_or_false(mistake: object) -> None:
    with pytest.raises(TypeError, match="truth value"):
        bool(mistake)
    with pytest.raises(TypeError, match="unhashable"):
        hash(mistake)


def test_a_chained_comparison_fails_loudly() -> None:
    with pytest.raises(TypeError, match="truth value"):
        assert 1 < F("x") < 3  # pyright: ignore[reportGeneralTypeIssues] - the mistake


@pytest.mark.parametrize("other", [{"y": 1}, True, None])
def test_a_filter_is_combined_with_filters_only(other: Any) -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        assert (F("x") == 1) & other
    with pytest.raises(TypeError, match="unsupported operand"):
        assert (F("x") == 1) | other


def test_a_field_shows_its_name() -> None:
    assert repr(F("it's")) == 'F("it\'s")'
    assert repr(F("a", "b")) == "F('a', 'b')"


OPERATORS = "$eq, $ne, $gt, $gte, $lt, $lte, $in, $nin, $exists, $contains"
REFUSED: dict[str, tuple[Any, str]] = {
    "a typing error": (
        {"age": {"$gtt": 1}},
        "unknown filter operator '$gtt' on 'age': did you mean '$gt'? (filter rule R11)",
    ),
    "a connective in the place of an operator": (
        {"x": {"$or": [1]}},
        f"unknown filter operator '$or' on 'x': known are {OPERATORS} (filter rule R11)",
    ),
    "an operator in the place of a field": (
        {"$eq": 1},
        "unknown filter operator '$eq': known are $and, $or, $not (filter rule R11)",
    ),
    "a nested path": (
        {"x": {"y": 1}},
        f"unknown filter operator 'y' on 'x': known are {OPERATORS} (filter rule R11)",
    ),
    "a list": (
        {"x": [1]},
        (
            "filter operator '$eq' on 'x': a list or an object cannot be compared: use '$in' for "
            "one of several values, '$contains' for an element of a list (filter rule R4)"
        ),
    ),
    "NaN": (
        {"x": {"$gt": float("nan")}},
        "filter operator '$gt' on 'x': NaN and infinity are not JSON (filter rule R2)",
    ),
    "many values": (
        {"x": {"$in": range(10_001)}},
        "filter operator '$in' on 'x': takes at most 10000 values (filter rule R11)",
    ),
    "a field that cannot be a key": (
        {"a\0": 1},
        r"field name 'a\x00': a NUL character cannot be stored (filter rule R2)",
    ),
    "a connective without parts": (
        {"$or": ()},
        "filter operator '$or' takes a list of one or more filters (filter rule R9)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_what_where_and_by_which_rule(name: str) -> None:
    spec, message = REFUSED[name]

    with pytest.raises(InvalidFilter) as refusal:
        Filter.parse(spec)
    assert str(refusal.value) == message


def test_the_builder_refuses_when_the_filter_is_written() -> None:
    with pytest.raises(InvalidFilter) as refusal:
        assert F("x") > None  # type: ignore[operator] - the mistake
    assert (refusal.value.rule, refusal.value.field, refusal.value.operator) == ("R5", "x", "$gt")
    with pytest.raises(InvalidFilter):
        F(1)  # type: ignore[arg-type] - the mistake
    with pytest.raises(InvalidFilter):
        F("x").in_(f"{number}" for number in range(10_001))


def nested(depth: int) -> dict[str, Any]:
    return reduce(lambda inner, _: {"$not": inner}, range(depth), {"x": 1})


def test_sixteen_levels_are_taken_and_seventeen_refused() -> None:
    deepest = Filter.parse(nested(16))

    assert deepest is not None
    for deeper in (
        lambda: Filter.parse(nested(17)),
        lambda: ~deepest,
        lambda: deepest & deepest,
        lambda: Filter.parse({"$or": [deepest]}),
        lambda: Filter.parse({"$or": [nested(16), {"x": 1}]}),
    ):
        with pytest.raises(InvalidFilter, match="at most 16"):
            deeper()


def test_256_conditions_are_taken_and_257_refused() -> None:
    one = F("x") == 1
    widest = Filter.parse({"$or": [{"x": 1}] * 128 + [one] * 127 + [{}]})

    assert widest is not None
    for wider in (
        lambda: widest | one,
        lambda: Filter.parse({"$and": [widest, one]}),
        lambda: Filter.parse({f"x{number}": 1 for number in range(257)}),
        lambda: Filter.parse({"x": {"$gt": 1, "$lt": 2}, "$and": [{"x": 1}] * 255}),
    ):
        with pytest.raises(InvalidFilter, match="at most 256"):
            wider()


def test_a_small_mapping_that_describes_a_huge_tree_is_refused_at_once() -> None:
    laughs: dict[str, Any] = {}
    for _ in range(15):
        laughs = {"$and": [laughs] * 100}
    loop: dict[str, Any] = {}
    loop["$not"] = loop

    for spec in (laughs, loop):
        with pytest.raises(InvalidFilter):
            Filter.parse(spec)


def test_a_chain_of_one_connective_stays_flat() -> None:
    chained = reduce(lambda all_, one: all_ & one, [F("x") == number for number in range(100)])

    assert isinstance(chained, And)
    assert len(chained.parts) == 100


def test_folding_leaves_no_constant_and_nothing_to_simplify() -> None:
    nothing, everything, leaf = F("x").in_([]), F("x").not_in([]), F("x") == 1

    assert fold(None) is True
    assert fold(EVERYTHING) is True
    assert fold(nothing) is False
    assert fold(everything) is True
    assert fold(~nothing) is True
    assert fold(leaf & nothing) is False
    assert fold(leaf | everything) is True
    assert fold(nothing | nothing) is False
    assert fold(leaf & everything) == leaf
    assert fold(leaf | nothing) == leaf
    assert fold(~(~leaf)) == leaf
    assert fold(~(leaf & (leaf | nothing))) == Not(And((leaf, leaf)))
    assert fold(Or((Not(leaf), leaf))) == Or((Not(leaf), leaf))


def test_a_filter_that_is_none_of_the_four_means_nothing() -> None:
    bare = Filter()

    for read in (
        lambda: matches(bare, {}),
        lambda: Columns(lambda _start, _end: []).mask(bare, 0),
        lambda: condition(bare),
        lambda: features(bare),
    ):
        with pytest.raises(TypeError, match="not a filter: Filter"):
            read()
    assert Columns(lambda _start, _end: []).pending(bare, 1) == 0

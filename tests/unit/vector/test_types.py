"""Tests the types of records: a list of floats comes back, any vector goes in."""

import inspect
from array import array
from typing import get_type_hints

from lib.vector import InMemoryVectorStore, Record


def test_the_vector_of_a_record_is_a_list_of_floats() -> None:
    assert get_type_hints(Record)["vector"] == list[float]
    assert list(inspect.signature(Record).parameters) == ["id", "vector", "text", "meta"]


async def test_a_record_is_made_with_any_vector_and_comes_back_with_a_list() -> None:
    store = InMemoryVectorStore(dimension=2)
    await store.upsert([Record("a", (1.0, 2.0)), Record("b", array("f", [3.0, 4.0]))])
    back = await store.scan()

    assert [record.vector[:1] for record in back] == [[1.0], [3.0]]
    assert all(type(record.vector) is list for record in back)

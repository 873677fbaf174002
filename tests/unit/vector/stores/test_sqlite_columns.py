"""Columns of metadata beside the file: read once, extended by writes, bounded in bytes."""

from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from lib.vector import F, InMemoryVectorStore, Record
from lib.vector.filter.columns import Column
from lib.vector.stores.sqlite.columns import FieldColumns

from .sqlite_at_once_kit import CountingStore


def column(*values: object) -> Column:
    made = Column()
    made.extend(values)
    return made


def test_columns_used_longest_ago_are_let_go_but_not_those_just_read() -> None:
    columns = FieldColumns(column("a", "b").nbytes * 2)
    for field in "xyx":
        columns.put({field: column("a", "b")}, 0, {field})
    assert columns.mask(F("x") == "a", 2, 0) is not None
    columns.put({"z": column("a", "b")}, 0, {"z"})
    assert columns.mask(F("y") == "a", 2, 0) is None
    assert columns.mask((F("x") == "a") & (F("z") == "a"), 2, 0) is not None
    little = FieldColumns(0)
    little.put({"x": column("a"), "y": column("b")}, 0, {"x", "y"})
    assert little.mask((F("x") == "a") & (F("y") == "b"), 1, 0) is not None
    little.extend([{"x": "c"}])
    assert little.mask((F("x") == "a") & (F("y") == "b"), 1, 0) is None


def test_a_column_shows_nothing_to_those_that_began_before_it_was_read() -> None:
    columns = FieldColumns(1 << 20)
    columns.put({"x": column(None, "new")}, 3, {"x"})
    assert columns.mask(F("x") == "old", 1, 2) is None
    assert columns.mask(F("x") == "old", 2, 3) is not None
    moved = columns.moved(np.array([1]))
    assert moved.mask(F("x") == "new", 1, 2) is None
    assert str(moved.mask(F("x") == "new", 1, 3)) == "[ True]"


async def test_whatever_is_written_filters_say_what_they_say_in_memory(tmp_path: Path) -> None:
    chance, fields = Random(5), ['a"b', "a.b", "", "\\", "ü", "$x", "n"]
    store, same = CountingStore(tmp_path / "v.db", dimension=2), InMemoryVectorStore()

    def meta() -> dict[str, Any]:
        values = [1, 1.0, True, "1", [1, "a"], {"b": 1}, None, 2**60, "\n", 'q"']
        return {field: chance.choice(values) for field in chance.sample(fields, 4)}

    for step in range(80):
        names = [str(chance.randrange(300)) for _ in range(20)]
        batch = [Record(name, [1.0, chance.random()], "", meta()) for name in names]
        field, value = chance.choice(fields), chance.choice([1, True, "1", 2**60, "\n"])
        filter = (F(field) == value) | F(chance.choice(fields)).contains("a") | (F("n", "b") == 1)
        for each in (store, same):
            await each.upsert(batch)
            if step % 10 == 9:
                await each.delete(filter=filter)
                await each.delete(names[:5], filter=~filter)
        found = await store.query([1.0, 0.5], 30, filter=filter)
        assert found == await same.query([1.0, 0.5], 30, filter=filter)
        assert await store.count(filter=filter) == await same.count(filter=filter)
    assert store.visits < 80 * 4
    await store.close()

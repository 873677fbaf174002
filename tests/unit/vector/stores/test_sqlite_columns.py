"""Columns of metadata beside the file: read once, extended by writes, bounded in bytes."""

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from lib.vector import F, Filter, InMemoryVectorStore, Record, SQLiteVectorStore
from lib.vector.filter import fold
from lib.vector.filter.columns import Column
from lib.vector.stores.sqlite.columns import FieldColumns
from lib.vector.stores.sqlite.database import Database

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


async def sql_decides(store: SQLiteVectorStore, filter: Filter) -> bool:
    """Return True if the metadata that a filter sees is read from the file each time."""
    statements = list[str]()

    async def count(database: Database) -> int:
        connection = database._connection  # pyright: ignore[reportPrivateUsage] - what it is sent
        connection.set_trace_callback(statements.append)
        try:
            return await database.count("", filter)
        finally:
            connection.set_trace_callback(None)

    await store._run(count)  # pyright: ignore[reportPrivateUsage] - what it is sent
    return any("json_each(meta)" in statement for statement in statements)


@pytest.mark.parametrize(("cache_bytes", "always"), [(1 << 20, False), (1_000, True)])
async def test_a_namespace_whose_filters_cost_as_much_as_reading_it_is_read(
    tmp_path: Path, cache_bytes: int, always: bool
) -> None:
    path = tmp_path / "v.db"
    first = SQLiteVectorStore(path, dimension=2)
    await first.upsert([Record(str(row), [1.0, row], "", {"x": row}) for row in range(500)])
    await first.close()
    store = SQLiteVectorStore(path, dimension=2, cache_bytes=cache_bytes)
    filter = fold(F("x") < 7)
    assert isinstance(filter, Filter)
    assert [await sql_decides(store, filter) for _ in range(7)] == [*[True] * 4, *[always] * 3]
    assert await store.count(filter=F("x") < 7) == 7
    assert await store.delete(filter=F("x") < 3) == 3
    assert await store.count(filter=F("x") < 7) == 4
    await store.close()


async def test_pages_of_a_filter_are_the_same_from_memory_and_from_the_file(tmp_path: Path) -> None:
    path, chance = tmp_path / "v.db", Random(9)
    names = [chr(code) * chance.randrange(1, 4) for code in range(300, 0x1_0500, 101)]
    names = sorted({name for name in names if name.isprintable()})
    records = [
        Record(name, [1.0, row], name, {"x": row, "y": row % 3}) for row, name in enumerate(names)
    ]
    cached, file = (SQLiteVectorStore(path, dimension=2) for _ in range(2))
    await cached.upsert(records)
    await cached.query([1.0, 0.0], 1)
    await cached.update_meta({"z": 1}, filter=F("y") == 2)
    await cached.delete(filter=F("x") == 17)
    for filter in (F("x") < 9, F("y") == 1, F("x") >= 0, F("x") < 0, F("z") == 1):
        after: str | None = None
        while True:
            expected = await file.scan(after=after, limit=7, filter=filter)
            assert await cached.scan(after=after, limit=7, filter=filter) == expected
            if len(expected) < 7:
                break
            after = expected[-1].id
    for store in (cached, file):
        await store.close()

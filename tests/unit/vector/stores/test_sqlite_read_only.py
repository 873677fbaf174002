"""A reader that may not write beside the file: it sees what others write, and leaves no trace."""

import sqlite3
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lib._util import sqlite
from lib.errors import StoreError, StoreReadOnly
from lib.testing.aio import run
from lib.vector import EVERYTHING, Record, SQLiteVectorStore
from lib.vector.records import Layout
from lib.vector.stores.sqlite import schema
from lib.vector.stores.sqlite.database import Database

from .sqlite_kit import RECORDS, cannot_open, made

AsUser = Callable[[], AbstractContextManager[None]]
LATER = [Record(str(row), [2.0, float(row)], f"later{row} pear") for row in range(100, 400)]


def test_a_store_on_a_read_only_disk_can_be_searched_and_not_written(
    open_place: Path, unprivileged: AsUser
) -> None:
    path = made(open_place / "vectors.db")
    path.chmod(0o444)
    open_place.chmod(0o555)

    async def main() -> None:
        store = SQLiteVectorStore(path, dimension=2)
        assert await store.get([record.id for record in RECORDS]) == RECORDS
        assert len(await store.query_hybrid([1.0, 0.0], "word7", filter={"x": None})) == 5
        with pytest.raises(StoreReadOnly):
            await store.upsert(RECORDS)
        with pytest.raises(StoreReadOnly):
            await store.delete(filter=EVERYTHING)
        assert await store.count() == 300
        await store.close()

    with unprivileged():
        run(main())
        cannot_open(SQLiteVectorStore(open_place / "new.db", dimension=2), StoreReadOnly)
        cannot_open(SQLiteVectorStore(open_place / "no" / "new.db", dimension=2), StoreReadOnly)
        cannot_open(SQLiteVectorStore(path, dimension=2, table="other"), StoreReadOnly)
    open_place.chmod(0o777)
    assert [file.name for file in open_place.iterdir()] == ["vectors.db"]


@contextmanager
def written_by_others(path: Path) -> Generator[None]:
    """Make the file writable for the block, and read-only after it."""
    path.parent.chmod(0o777)
    path.chmod(0o644)
    yield
    path.chmod(0o444)
    path.parent.chmod(0o555)


async def sees(store: SQLiteVectorStore, records: list[Record]) -> bool:
    """Return True if every way of reading returns these records."""
    names, texts = ([getattr(one, name) for one in records] for name in ("id", "text"))
    near = await store.query([1.0, 0.0], len(records) + 1)
    worded = await store.query_hybrid([0.0, 1.0], texts[-1], 400)
    found = [
        sorted(match.text for match in near) == sorted(texts),
        texts[-1] in [match.text for match in worded],
        sorted(await store.scan(), key=lambda record: names.index(record.id)) == records,
        await store.get(names) == records,
        await store.count() == len(records),
        await store.namespaces() == [""],
    ]
    return all(found)


@pytest.mark.parametrize("stays", [False, True], ids=["closes", "stays open"])
def test_a_reader_that_cannot_write_sees_what_others_have_written(
    open_place: Path, unprivileged: AsUser, *, stays: bool
) -> None:
    path = made(open_place / "vectors.db")
    path.chmod(0o444)
    open_place.chmod(0o555)

    async def main() -> None:
        reader = SQLiteVectorStore(path, dimension=2)
        with unprivileged():
            assert await sees(reader, RECORDS)
        with written_by_others(path):
            writer = SQLiteVectorStore(path, dimension=2)
            await writer.upsert(LATER)
            if not stays:
                await writer.close()
        with unprivileged():
            assert await sees(reader, RECORDS[:100] + LATER)
        with written_by_others(path):
            again = SQLiteVectorStore(path, dimension=2)
            await again.delete([record.id for record in RECORDS])
            await again.close()
        with unprivileged():
            assert await sees(reader, LATER[200:])
            with pytest.raises(StoreReadOnly):
                await reader.upsert(RECORDS)
        for store in (reader, writer):
            await store.close()

    run(main())


@pytest.mark.parametrize("failing", [False, True])
@pytest.mark.parametrize("writes", [1, 100])
def test_rows_read_during_a_write_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int, *, failing: bool
) -> None:
    path = made(tmp_path / "vectors.db")
    counted, left = Database.count, [*range(writes)]

    def unwritable(path: str, *, busy_s: float = sqlite.BUSY_S) -> sqlite3.Connection:
        error = sqlite3.OperationalError("attempt to write a readonly database")
        error.sqlite_errorcode = sqlite3.SQLITE_READONLY
        raise error

    async def count_while_others_write(self: Database, *arguments: Any) -> int:
        found = await counted(self, *arguments)
        if left:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("DELETE FROM lib_vectors WHERE id = ?", (str(left.pop()),))
            if failing:
                raise KeyError
        return found

    monkeypatch.setattr(sqlite, "connect", unwritable)
    monkeypatch.setattr(sqlite, "connect_to_read", sqlite.connect_to_look)
    monkeypatch.setattr(Database, "count", count_while_others_write)

    async def main() -> None:
        store = SQLiteVectorStore(path, dimension=2)
        if writes > 1:
            with pytest.raises(StoreError, match="faster than it is read"):
                await store.count()
            left.clear()
        assert await store.count() == 299 if writes == 1 else 295
        await store.close()

    run(main())


def test_an_error_of_a_reader_that_cannot_write_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path / "vectors.db")
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE lib_vectors SET meta = '{' WHERE id = '7'")

    def connect(path: str, *, busy_s: float = sqlite.BUSY_S) -> sqlite3.Connection:
        return sqlite.connect_to_look(path)

    monkeypatch.setattr(sqlite, "connect", connect)

    async def main() -> None:
        store = SQLiteVectorStore(path, dimension=2)
        with pytest.raises(StoreError):
            await store.get(["7"])
        await store.close()

    run(main())


async def test_sqlite_tells_the_layout_of_a_file_that_is_being_written(tmp_path: Path) -> None:
    writer = SQLiteVectorStore(tmp_path / "v.db", dimension=3)
    await writer.upsert([Record("a", [1.0, 2.0, 3.0])])
    reader = SQLiteVectorStore(tmp_path / "v.db", dimension=3)
    assert await reader.existing() == Layout(dimension=3, metric="cosine")
    for store in (reader, writer):
        await store.close()


def test_a_layout_is_looked_up_again_after_a_concurrent_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def make() -> None:
        store = SQLiteVectorStore(tmp_path / "v.db", dimension=3)
        await store.setup()
        await store.close()

    made, looks = schema._made, list[Any]()  # pyright: ignore[reportPrivateUsage] - the moment cannot be met

    def written_to(connection: sqlite3.Connection, table: schema.Table) -> Any:
        found = made(connection, table)
        if not looks:
            (tmp_path / "v.db-wal").touch()
        looks.append(found)
        return found

    run(make())
    monkeypatch.setattr(schema, "_made", written_to)

    assert run(SQLiteVectorStore(tmp_path / "v.db", dimension=3).existing()) == Layout(
        dimension=3, metric="cosine"
    )
    assert len(looks) == 2


async def test_a_sqlite_path_that_cannot_be_looked_at_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / ("n" * 254)).touch()
    for place in (tmp_path / ("n" * 300), tmp_path / ("n" * 254)):
        with pytest.raises(StoreReadOnly):
            await SQLiteVectorStore(place, dimension=2).existing()
    (tmp_path / "closed").mkdir()
    (tmp_path / "file").touch()
    for place in (tmp_path / "closed", tmp_path / "file" / "v.db"):
        assert (await SQLiteVectorStore(place, dimension=2).existing()) is None


async def test_a_sqlite_directory_without_search_permission_differs_from_an_empty_one(
    open_place: Path, unprivileged: AsUser
) -> None:
    (open_place / "closed").mkdir(mode=0o600)
    with unprivileged(), pytest.raises(StoreReadOnly, match="Permission denied"):
        await SQLiteVectorStore(open_place / "closed" / "v.db", dimension=2).existing()

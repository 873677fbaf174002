"""Full text in SQLite: kept by triggers, safe from any text, and not always there."""

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from lib._util import sqlite
from lib.errors import HybridUnavailable
from lib.vector import InMemoryVectorStore, Match, Record, SQLiteVectorStore
from lib.vector.stores.sqlite.cache import CachedNamespace
from lib.vector.stores.sqlite.lexical import size

OPERATORS = (
    '"', "'", "*", "(", ")", "+", "-", "^", ":", "{", "}", " AND ", " OR ", " NOT ", "NEAR(", ",",
    "text", "rowid", "rank", "apple", "pear", "\0", "\\", "%", "_", ";", "--", "\n", "é", "日本",
    "\U0001f34e", "\ud800", "\u0301", " ",
)  # fmt: skip


def without_full_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let SQLite refuse virtual tables, as one that was built without FTS5 does."""
    connect = sqlite.connect

    def authorize(action: int, *_: str | None) -> int:
        denied = action == sqlite3.SQLITE_CREATE_VTABLE
        return sqlite3.SQLITE_DENY if denied else sqlite3.SQLITE_OK

    def refusing(path: str, *, busy_s: float = sqlite.BUSY_S) -> sqlite3.Connection:
        connection = connect(path, busy_s=busy_s)
        connection.set_authorizer(authorize)
        return connection

    monkeypatch.setattr(sqlite, "connect", refusing)


async def found(store: SQLiteVectorStore, text: str) -> list[Match]:
    return await store.query_hybrid([1.0, 0.0], text, 10)


async def test_thousands_of_hostile_texts_break_nothing() -> None:
    random = Random(1)
    store = SQLiteVectorStore(dimension=2)
    await store.upsert([Record(str(row), [1.0, 0.0], "apple pear") for row in range(3)])
    for _ in range(4_000):
        text = "".join(random.choices(OPERATORS, k=random.randint(1, 8)))
        assert len(await found(store, text)) == 3
    await store.close()


async def test_the_index_says_what_the_table_does_after_any_writes(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"

    random = Random(2)
    store = SQLiteVectorStore(path, dimension=2)
    for _ in range(60):
        names = [str(random.randint(0, 30)) for _ in range(random.randint(1, 6))]
        texts = [" ".join(random.choices(["apple", "pear", "", "plum"], k=4)) for _ in names]
        await store.upsert(
            [Record(name, [1, 0], text) for name, text in zip(names, texts, strict=True)],
            namespace=random.choice(["", "b"]),
        )
        await store.delete(random.choices(names), namespace=random.choice(["", "b"]))
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")
        check = "INSERT INTO lib_vectors_fts(lib_vectors_fts, rank) VALUES ('integrity-check', 1)"
        connection.execute(check)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_where_both_cut_words_alike_sqlite_ranks_as_memory_does() -> None:
    random = Random(3)
    words = ["apple", "pear", "plum", "fig", "lemon", "melon", "peach", "kiwi"]
    records = [
        Record(str(row), [1.0, row / 100], " ".join(random.choices(words, k=random.randint(0, 9))))
        for row in range(200)
    ]
    memory, file = InMemoryVectorStore(), SQLiteVectorStore(dimension=2)
    for store in (memory, file):
        await store.upsert(records)
        await store.upsert([Record("0", [1, 0], "apple")] * 3, namespace="other")
    for _ in range(100):
        text = " ".join(random.choices(words, k=random.randint(0, 6)))
        filter = {"x": None} if random.random() < 0.5 else None
        wanted = await memory.query_hybrid([1.0, 0.3], text, 50, filter=filter)
        assert await file.query_hybrid([1.0, 0.3], text, 50, filter=filter) == wanted
    for store in (memory, file):
        await store.close()


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("text", ["apple", "apple " * 70])
async def test_texts_of_other_namespaces_are_not_looked_up_here(
    monkeypatch: pytest.MonkeyPatch, text: str, *, first: bool
) -> None:
    looked_up, rows = list[int](), CachedNamespace.rows

    def noting(self: CachedNamespace, rids: NDArray[np.int64]) -> object:
        looked_up.append(len(rids))
        return rows(self, rids)

    monkeypatch.setattr(CachedNamespace, "rows", noting)
    mine = [Record(str(row), [1.0, row / 10], f"{text} word{row}") for row in range(10)]
    theirs = [Record(str(row), [1.0, 0.0], "apple pear") for row in range(5_000)]

    alone, shared = SQLiteVectorStore(dimension=2), SQLiteVectorStore(dimension=2)
    await alone.upsert(mine)
    if first:
        await shared.upsert(mine)
    await shared.upsert(theirs, namespace="other")
    await shared.upsert(mine)
    for words in ("apple", "apple word7 pear", "pear"):
        assert await found(shared, words) == await found(alone, words)
    assert max(looked_up) < 1_000
    for store in (alone, shared):
        await store.close()


async def test_without_full_text_all_else_works(monkeypatch: pytest.MonkeyPatch) -> None:
    without_full_text(monkeypatch)

    store = SQLiteVectorStore(dimension=2)
    await store.upsert([Record("a", [1.0, 0.0], "apple")])
    await store.query([1.0, 0.0])
    await store.upsert([Record("b", [1.0, 0.1], "apple")])
    assert [match.id for match in await store.query([1.0, 0.0])] == ["a", "b"]
    with pytest.raises(HybridUnavailable) as caught:
        await found(store, "apple")
    with pytest.raises(HybridUnavailable, match="FTS5"):
        await store.query_keywords("apple")
    assert caught.value.store == "SQLiteVectorStore"
    assert "FTS5" in caught.value.reason
    await store.close()


async def test_full_text_is_made_for_what_was_written_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "vectors.db"

    async def write() -> None:
        store = SQLiteVectorStore(path, dimension=2)
        await store.upsert([Record("a", [1.0, 0.0], ""), Record("b", [1.0, 0.1], "apple")])
        await store.close()

    with monkeypatch.context() as patch:
        without_full_text(patch)
        await write()
    store = SQLiteVectorStore(path, dimension=2)
    assert [match.id for match in await found(store, "apples")] == ["b", "a"]
    await store.close()


async def test_a_file_without_full_text_that_cannot_be_written_is_searched_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "vectors.db"

    async def write() -> None:
        store = SQLiteVectorStore(path, dimension=2)
        await store.upsert([Record("a", [1.0, 0.0], "apple")])
        await store.close()

    def unwritable(path: str, *, busy_s: float = sqlite.BUSY_S) -> sqlite3.Connection:
        error = sqlite3.OperationalError("attempt to write a readonly database")
        error.sqlite_errorcode = sqlite3.SQLITE_READONLY
        raise error

    with monkeypatch.context() as patch:
        without_full_text(patch)
        await write()
    monkeypatch.setattr(sqlite, "connect", unwritable)
    store = SQLiteVectorStore(path, dimension=2)
    assert [match.id for match in await store.query([1.0, 0.0])] == ["a"]
    with pytest.raises(HybridUnavailable) as caught:
        await found(store, "apple")
    assert "cannot be written" in caught.value.reason
    await store.close()


@pytest.mark.parametrize(
    ("stored", "expected"), [(None, 0), (b"\x00", 0), (b"\x7f", 127), (b"\x81\x00", 128)]
)
def test_the_number_of_terms_is_read_from_seven_bits_a_byte(
    stored: bytes | None, expected: int
) -> None:
    assert size(stored) == expected

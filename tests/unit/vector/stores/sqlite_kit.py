"""Shared by tests of SQLite vector stores: a file of records, and how a store is refused."""

from pathlib import Path

import pytest

from lib.testing.aio import run
from lib.vector import Record, SQLiteVectorStore

RECORDS = [Record(str(row), [1.0, float(row)], f"word{row} apple") for row in range(300)]


def made(path: Path) -> Path:
    """Make a store that holds the records."""

    async def main() -> None:
        store = SQLiteVectorStore(path, dimension=2)
        await store.upsert(RECORDS)
        await store.close()

    run(main())
    return path


def cannot_open(store: SQLiteVectorStore, expected: type[Exception]) -> Exception:
    async def main() -> Exception:
        with pytest.raises(expected) as caught:
            await store.setup()
        with pytest.raises(expected):  # and a second try is no different
            await store.upsert(RECORDS)
        await store.close()
        return caught.value

    return run(main())

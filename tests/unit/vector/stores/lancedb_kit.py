"""Shared by tests of `LanceDBVectorStore`: a folder's store, the driver's table, and records."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb

from lib.vector import LanceDBVectorStore, Record

Driver: Any = lancedb


def store_at(place: Path | str, **kwargs: Any) -> LanceDBVectorStore:
    kwargs = {"dimension": 2, **kwargs}
    return LanceDBVectorStore(place, **kwargs)


async def driver_table(place: Path) -> Any:
    connection = await Driver.connect_async(str(place), read_consistency_interval=timedelta(0))
    return await connection.open_table("lib_vectors")


def points(*names: str, **meta: Any) -> list[Record]:
    return [Record(name, [1.0, 0.0], "", dict(meta)) for name in names]

"""Shared by tests of `lib vector`: a small shop, the command, and a look into a store."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from lib.cli import main
from lib.testing.aio import run
from lib.vector import Metric, Record, SQLiteVectorStore


def shop(folder: Path) -> Path:
    """Return the path of a store with three records in two namespaces."""
    place = folder / "shop.db"
    records = [
        Record("tea", [1.0, 0.0], "Green tea from Uji", {"price": 12}),
        Record("mug", [0.8, 0.6], "A mug for tea", {"price": 20, "tags": ["new"]}),
    ]
    fill(place, {"": records, "old": [Record("pot", [0.0, 1.0], "A pot", {})]})
    return place


def fill(
    path: Path, records: dict[str, list[Record]], dimension: int = 2, metric: Metric = "cosine"
) -> None:
    async def filling() -> None:
        store = SQLiteVectorStore(path, dimension=dimension, metric=metric)
        await store.setup()
        for name, batch in records.items():
            await store.upsert(batch, namespace=name)
        await store.close()

    run(filling())


def contents(path: Path, dimension: int = 2) -> dict[str, list[Record]]:
    async def reading() -> dict[str, list[Record]]:
        store = SQLiteVectorStore(path, dimension=dimension)
        found = {
            name: await store.scan(namespace=name, limit=10_000)
            for name in await store.namespaces()
        }
        await store.close()
        return found

    return run(reading())


def call(*arguments: object, **options: Any) -> Result:
    words = ["vector", *map(str, arguments)]
    return CliRunner().invoke(main, words, catch_exceptions=False, **options)


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]

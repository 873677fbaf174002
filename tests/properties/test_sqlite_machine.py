"""SQLite against the in-memory store: one file, two stores that write in turns, and other hands.

Random operations by seeds: most runs that hypothesis makes are too short, or on empty namespaces,
to come to a write through one store and then a query through the other. One of the stores searches
its file, and the other has little memory; vectors are so long that seven rows have codes.
"""

import asyncio
import json
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.unit.vector.stores.sqlite_codes_kit import ColdStore, parts

from lib.testing.vector_store import random_filter, random_meta, random_nested_meta
from lib.vector import F, Filter, InMemoryVectorStore, Record, SQLiteVectorStore
from lib.vector.filter import Field

SEEDS, STEPS = (200, 200) if os.environ.get("LIB_TEST_LONG") else (4, 60)
DIMENSION = 3_072
NAMES = [f"{number:02}" for number in range(40)]
NAMESPACES = ("", "t")
FIELDS: list[Field] = ["a", "a.b", ("a", "b"), ("b", "a.b"), ("a", "", "0")]
TABLE = "lib_vectors"


def word_of(serial: int) -> str:
    return "w" + sha256(str(serial).encode()).hexdigest()[:12]


def floats_of(serial: int) -> list[float]:
    return [serial + 1_000.5, serial + 9_000.25]


def traces(serial: int) -> list[bytes]:
    """Return what only the record of this number leaves in a file."""
    return [np.array(floats_of(serial), "<f4").tobytes(), word_of(serial).encode()]


class OneFile:
    """Does everything in memory and through one of two stores of a file, and compares."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.random = path, Random(seed)
        self.memory = InMemoryVectorStore(DIMENSION, "dot")
        self.stores = [self.opened(door) for door in (0, 1)]
        self.serial = 0
        self.gone = set[int]()  # of records that were replaced or deleted
        self.serials = dict[tuple[str, str], int]()  # of those that are there

    async def run(self, steps: int) -> None:
        doings: dict[Callable[[], Awaitable[None]], int] = {
            self.upsert: 4,
            self.insert: 2,
            self.update_meta: 3,
            self.delete: 2,
            self.write_by_hand: 2,
            self.query: 8,
            self.query_while_others_write: 3,
            self.read: 4,
            self.open_again: 1,
            self.purge: 1,
        }
        for store in self.stores:
            await store.setup()
        for doing in self.random.choices(list(doings), list(doings.values()), k=steps):
            self.namespace = self.random.choice(NAMESPACES)
            self.door = self.random.randrange(2)
            await doing()
            parts(self.path, "dot")
        for store in self.stores:
            await store.close()

    def opened(self, door: int) -> SQLiteVectorStore:
        """Return a store; the second one has little memory."""
        made = SQLiteVectorStore if door else ColdStore
        room = 4 * DIMENSION * 30 if door else 2**30
        return made(self.path, dimension=DIMENSION, metric="dot", cache_bytes=room)

    async def both(self, call: Callable[[Any], Awaitable[Any]]) -> None:
        """Compare what the store in use and the one in memory answer."""
        expected = await call(self.memory)
        assert await call(self.stores[self.door]) == expected

    def vector(self, serial: int | None = None) -> list[float]:
        """Return a vector: of a query, or of a record, whose bytes no other one has."""
        own = [0.0, 0.0] if serial is None else floats_of(serial)
        head = [float(self.random.randint(-3, 3)) for _ in range(3)]
        return [*head, *own, *[0.0] * (DIMENSION - 5)]

    def meta(self) -> dict[str, Any]:
        made = random_nested_meta if self.random.random() < 0.5 else random_meta
        return {**made(self.random), "n": self.random.randrange(5)}

    def filter(self) -> Filter | None:
        kind = self.random.random()
        if kind < 0.3:
            return None
        if kind < 0.6:
            return F("n") >= self.random.randrange(6)
        return random_filter(self.random, depth=1, nested=kind < 0.85)

    def names(self) -> list[str]:
        return self.random.sample(NAMES, self.random.randint(0, 6))

    def batch(self) -> list[Record]:
        """Return records whose ids follow each other, as their rows often do."""
        first, records = self.random.randrange(len(NAMES)), list[Record]()
        for name in NAMES[first : first + self.random.randint(1, 30)]:
            self.serial += 1
            text = f"{self.random.choice(['apple', 'pear', 'plum'])} {word_of(self.serial)}"
            records.append(Record(name, self.vector(self.serial), text, self.meta()))
        return records

    async def note(self) -> None:
        """Note whose traces may be left in the file."""
        there = {
            (namespace, record.id): int(record.vector[3] - 1_000)
            for namespace in NAMESPACES
            for record in await self.memory.scan(namespace=namespace)
        }
        self.gone |= set(self.serials.values()) - set(there.values())
        self.serials = there

    async def upsert(self) -> None:
        batch = self.batch()
        await self.both(lambda store: store.upsert(batch, namespace=self.namespace))
        await self.note()

    async def insert(self) -> None:
        batch = self.batch()
        await self.both(lambda store: store.insert(batch, namespace=self.namespace))
        await self.note()

    async def update_meta(self) -> None:
        changes, filter, names = self.meta(), self.filter(), self.names()
        ids = names if filter is None or self.random.random() < 0.3 else None
        await self.both(
            lambda store: store.update_meta(
                changes, ids=ids, filter=filter, namespace=self.namespace
            )
        )

    async def delete(self) -> None:
        filter, names = self.filter(), self.names()
        ids = names if filter is None or self.random.random() < 0.5 else None
        await self.both(lambda store: store.delete(ids, filter=filter, namespace=self.namespace))
        await self.note()

    async def write_by_hand(self) -> None:
        """Delete records and change others by statements, as other programs do."""
        gone, changed, meta = self.names(), self.names(), self.meta()
        where = "WHERE namespace = ? AND id IN (SELECT value FROM json_each(?))"
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute(
                f"UPDATE {TABLE} SET meta = ? {where}",
                (json.dumps(meta), self.namespace, json.dumps(changed)),
            )
            connection.execute(f"DELETE FROM {TABLE} {where}", (self.namespace, json.dumps(gone)))
        for record in await self.memory.get(changed, namespace=self.namespace):
            await self.memory.upsert([replace(record, meta=meta)], namespace=self.namespace)
        await self.memory.delete(gone, namespace=self.namespace)
        await self.note()

    async def query(self) -> None:
        filter, k, vector = self.filter(), self.random.randint(1, 50), self.vector()
        options: dict[str, Any] = {"filter": filter, "namespace": self.namespace}
        await self.both(lambda store: store.query(vector, k, **options))
        await self.both(lambda store: store.query_keywords("pear", k, **options))

    async def query_while_others_write(self) -> None:
        """See what was there before a write or what is there after it, and no mixture."""
        batch, filter, vector = self.batch(), self.filter(), self.vector()
        reader, writer = self.stores[self.door], self.random.choice(self.stores)

        def found(store: Any) -> Awaitable[Any]:
            return store.query(vector, 50, filter=filter, namespace=self.namespace)

        before = await found(self.memory)
        early = [asyncio.ensure_future(found(reader)) for _ in range(2)]
        writing = asyncio.create_task(writer.upsert(batch, namespace=self.namespace))
        early += [asyncio.ensure_future(found(reader)) for _ in range(2)]
        await writing
        late = asyncio.ensure_future(found(reader))
        await self.memory.upsert(batch, namespace=self.namespace)
        after = await found(self.memory)
        assert await late == after
        for answer in await asyncio.gather(*early):
            assert answer in (before, after)
        await self.note()

    async def read(self) -> None:
        """Count, list, and look at the values of a field."""
        filter, limit, after = self.filter(), self.random.randint(1, 50), self.random.choice(NAMES)
        field, namespace = self.random.choice(FIELDS), self.namespace
        calls: list[Callable[[Any], Awaitable[Any]]] = [
            lambda store: store.count(filter=filter, namespace=namespace),
            lambda store: store.scan(filter=filter, after=after, limit=limit, namespace=namespace),
            lambda store: store.facet(field, filter=filter, namespace=namespace),
            lambda store: store.get(NAMES[:limit], namespace=namespace),
            lambda store: store.namespaces(),
        ]
        for call in calls:
            await self.both(call)

    async def open_again(self) -> None:
        await self.stores[self.door].close()
        self.stores[self.door] = self.opened(self.door)

    async def purge(self) -> None:
        """Leave no byte of what was deleted or replaced."""
        await self.stores[self.door].purge()
        kept = b"".join(each.read_bytes() for each in self.path.parent.glob("vectors.db*"))
        left = [serial for serial in self.gone if any(trace in kept for trace in traces(serial))]
        assert left == []
        there = [serial for serial in self.serials.values() if traces(serial)[0] in kept]
        assert len(there) >= len(self.serials) // 2  # else two pages share it


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_two_stores_of_a_file_and_the_in_memory_store_agree(
    tmp_path: Path, seed: int
) -> None:
    await OneFile(tmp_path / "vectors.db", seed).run(STEPS)

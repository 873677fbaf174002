"""SQLite against the in-memory store: one file, two stores that write in turns, and other hands.

One of the stores keeps the second copy of vectors and the other does not; vectors are so long that
a part of that copy has eight rows.
"""

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from lib.testing.vector_store import random_filter, random_meta, random_nested_meta
from lib.vector import Filter, InMemoryVectorStore, Record, SQLiteVectorStore
from lib.vector.filter import Field

DIMENSION = 3_072
NAMES = [f"{number:02}" for number in range(40)]
FIELDS: list[Field] = ["a", "a.b", ("a", "b"), ("b", "a.b"), ("a", "", "0")]
TABLE = "lib_vectors"

randoms: st.SearchStrategy[Random] = st.randoms(use_true_random=False)
doors: st.SearchStrategy[int] = st.integers(0, 1)  # which of the two stores
namespaces: st.SearchStrategy[str] = st.sampled_from(["", "t"])
names: st.SearchStrategy[list[str]] = st.lists(st.sampled_from(NAMES), max_size=6)
runs: st.SearchStrategy[list[str]] = st.tuples(st.integers(0, 39), st.integers(1, 24)).map(
    lambda run: NAMES[run[0] : sum(run)]
)
"""Ids in a row, whose rows often follow each other, too."""
directions: st.SearchStrategy[list[int]] = st.lists(st.integers(-3, 3), min_size=3, max_size=3)


def vector_of(direction: list[int], serial: int) -> list[float]:
    """Return a vector whose bytes no other has; a query with zeros there does not see them."""
    own = [serial + 1_000.5, serial + 9_000.25] if serial else [0.0, 0.0]
    return [*map(float, direction), *own, *[0.0] * (DIMENSION - 5)]


def traces(serial: int) -> list[bytes]:
    """Return what is left in a file of a record with this number, if something is."""
    floats = np.array([serial + 1_000.5, serial + 9_000.25], "<f4").tobytes()
    return [floats, word_of(serial).encode()]


def word_of(serial: int) -> str:
    return "w" + sha256(str(serial).encode()).hexdigest()[:12]


class OneFile(RuleBasedStateMachine):
    """Does everything in memory and through one of two stores of a file, and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = TemporaryDirectory()
        self.path = Path(self.folder.name) / "vectors.db"
        self.memory = InMemoryVectorStore(DIMENSION, "dot")
        self.stores = [self.opened(0), self.opened(1)]
        self.serial = 0
        self.serials: dict[tuple[str, str], int] = {}  # of each record, by namespace and id
        self.overwritten: set[int] = set()

    def opened(self, door: int) -> SQLiteVectorStore:
        """Open a store; the second one keeps few vectors in memory."""
        store = SQLiteVectorStore(
            self.path,
            dimension=DIMENSION,
            metric="dot",
            packed=door == 0,
            cache_bytes=2**30 if door == 0 else 4 * DIMENSION * 30,
        )
        self.runner.run(store.setup())
        return store

    def teardown(self) -> None:
        for store in self.stores:
            self.runner.run(store.close())
        self.runner.close()
        self.folder.cleanup()

    def both(self, door: int, call: Callable[[Any], Awaitable[Any]]) -> Any:
        """Return what both stores answer."""

        async def answered(store: Any) -> Any:
            return await call(store)

        expected = self.runner.run(answered(self.memory))
        assert self.runner.run(answered(self.stores[door])) == expected
        return expected

    def by_hand(self, sql: str, *parameters: object) -> None:
        """Write with a statement of SQL, as other programs do."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute(sql, parameters)

    def made(self, random: Random, wanted: list[str], direction: list[int]) -> list[Record]:
        """Return new records of these ids."""
        batch = list[Record]()
        for name in wanted:
            self.serial += 1
            turned = [(each + len(batch)) % 7 - 3 for each in direction]
            text = (
                f"{random.choice(['apple', 'pear', 'apple pear', 'plum'])} {word_of(self.serial)}"
            )
            meta = random_nested_meta(random) if random.random() < 0.5 else random_meta(random)
            batch.append(Record(name, vector_of(turned, self.serial), text, meta))
        return batch

    def stored(self, namespace: str, batch: list[Record]) -> None:
        """Note which record is where."""
        for record in batch:
            self.removed(namespace, [record.id])
            self.serials[namespace, record.id] = int(record.vector[3] - 1_000)

    def removed(self, namespace: str, gone: list[str]) -> None:
        """Note that records are no longer there."""
        for name in gone:
            serial = self.serials.pop((namespace, name), None)
            if serial is not None:
                self.overwritten.add(serial)

    def there(self, namespace: str) -> list[str]:
        """Return the ids of a namespace."""
        found = self.runner.run(self.memory.scan(limit=1_000, namespace=namespace))
        return [record.id for record in found]

    @rule(door=doors, random=randoms, wanted=runs, direction=directions, namespace=namespaces)
    def upsert(
        self, door: int, random: Random, wanted: list[str], direction: list[int], namespace: str
    ) -> None:
        batch = self.made(random, wanted, direction)
        self.both(door, lambda store: store.upsert(batch, namespace=namespace))
        self.stored(namespace, batch)

    @rule(door=doors, random=randoms, wanted=runs, direction=directions, namespace=namespaces)
    def insert(
        self, door: int, random: Random, wanted: list[str], direction: list[int], namespace: str
    ) -> None:
        batch, before = self.made(random, wanted, direction), self.there(namespace)
        self.both(door, lambda store: store.insert(batch, namespace=namespace))
        self.stored(namespace, [record for record in batch if record.id not in before])

    @rule(door=doors, random=randoms, some=names, namespace=namespaces)
    def update_meta(self, door: int, random: Random, some: list[str], namespace: str) -> None:
        changes, filter = random_nested_meta(random), any_filter(random)
        chosen = some if filter is None or random.random() < 0.3 else None
        self.both(
            door,
            lambda store: store.update_meta(
                changes, ids=chosen, filter=filter, namespace=namespace
            ),
        )

    @rule(door=doors, random=randoms, some=names, namespace=namespaces)
    def delete(self, door: int, random: Random, some: list[str], namespace: str) -> None:
        filter, before = any_filter(random), self.there(namespace)
        chosen = some if filter is None or random.random() < 0.3 else None
        self.both(door, lambda store: store.delete(chosen, filter=filter, namespace=namespace))
        left = self.there(namespace)
        self.removed(namespace, [name for name in before if name not in left])

    @rule(some=names, namespace=namespaces)
    def delete_by_hand(self, some: list[str], namespace: str) -> None:
        listed = json.dumps(some)
        self.by_hand(
            f"DELETE FROM {TABLE} WHERE namespace = ? AND id IN (SELECT value FROM json_each(?))",
            namespace,
            listed,
        )
        self.runner.run(self.memory.delete(some, namespace=namespace))
        self.removed(namespace, some)

    @rule(random=randoms, some=names, namespace=namespaces)
    def change_by_hand(self, random: Random, some: list[str], namespace: str) -> None:
        meta = random_nested_meta(random)
        for record in self.runner.run(self.memory.get(some, namespace=namespace)):
            self.by_hand(
                f"UPDATE {TABLE} SET meta = ? WHERE namespace = ? AND id = ?",
                json.dumps(meta),
                namespace,
                record.id,
            )
            changed = Record(record.id, record.vector, record.text, meta)
            self.runner.run(self.memory.upsert([changed], namespace=namespace))

    @rule(door=doors, direction=directions, random=randoms, namespace=namespaces)
    def query(self, door: int, direction: list[int], random: Random, namespace: str) -> None:
        filter, k, vector = any_filter(random), random.randint(1, 50), vector_of(direction, 0)
        if random.random() < 0.7:
            self.both(
                door, lambda store: store.query(vector, k, filter=filter, namespace=namespace)
            )
        else:
            self.both(
                door,
                lambda store: store.query_keywords("pear", k, filter=filter, namespace=namespace),
            )

    @rule(random=randoms, wanted=runs, direction=directions, namespace=namespaces)
    def query_while_others_write(
        self, random: Random, wanted: list[str], direction: list[int], namespace: str
    ) -> None:
        """See either what was there before a write or what is there after it, and no mixture."""
        filter, vector = any_filter(random), vector_of(direction, 0)
        batch = self.made(random, wanted, direction)
        reader, writer = random.choice(self.stores), random.choice(self.stores)

        async def answer(store: Any) -> Any:
            return await store.query(vector, 50, filter=filter, namespace=namespace)

        async def at_once() -> tuple[list[Any], list[Any]]:
            before = await answer(self.memory)
            found = [asyncio.ensure_future(answer(reader)) for _ in range(2)]
            writing = asyncio.ensure_future(writer.upsert(batch, namespace=namespace))
            found += [asyncio.ensure_future(answer(reader)) for _ in range(2)]
            await writing
            late = answer(reader)
            await self.memory.upsert(batch, namespace=namespace)
            after = await answer(self.memory)
            assert await late == after
            return await asyncio.gather(*found), [before, after]

        found, allowed = self.runner.run(at_once())
        assert all(each in allowed for each in found)
        self.stored(namespace, batch)

    @rule(door=doors, random=randoms, namespace=namespaces)
    def read(self, door: int, random: Random, namespace: str) -> None:
        """Count, list, and look at the values of a field."""
        filter, limit, after = any_filter(random), random.randint(1, 50), random.choice(NAMES)
        field = random.choice(FIELDS)
        calls: list[Callable[[Any], Awaitable[Any]]] = [
            lambda store: store.count(filter=filter, namespace=namespace),
            lambda store: store.scan(filter=filter, after=after, limit=limit, namespace=namespace),
            lambda store: store.facet(field, filter=filter, namespace=namespace),
            lambda store: store.get(NAMES[:limit], namespace=namespace),
        ]
        for call in calls:
            self.both(door, call)

    @rule(door=doors)
    def open_again(self, door: int) -> None:
        self.runner.run(self.stores[door].close())
        self.stores[door] = self.opened(door)

    @rule(door=doors)
    def purge(self, door: int) -> None:
        """Leave no byte of what was deleted or replaced."""
        self.runner.run(self.stores[door].purge())
        kept = b"".join(each.read_bytes() for each in self.path.parent.glob("vectors.db*"))
        for serial in self.overwritten:
            for trace in traces(serial):
                assert trace not in kept

    @invariant()
    def hold_a_copy_of_what_the_rows_hold(self) -> None:
        with closing(sqlite3.connect(self.path)) as connection:
            for first, last, *part in connection.execute(
                f"SELECT first, last, namespace, ids, vectors FROM {TABLE}_packed"
            ).fetchall():
                rows = connection.execute(
                    f"SELECT namespace, id, vector FROM {TABLE} WHERE rid BETWEEN ? AND ?"
                    " ORDER BY rid",
                    (first, last),
                ).fetchall()
                vectors = b"".join(vector for _, _, vector in rows)
                assert [{part[0]}, json.loads(part[1]), part[2]] == [
                    {space for space, _, _ in rows},
                    [name for _, name, _ in rows],
                    vectors,
                ]


def any_filter(random: Random) -> Filter | None:
    if random.random() < 0.3:
        return None
    return random_filter(random, depth=1, nested=random.random() < 0.6)


def test_two_stores_of_a_file_and_the_in_memory_store_agree() -> None:
    run_state_machine_as_test(
        OneFile,
        settings=settings(
            max_examples=max(5, settings().max_examples // 4),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )

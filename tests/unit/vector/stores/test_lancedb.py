"""What a LanceDB store promises beside the contract: writers, crashes, tables, exactness."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pytest

from lib.errors import (
    DimensionMismatch,
    MetricMismatch,
    MissingDriver,
    SchemaTooNew,
    StoreClosed,
    StoreCorrupt,
    StoreUnavailable,
)
from lib.testing.aio import run
from lib.vector import EVERYTHING, F, InMemoryVectorStore, LanceDBVectorStore, Record
from lib.vector.stores.lancedb import layout, table
from lib.vector.stores.lancedb.asked import Asked

Driver: Any = lancedb


def store_at(place: Path | str, **kwargs: Any) -> LanceDBVectorStore:
    kwargs = {"dimension": 2, **kwargs}
    return LanceDBVectorStore(place, **kwargs)


async def driver_table(place: Path) -> Any:
    connection = await Driver.connect_async(str(place), read_consistency_interval=timedelta(0))
    return await connection.open_table("lib_vectors")


def points(*names: str, **meta: Any) -> list[Record]:
    return [Record(name, [1.0, 0.0], "", dict(meta)) for name in names]


def test_the_first_batch_is_only_where_the_filter_begins(tmp_path: Path) -> None:
    async def main() -> None:
        store = store_at(tmp_path, initial_batch=1)
        near = [Record(f"near {row}", [1.0, row / 1e4], "", {"x": 1}) for row in range(400)]
        far = [Record(f"far {row}", [-1.0, 1.0], "", {"x": 2}) for row in range(9)]
        await store.upsert(near + far)

        for k in (1, 5, 9, 20):
            found = await store.query([1.0, 0.0], k, filter={"x": 2})
            assert [match.id for match in found] == [f"far {row}" for row in range(9)][:k]
        assert await store.query([1.0, 0.0], filter={"x": 3}) == []
        assert len(await store.query([1.0, 0.0], 2**70, filter={"x": 1})) == 400
        await store.close()

    run(main())


def test_scores_are_those_of_the_memory_store_to_the_last_bit(tmp_path: Path) -> None:
    async def main() -> None:
        noise = np.random.default_rng(3)
        vectors = noise.standard_normal((300, 24)).astype(np.float32) * np.float32(1e-5)
        records = [Record(str(row), vector) for row, vector in enumerate(vectors)]
        for metric in ("cosine", "dot", "euclidean"):
            memory = InMemoryVectorStore(24, metric)
            store = store_at(tmp_path / metric, dimension=24, metric=metric)
            await memory.upsert(records)
            await store.upsert(records)
            for query in noise.standard_normal((5, 24)):
                assert await store.query(query, 7) == await memory.query(query, 7)
            await store.close()

    run(main())


def test_an_index_that_somebody_has_built_is_passed_by(tmp_path: Path) -> None:
    async def main() -> None:
        noise = np.random.default_rng(4).standard_normal((1200, 8)).astype(np.float32)
        records = [Record(str(row), vector) for row, vector in enumerate(noise)]
        memory, store = InMemoryVectorStore(8), store_at(tmp_path, dimension=8)
        await memory.upsert(records)
        await store.upsert(records)
        index = Driver.index.IvfPq(num_partitions=8, num_sub_vectors=2, distance_type="cosine")
        await (await driver_table(tmp_path)).create_index("vector", config=index)

        for query in noise[:5]:
            assert await store.query(query, 20) == await memory.query(query, 20)
        await store.close()

    run(main())


def test_every_write_of_a_new_id_by_writers_that_meet_leaves_one_record(tmp_path: Path) -> None:
    async def main() -> None:
        stores = [store_at(tmp_path) for _ in range(8)]
        await asyncio.gather(*(store.setup() for store in stores))
        for turn in range(3):
            await asyncio.gather(
                *(
                    store.upsert([Record(f"{turn} {row}", [1.0, 0.0], str(row)) for row in "abc"])
                    for store in stores
                )
            )
            await asyncio.gather(*(store.delete([f"{turn} a"]) for store in stores))

        stored = await (await driver_table(tmp_path)).query().select(["id"]).to_arrow()
        names = [f"{turn} {row}" for turn in range(3) for row in "bc"]
        assert sorted(stored.column("id").to_pylist()) == names
        for store in stores:
            await store.close()

    run(main())


def test_small_files_are_merged_and_old_versions_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_KEPT", timedelta(seconds=0.01))
    monkeypatch.setattr(table, "_WRITES_A_COMPACTION", 10)

    async def main() -> None:
        for row in range(4):  # a store that writes once is reckoned with, too
            store = store_at(tmp_path)
            await store.upsert(points(f"a{row}"))
            await store.close()
        store = store_at(tmp_path)
        for row in range(40):
            await store.upsert(points(f"b{row}"))
        driver = await driver_table(tmp_path)
        stats = await driver.stats()

        assert stats["fragment_stats"]["num_fragments"] < 11
        assert len(await driver.list_versions()) < 20
        assert await store.count() == 44
        await store.close()

    run(main())


def test_a_large_table_is_compacted_after_more_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_WRITES_A_COMPACTION", 2)
    monkeypatch.setattr(table, "_ROWS_A_WRITE", 10)

    async def main() -> None:
        store = store_at(tmp_path)
        await store.upsert(points(*map(str, range(100))))
        driver = await driver_table(tmp_path)
        seen: list[int] = []
        for row in range(12):
            await store.upsert(points(f"new {row}"))
            seen.append((await driver.stats())["fragment_stats"]["num_fragments"])

        assert max(seen) == seen[8] == 10
        assert seen[-1] < 10
        await store.close()

    run(main())


def test_a_writer_that_comes_between_puts_a_compaction_off_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_WRITES_A_COMPACTION", 2)

    async def main() -> None:
        stores = [store_at(tmp_path) for _ in range(4)]
        await asyncio.gather(*(store.setup() for store in stores))
        await asyncio.gather(*(write_some(store, place) for place, store in enumerate(stores)))
        assert await stores[0].count() == 40
        for store in stores:
            await store.close()

    async def write_some(store: LanceDBVectorStore, place: int) -> None:
        for row in range(10):
            await store.upsert(points(f"{place} {row}"))

    run(main())


WRITER = """
import asyncio, sys
from lib.vector import LanceDBVectorStore, Record

async def main(place):
    store = LanceDBVectorStore(place, dimension=64)
    vector = [1.0] * 64
    await store.setup()
    print("ready", flush=True)
    for batch in range(1000):
        await store.upsert([Record(str(row), vector, "x" * 500, {"batch": batch})
                            for row in range(2000)])
        print(batch, flush=True)

asyncio.run(main(sys.argv[1]))
"""


def killed_after(place: Path, delay_s: float, environment: dict[str, str]) -> int:
    """Kill a writer so long after it has begun its second batch; return what it has confirmed."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(place)],
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env=environment,
    ) as writer:
        assert writer.stdout is not None
        assert [writer.stdout.readline() for _ in range(2)] == ["ready\n", "0\n"]
        killer = threading.Timer(delay_s, os.kill, (writer.pid, signal.SIGKILL))
        killer.start()
        confirmed = ["0", *writer.stdout.read().split()]
        killer.join()
    return int(confirmed[-1])


def test_a_writer_that_is_killed_leaves_whole_batches(
    tmp_path: Path, unmeasured: dict[str, str]
) -> None:
    for number, delay_s in enumerate((0.0, 0.013, 0.04, 0.09)):
        place = tmp_path / str(number)
        confirmed = killed_after(place, delay_s, unmeasured)

        async def main(place: Path = place, confirmed: int = confirmed) -> None:
            store = store_at(place, dimension=64)
            assert await store.count() == 2000
            names = [str(row) for row in range(2000)]
            batches = {record.meta["batch"] for record in await store.get(names)}
            assert batches in ({confirmed}, {confirmed + 1})
            await store.upsert([Record("after", [1.0] * 64)])
            assert await store.count() == 2001
            await store.close()

        run(main())


MAKER = """
import asyncio, sys
from lib.vector import LanceDBVectorStore, Record

async def main(place, name):
    store = LanceDBVectorStore(place, dimension=2)
    sys.stdin.readline()
    await store.setup()
    for row in range(5):
        await store.upsert([Record(f"{name} {row}", [1, 0]), Record(f"{row}", [1, 0])])
    await store.close()

from lib.vector.stores.lancedb import table
print("ready", flush=True)
asyncio.run(main(*sys.argv[1:]))
"""


def test_processes_that_set_up_at_once_share_one_table(
    tmp_path: Path, unmeasured: dict[str, str]
) -> None:
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", MAKER, str(tmp_path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env=unmeasured,
        )
        for number in range(3)
    ]
    for maker in makers:
        assert maker.stdout is not None
        maker.stdout.readline()
    for maker in makers:
        assert maker.stdin is not None
        maker.stdin.write("go\n")
        maker.stdin.flush()
    for maker in makers:
        maker.communicate()
        assert maker.returncode == 0

    async def main() -> None:
        store = store_at(tmp_path)
        assert await store.count() == 3 * 5 + 5
        await store.close()

    run(main())


def test_a_table_of_another_kind_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        store = store_at(tmp_path)
        await store.setup()
        await store.close()
        with pytest.raises(DimensionMismatch) as wrong:
            await store_at(tmp_path, dimension=3).setup()
        assert (wrong.value.expected, wrong.value.got) == (2, 3)
        with pytest.raises(MetricMismatch) as other:
            await store_at(tmp_path, metric="dot").setup()
        assert (other.value.expected, other.value.got) == ("cosine", "dot")

        connection = await Driver.connect_async(str(tmp_path))
        await connection.create_table("foreign", [{"id": "a", "vector": [1.0, 2.0]}])
        with pytest.raises(StoreCorrupt, match="name another"):
            await store_at(tmp_path, table="foreign").setup()
        asked = Asked(
            uri="", table="", dimension=2, metric="cosine", storage_options=None, initial_batch=1
        )
        newer = layout.schema(asked).with_metadata({b"lib:metric": b"cosine", b"lib:layout": b"2"})
        await connection.create_table("newer", schema=newer)
        with pytest.raises(SchemaTooNew) as late:
            await store_at(tmp_path, table="newer").setup()
        assert (late.value.found, late.value.supported) == (2, 1)

    run(main())


def test_a_place_that_cannot_be_used_is_unavailable(tmp_path: Path) -> None:
    async def main() -> None:
        for _ in range(2):
            with pytest.raises(
                StoreUnavailable, match="LanceDB table 'lib_vectors' failed"
            ) as told:
                await store.setup()
            assert not told.value.retryable
        await store.close()

    (tmp_path / "file").write_text("", encoding="utf-8")
    store = store_at(tmp_path / "file" / "below")
    run(main())


def test_what_another_process_makes_at_the_same_moment_is_opened(tmp_path: Path) -> None:
    class Slow:
        """A connection that sees no table at first."""

        def __init__(self, connection: Any) -> None:
            self.connection, self.looks = connection, 0

        async def open_table(self, name: str) -> Any:
            self.looks += 1
            if self.looks == 1:
                raise ValueError(name)
            return await self.connection.open_table(name)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.connection, name)

    async def main() -> None:
        store = store_at(tmp_path)
        await store.upsert(points("a"))
        connection = Slow(await Driver.connect_async(str(tmp_path)))
        asked = Asked(
            uri=str(tmp_path),
            table="lib_vectors",
            dimension=2,
            metric="dot",
            storage_options=None,
            initial_batch=1,
        )
        opened = await table._ensured(connection, asked)  # pyright: ignore[reportPrivateUsage] - the moment cannot be met
        assert await opened.count_rows() == 1
        await store.close()

    run(main())


def test_a_table_that_is_dropped_is_unavailable(tmp_path: Path) -> None:
    async def main() -> None:
        store = store_at(tmp_path)
        await store.upsert(points("a"))
        await (await Driver.connect_async(str(tmp_path))).drop_table("lib_vectors")
        for call in (
            store.count,
            store.namespaces,
            lambda: store.query([1.0, 0.0]),
            lambda: store.get(["a"]),
            lambda: store.count(filter={"x": 1}),
        ):
            with pytest.raises(StoreUnavailable):
                await call()
        await store.close()

    run(main())


def test_only_conflicts_are_worth_another_try() -> None:
    asked = Asked(
        uri="", table="t", dimension=2, metric="dot", storage_options=None, initial_batch=1
    )
    for told, retryable in {
        "Retryable commit conflict for version 7": True,
        "Too many concurrent writers. Attempted 10 times": True,
        "permission denied": False,
    }.items():
        with pytest.raises(StoreUnavailable) as caught, table.typed_errors(asked):
            raise RuntimeError(told)
        assert caught.value.retryable == retryable
        assert told not in str(caught.value)


@pytest.mark.parametrize("retryable", [True, False])
def test_a_compaction_may_meet_another_writer_but_not_fail(tmp_path: Path, retryable: bool) -> None:
    class Busy:
        """A table that is being written by somebody else."""

        async def count_rows(self) -> int:
            return 1

        async def optimize(self, **_: object) -> None:
            raise RuntimeError("Retryable commit conflict" if retryable else "disk full")

    asked = Asked(
        uri="", table="t", dimension=2, metric="dot", storage_options=None, initial_batch=1
    )

    async def main() -> None:
        busy = table.Table(None, Busy(), asked, 40)
        if retryable:
            await busy._compact()  # pyright: ignore[reportPrivateUsage] - the moment cannot be met
            return
        with pytest.raises(StoreUnavailable):
            await busy._compact()  # pyright: ignore[reportPrivateUsage] - the moment cannot be met

    run(main())


def test_many_ids_are_found_and_deleted_whatever_is_in_them(tmp_path: Path) -> None:
    async def main() -> None:
        store = store_at(tmp_path)
        odd = ["'", "''", "' OR ''='", "\\'", "%", "a' --", '"', "\n", "{}", "$1", "?"]
        names = odd + [str(row) for row in range(5000)]
        await store.upsert([Record(name, [1.0, 0.0], "", {"x": name}) for name in names])
        await store.upsert(points(*odd), namespace="' OR 1=1 --")

        assert [record.id for record in await store.get(names)] == names
        assert await store.count(namespace="' OR 1=1 --") == len(odd)
        await store.delete(names[5:], filter=F("x") != "?")
        assert {record.id for record in await store.get(names)} == {*odd[:5], "?"}
        await store.delete(filter=EVERYTHING, namespace="' OR 1=1 --")
        assert await store.namespaces() == [""]
        await store.close()

    run(main())


def test_what_asks_for_nothing_gets_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        store = store_at(tmp_path)
        await store.upsert([])
        assert await store.query([1.0, 0.0]) == []
        assert await store.query([1.0, 0.0], filter={"x": 1}) == []
        assert await store.query([1.0, 0.0], filter={"x": {"$in": []}}) == []
        assert await store.get([]) == []
        await store.delete([], filter={"x": 1})
        await store.delete(filter={"x": 1})
        assert len(await (await driver_table(tmp_path)).list_versions()) == 1  # nothing was written
        await store.close()

    run(main())


def test_a_cancelled_call_leaves_the_store_usable(tmp_path: Path) -> None:
    async def main() -> None:
        store = store_at(tmp_path)
        for turns in range(6):
            call = asyncio.create_task(store.upsert(points("a", "b", turn=turns)))
            for _ in range(turns):
                await asyncio.wait([call], timeout=0.002)
            call.cancel()
            await asyncio.wait([call])
        await store.upsert(points("a", "b", turn="last"))

        assert [match.meta for match in await store.query([1.0, 0.0])] == [{"turn": "last"}] * 2
        await store.close()

    run(main())


def test_a_store_that_is_closed_while_it_opens_stays_closed(tmp_path: Path) -> None:
    async def main() -> None:
        store = store_at(tmp_path)
        opening = asyncio.create_task(store.setup())
        await asyncio.wait([opening], timeout=0)
        waiting = asyncio.create_task(store.count())
        await asyncio.wait([waiting], timeout=0)
        await store.close()
        await asyncio.wait([opening, waiting])

        assert isinstance(waiting.exception(), StoreClosed)
        await store.close()

    run(main())


@pytest.mark.parametrize(
    "kwargs",
    [
        {"dimension": 0},
        {"metric": "l2"},
        {"table": "a b"},
        {"table": "1a"},
        {"table": "a/b"},
        {"table": "x" * 65},
        {"initial_batch": 0},
        {"initial_batch": True},
        {"place": "db://mine"},
    ],
)
def test_what_cannot_be_opened_is_refused_at_once(tmp_path: Path, kwargs: Any) -> None:
    with pytest.raises(ValueError, match=r"dimension|metric|table|initial_batch|uri"):
        store_at(**{"place": tmp_path, **kwargs})


def test_a_missing_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lancedb", None)
    with pytest.raises(MissingDriver, match=r"pip install 'lib-agents\[lancedb\]'"):
        store_at(tmp_path)


def test_storage_options_are_copied_and_handed_on(tmp_path: Path) -> None:
    async def main() -> None:
        options = {"timeout": "5s"}
        store = store_at(tmp_path, storage_options=options)
        options.clear()
        await store.upsert(points("a"))
        assert (store.metric, store.dimension, store.higher_is_better) == ("cosine", 2, True)
        await store.close()

    run(main())


def test_metadata_is_kept_as_json_text(tmp_path: Path) -> None:
    async def main() -> None:
        meta = {"a": [1, 1.0, -0.0, 2**63 - 1, None], "ü": {"b": "日本"}}
        store = store_at(tmp_path)
        await store.upsert([Record("a", [1.0, 0.0], "", meta)])
        stored = await (await driver_table(tmp_path)).query().select(["meta"]).to_arrow()

        (text,) = stored.column("meta").to_pylist()
        assert repr(json.loads(text)) == repr(meta)
        assert [repr(record.meta) for record in await store.get(["a"])] == [repr(meta)]
        await store.close()

    run(main())

"""Writers of one LanceDB table: they meet, are cancelled or killed, and set it up at once."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lib.errors import StoreUnavailable
from lib.vector import Record
from lib.vector.stores.lancedb import table
from lib.vector.stores.lancedb.config import TableConfig

from .lancedb_kit import driver_table, points, store_at


async def test_every_write_of_a_new_id_by_writers_that_meet_leaves_one_record(
    tmp_path: Path,
) -> None:
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


async def test_a_writer_that_is_killed_leaves_whole_batches(
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

        await main()


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


async def test_processes_that_set_up_at_once_share_one_table(
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

    store = store_at(tmp_path)
    assert await store.count() == 3 * 5 + 5
    await store.close()


def test_only_write_conflicts_are_retryable() -> None:
    config = TableConfig(
        uri="", table="t", dimension=2, metric="dot", storage_options=None, initial_batch=1
    )
    for message, retryable in {
        "Retryable commit conflict for version 7": True,
        "Too many concurrent writers. Attempted 10 times": True,
        "permission denied": False,
    }.items():
        with pytest.raises(StoreUnavailable) as caught, table.typed_errors(config):
            raise RuntimeError(message)
        assert caught.value.retryable == retryable
        assert message not in str(caught.value)


async def test_a_cancelled_call_leaves_the_store_usable(tmp_path: Path) -> None:
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

"""Tests which tables and places a LanceDB store takes, and what it says of the others."""

import sys
from pathlib import Path
from typing import Any

import pytest

from lib.errors import (
    DimensionMismatch,
    MetricMismatch,
    MissingDriver,
    SchemaTooNew,
    StoreCorrupt,
    StoreUnavailable,
)
from lib.vector.stores.lancedb import schema, table
from lib.vector.stores.lancedb.config import TableConfig

from .lancedb_kit import Driver, points, store_at


async def test_a_table_of_another_kind_is_refused(tmp_path: Path) -> None:
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
    config = TableConfig(
        uri="", table="", dimension=2, metric="cosine", storage_options=None, initial_batch=1
    )
    newer = schema.schema(config).with_metadata({b"lib:metric": b"cosine", b"lib:layout": b"2"})
    await connection.create_table("newer", schema=newer)
    with pytest.raises(SchemaTooNew) as late:
        await store_at(tmp_path, table="newer").setup()
    assert (late.value.found, late.value.supported) == (2, 1)


async def test_a_place_that_cannot_be_used_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    store = store_at(tmp_path / "file" / "below")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="LanceDB table 'lib_vectors' failed") as caught:
            await store.setup()
        assert not caught.value.retryable
    await store.close()


async def test_what_another_process_makes_at_the_same_moment_is_opened(tmp_path: Path) -> None:
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

    store = store_at(tmp_path)
    await store.upsert(points("a"))
    connection = Slow(await Driver.connect_async(str(tmp_path)))
    config = TableConfig(
        uri=str(tmp_path),
        table="lib_vectors",
        dimension=2,
        metric="dot",
        storage_options=None,
        initial_batch=1,
    )
    opened = await table._ensured(connection, config)  # pyright: ignore[reportPrivateUsage] - the moment cannot be met
    assert await opened.count_rows() == 1
    await store.close()


async def test_a_table_that_is_dropped_is_unavailable(tmp_path: Path) -> None:
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
    with pytest.raises(MissingDriver, match=r"pip install 'lancedb"):
        store_at(tmp_path)


async def test_storage_options_are_copied_and_handed_on(tmp_path: Path) -> None:
    options = {"timeout": "5s"}
    store = store_at(tmp_path, storage_options=options)
    options.clear()
    await store.upsert(points("a"))
    assert (store.metric, store.dimension, store.higher_is_better) == ("cosine", 2, True)
    await store.close()

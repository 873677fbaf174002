"""Tests where a `ChromaVectorStore` keeps its records, and what cannot be such a place."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import chromadb
import pytest
from chromadb.config import Settings

from lib.errors import MissingDriver, StoreClosed, StoreUnavailable
from lib.vector import ChromaVectorStore, Record

from .chroma_kit import X, in_memory, raw, stored


async def test_memory_is_each_stores_own_and_gone_when_it_is_closed() -> None:
    one, other = ChromaVectorStore(dimension=2), ChromaVectorStore(dimension=2, metric="dot")
    await one.upsert([Record("a", X)])
    await other.upsert([Record("b", X)], namespace="n")
    assert (await one.namespaces(), await other.namespaces()) == ([""], ["n"])

    await one.close()
    assert await asyncio.to_thread(in_memory) == ["n"]
    await other.close()
    assert await asyncio.to_thread(in_memory) == []


async def test_a_given_client_is_used_and_not_closed(tmp_path: Path) -> None:
    client = await asyncio.to_thread(raw, tmp_path)
    store = stored(tmp_path, path=None, client=client)
    await store.upsert([Record("a", X)])
    await store.close()
    await store.close()

    assert client.heartbeat()
    with pytest.raises(StoreClosed):
        await store.count()
    client.close()
    await stored(tmp_path).close()  # never opened


async def test_asking_what_is_in_a_folder_makes_nothing_there(tmp_path: Path) -> None:
    place = tmp_path / "chroma"
    place.mkdir()
    (tmp_path / "file").touch()

    assert await stored(tmp_path).existing() is None
    assert await stored(tmp_path / "missing").existing() is None
    assert await stored(tmp_path, path=str(tmp_path / "file")).existing() is None
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        await stored(tmp_path, path="x" * 5000).existing()
    assert list(place.iterdir()) == []
    assert sorted(one.name for one in tmp_path.iterdir()) == ["chroma", "file"]


async def test_a_folder_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    client = raw(tmp_path)

    with pytest.raises(StoreUnavailable, match="InternalError"):
        await stored(tmp_path, path=str(tmp_path / "file")).setup()
    other: Any = await asyncio.to_thread(
        lambda: chromadb.PersistentClient(str(tmp_path / "other"), Settings(allow_reset=True))
    )
    with pytest.raises(StoreUnavailable, match="pass that client"):
        await stored(tmp_path, path=str(tmp_path / "other")).setup()
    other.close()
    client.close()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"path": "a", "host": "b"}, "one of path, host and client"),
        ({"host": "b", "client": object()}, "one of path, host and client"),
        ({"prefix": ""}, "prefix"),
        ({"prefix": "-a"}, "prefix"),
        ({"prefix": "a" * 257}, "prefix"),
        ({"prefix": "a b"}, "prefix"),
        ({"dimension": 0}, "dimension"),
        ({"metric": "ip"}, "metric"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(
    arguments: dict[str, Any], reason: str
) -> None:
    everything: dict[str, Any] = {"dimension": 2, **arguments}

    with pytest.raises(ValueError, match=reason):
        ChromaVectorStore(**everything)


def test_without_chromadb_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.vector.stores.chroma.store.find_spec", lambda _: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType] - a stand-in

    with pytest.raises(MissingDriver, match="chromadb"):
        ChromaVectorStore(dimension=2)


async def test_a_client_that_is_neither_is_a_mistake(tmp_path: Path) -> None:
    client = SimpleNamespace(list_collections=list, get_max_batch_size=_Sleeper)

    store = ChromaVectorStore(dimension=2, client=client)
    with pytest.raises(RuntimeError):
        await store.setup()


class _Sleeper:
    def __await__(self) -> Any:
        yield

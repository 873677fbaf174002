"""Every object that has to be closed is an async context manager with `aclose`."""

import inspect
from pathlib import Path
from typing import Any

import pytest

import lib.events.stores.memory
import lib.llm
import lib.observe
import lib.tools.builtin
import lib.vector
from lib._util.contexts import AsyncStore
from lib.errors import StoreClosed
from lib.vector import InMemoryVectorStore, Record, SQLiteVectorStore, TenantVectorStore

PACKAGES: tuple[Any, ...] = (lib.events, lib.llm, lib.observe, lib.tools.builtin, lib.vector)
ENDINGS = ("Store", "Sink", "Reranker", "Provider", "Embedder", "Client")


def classes() -> dict[str, type]:
    named = {name: getattr(package, name) for package in PACKAGES for name in package.__all__}
    return {
        name: kind
        for name, kind in named.items()
        if isinstance(kind, type)
        and name.endswith(ENDINGS)
        and not getattr(kind, "_is_protocol", False)
    }


def test_every_store_sink_reranker_and_provider_is_an_async_context_manager() -> None:
    found = classes()
    lacking = [
        f"{name}.{method}"
        for name, kind in found.items()
        for method in ("aclose", "__aenter__", "__aexit__")
        if not inspect.iscoroutinefunction(getattr(kind, method, None))
    ]

    assert len(found) > 20
    assert lacking == []


async def test_a_store_is_set_up_and_closed_by_its_block(tmp_path: Path) -> None:
    stores: list[Any] = [
        InMemoryVectorStore(2),
        SQLiteVectorStore(tmp_path / "vectors.db", dimension=2),
        lib.events.stores.memory.MemoryEventStore(),
    ]
    for store in stores:
        async with store as entered:
            assert entered is store
    async with InMemoryVectorStore(2) as shared:
        async with TenantVectorStore(shared, "acme") as view:
            await view.upsert([Record("a", [1.0, 0.0])])
        with pytest.raises(StoreClosed):
            await view.count()
        assert await shared.count(namespace="acme") == 1
    with pytest.raises(StoreClosed):
        await shared.count()
    await shared.aclose()


async def test_a_store_that_cannot_be_set_up_is_closed() -> None:
    class Broken(AsyncStore):
        closed = False

        async def setup(self) -> None:
            raise OSError("no such place")

        async def close(self) -> None:
            self.closed = True

    store = Broken()
    with pytest.raises(OSError, match="no such place"):
        async with store:
            pass
    assert store.closed

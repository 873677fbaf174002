"""Tests the end of a `ChromaVectorStore`: nothing stays open."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from lib.errors import StoreClosed
from lib.vector import ChromaVectorStore, Record

from .chroma_kit import X, held, in_memory, stored


async def test_stores_of_one_folder_open_and_close_at_the_same_time(tmp_path: Path) -> None:
    for turn in range(6):
        place = tmp_path / str(turn)
        stores = [stored(place, prefix=f"p{n}") for n in range(6)]
        await asyncio.gather(*(store.setup() for store in stores))
        await asyncio.gather(*(store.close() for store in stores[1:]))
        await stores[0].upsert([Record("a", X)])
        await stores[0].close()
        assert held(place) == 0


@pytest.mark.parametrize("wait_s", [0.0, 0.002, 0.05])
@pytest.mark.parametrize("path", [True, False], ids=["folder", "memory"])
async def test_closing_during_the_first_call_lets_it_end_and_leaves_nothing_open(
    tmp_path: Path, wait_s: float, *, path: bool
) -> None:
    store = stored(tmp_path) if path else ChromaVectorStore(dimension=2)
    first = asyncio.create_task(store.upsert([Record("a", X)], namespace="first"))
    await asyncio.wait([first], timeout=wait_s)
    await store.close()

    await first
    with pytest.raises(StoreClosed):
        await store.count()
    assert held(tmp_path) == 0
    assert "first" not in await asyncio.to_thread(in_memory)


async def test_a_cancelled_closing_can_be_repeated_and_gives_the_folder_free(
    tmp_path: Path,
) -> None:
    store: Any = stored(tmp_path)
    await store.setup()
    busy = threading.Event()
    store._thread.submit(busy.wait)
    closing = asyncio.create_task(store.close())
    await asyncio.wait([closing], timeout=0.01)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert held(tmp_path) > 0
    busy.set()
    await store.close()
    assert held(tmp_path) == 0


async def test_a_cancelled_first_call_leaves_the_store_to_others_and_to_be_closed(
    tmp_path: Path,
) -> None:
    store: Any = stored(tmp_path)
    busy = threading.Event()
    store._thread.submit(busy.wait)
    first, other = asyncio.create_task(store.setup()), asyncio.create_task(store.count())
    await asyncio.wait([first, other], timeout=0)
    first.cancel()
    busy.set()
    assert await other == 0
    await asyncio.wait([first])
    await store.close()
    assert held(tmp_path) == 0

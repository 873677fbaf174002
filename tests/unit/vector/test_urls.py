"""A URL or a path opens a vector store."""

from pathlib import Path
from typing import Any

import pytest

from lib.vector import InMemoryVectorStore, Record, SQLiteVectorStore, open_vector_store


async def test_a_path_a_url_and_memory_open_stores(tmp_path: Path) -> None:
    places: list[Any] = [tmp_path / "a.db", f"sqlite:///{tmp_path}/b.db", "memory:"]
    for place in places:
        opened: Any = open_vector_store(place, dimension=2, metric="dot")
        async with opened as store:
            await store.upsert([Record("a", [1.0, 2.0])])
            assert (store.metric, await store.count()) == ("dot", 1)
    assert isinstance(open_vector_store(tmp_path / "a.db", dimension=2), SQLiteVectorStore)
    assert isinstance(open_vector_store(":memory:"), InMemoryVectorStore)


def test_a_url_names_server_and_options() -> None:
    store: Any = open_vector_store("qdrant+http://q.example:6333/docs", dimension=2)

    assert type(store).__name__ == "QdrantVectorStore"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("vectors.db", "vectors.db needs a dimension"),
        ("mysql://me:secret@host/db", "unknown scheme 'mysql'"),
        ("", "name a store"),
        ("postgresql://me:se@cret@host/db@x", "behind the host"),
    ],
)
def test_what_names_no_store_is_refused_without_its_password(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        open_vector_store(url)

    assert "secret" not in str(refusal.value)


def test_a_path_of_bytes_is_refused() -> None:
    wrong: Any = b"vectors.db"
    with pytest.raises(TypeError, match="got bytes"):
        open_vector_store(wrong)


def test_the_error_of_refused_arguments_names_the_store(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.db.*dimension is at least 1"):
        open_vector_store(tmp_path / "a.db", dimension=0)

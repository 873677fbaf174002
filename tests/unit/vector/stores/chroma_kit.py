"""Shared by tests of `ChromaVectorStore`: a folder's store and client, and what is open."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import chromadb
from chromadb.api.shared_system_client import SharedSystemClient
from chromadb.config import Settings

from lib.vector import ChromaVectorStore

X = [1.0, 0.0]
_OF_A_COLLECTION = (
    *("name", "metadata", "configuration_json"),
    *("upsert", "get", "query", "delete", "count"),
)


def raw(place: Path) -> Any:
    """Return a client of Chroma's own."""
    return chromadb.PersistentClient(
        str(place / "chroma"), settings=Settings(anonymized_telemetry=False)
    )


def stored(place: Path, **arguments: Any) -> ChromaVectorStore:
    everything: dict[str, Any] = {"dimension": 2, "path": str(place / "chroma"), **arguments}
    return ChromaVectorStore(**everything)


class Altered:
    """A client whose collections do some things otherwise."""

    def __init__(self, client: Any, otherwise: Callable[[Any], dict[str, Any]]) -> None:
        self._client, self._otherwise = client, otherwise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_or_create_collection(self, *args: Any, **kwargs: Any) -> Any:
        collection = self._client.get_or_create_collection(*args, **kwargs)
        usual = {name: getattr(collection, name) for name in _OF_A_COLLECTION}
        return SimpleNamespace(**{**usual, **self._otherwise(collection)})


def in_memory() -> list[str]:
    """Return the namespaces in Chroma's memory, which all of its clients share."""
    client: Any = chromadb.EphemeralClient(Settings(anonymized_telemetry=False))
    names = [collection.metadata["lib:namespace"] for collection in client.list_collections()]
    client.close()
    return names


def held(place: Path) -> int:
    """Return how often this process has the folder open."""
    shared: Any = SharedSystemClient
    return shared._identifier_to_refcount.get(str(place / "chroma"), 0)

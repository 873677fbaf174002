"""Queries and found documents in the captured content of a span."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from lib.observe.dialects.values import text

_QUERIES: Final = ("query", "text")
_LISTS: Final = ("documents", "hits", "matches", "records", "results")


@dataclass(frozen=True, slots=True)
class Document:
    """A document that was found; a missing field is None."""

    id: Any
    score: Any
    content: Any
    meta: Any


def query_of(value: Any) -> str | None:
    """Return the query of a search, None if it was not captured."""
    if value is None:
        return None
    query = _first(value, _QUERIES)
    return text(value if query is None else query)


def documents_of(value: Any) -> list[Document]:
    """Return the documents of a captured value, best first; none if it holds no list of them."""
    found: Any = _first(value, _LISTS) if isinstance(value, Mapping) else value
    items = cast(list[Any], found) if isinstance(found, list) else []
    return [
        Document(
            _first(item, ("id", "doc_id")),
            _first(item, ("score",)),
            _first(item, ("content", "text")),
            _first(item, ("meta", "metadata")),
        )
        for item in items
        if isinstance(item, Mapping)
    ]


def field_of(value: Any, name: str) -> Any:
    """Return a field of an object, None if it has none, or the value is no object."""
    return _first(value, (name,))


def _first(value: Any, names: tuple[str, ...]) -> Any:
    if not isinstance(value, Mapping):
        return None
    fields = cast(Mapping[str, Any], value)
    return next((fields[name] for name in names if fields.get(name) is not None), None)

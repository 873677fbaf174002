"""Reads Pinecone's answers; what does not have their shape is `StoreUnavailable`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, cast

from lib.errors import StoreUnavailable
from lib.vector.filter import Filter
from lib.vector.stores.pinecone import records
from lib.vector.stores.pinecone.client import Reply
from lib.vector.stores.pinecone.filter import condition
from lib.vector.stores.pinecone.records import encoded

IDS_A_DELETION: Final = 1000
IDS_A_FETCH: Final = 100
CHARS_A_FETCH: Final = 6000
"""The ids of a fetch stand in its address."""

_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def content(body: dict[str, Any]) -> bytes:
    """Return a request's JSON."""
    return _encode(body).encode()


def matches(reply: Reply) -> list[dict[str, Any]]:
    """Return the matches of a query, each with an id and a score."""
    rows = [_object(row) for row in _list(reply, "matches")]
    for row in rows:
        if not isinstance(row.get("id"), str) or not isinstance(row.get("score"), int | float):
            raise _unreadable()
    return rows


def vectors(reply: Reply) -> dict[str, dict[str, Any]]:
    """Return the records of a fetch by their ids, as Pinecone holds them."""
    found = _object(reply.body.get("vectors", {}))
    return {name: _object(vector) for name, vector in found.items()}


def names(reply: Reply, what: str, field: str) -> list[str]:
    """Return one text of each row of a page."""
    found = [_object(row).get(field) for row in _list(reply, what)]
    if not all(isinstance(name, str) for name in found):
        raise _unreadable()
    return cast(list[str], found)


def next_page(reply: Reply) -> str | None:
    """Return what asks for the next page, None after the last."""
    token = _object(reply.body.get("pagination") or {}).get("next")
    if token is not None and not isinstance(token, str):
        raise _unreadable()
    return token or None


def deletions(ids: list[str] | None, filter: Filter | None) -> Iterator[dict[str, Any]]:
    """Yield what deletes the records that are among the ids and pass the filter."""
    if ids is None:
        yield {"deleteAll": True} if filter is None else {"filter": condition(filter)}
        return
    distinct = list(dict.fromkeys(ids))
    for start in range(0, len(distinct), IDS_A_DELETION):
        some = distinct[start : start + IDS_A_DELETION]
        if filter is None:
            yield {"ids": [encoded(name) for name in some]}
        else:  # Pinecone takes ids or a filter, not both; so each record tells its id
            yield {"filter": {"$and": [{records.ID: {"$in": some}}, condition(filter)]}}


def fetches(ids: list[str]) -> Iterator[list[str]]:
    """Yield ids, as many at a time as an address can hold."""
    some: list[str] = []
    size = 0
    for name in ids:
        more = 3 * len(name)  # each character may have to be escaped
        if some and (len(some) == IDS_A_FETCH or size + more > CHARS_A_FETCH):
            yield some
            some, size = [], 0
        some.append(name)
        size += more
    if some:
        yield some


def _list(reply: Reply, name: str) -> list[Any]:
    found = reply.body.get(name, [])
    if not isinstance(found, list):
        raise _unreadable()
    return cast(list[Any], found)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _unreadable()
    return cast(dict[str, Any], value)


def _unreadable() -> StoreUnavailable:
    return StoreUnavailable("Pinecone's answer does not have the shape that its documentation says")

"""The calls of `PineconeVectorStore` to its index."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lib._util.clock import Clock
from lib.errors import ConsistencyTimeout, StoreUnavailable
from lib.vector.composed import PAGE, merged
from lib.vector.embed.remote import each
from lib.vector.filter import Filter
from lib.vector.offload import offload
from lib.vector.ordering import ListedBackend, nearest
from lib.vector.records import Match, Metric, Record
from lib.vector.stores.pinecone import messages, records
from lib.vector.stores.pinecone.client import Api, NoNamespace, Reply
from lib.vector.stores.pinecone.filter import condition
from lib.vector.stores.pinecone.freshness import Freshness
from lib.vector.stores.pinecone.records import (
    decoded,
    decoded_namespace,
    encoded,
    encoded_namespace,
)
from lib.vector.validate import Batch

MAX_RESULTS: Final = 10_000
_A_PAGE: Final = 100
_WHOLE_RESULTS: Final = 1000  # above, metadata would exceed the 4 MB of an answer
_TOO_LARGE: Final = (400, 413)
_CONCURRENCY: Final = 8


class Index(ListedBackend):
    """One index, whose address is known."""

    def __init__(
        self,
        api: Api,
        host: str,
        *,
        dimension: int,
        metric: Metric,
        consistency_timeout_s: float | None,
        clock: Clock,
    ) -> None:
        """Ask nothing yet.

        Args:
            api: how to ask.
            host: the address.
            dimension: of every vector.
            metric: how nearness is measured.
            consistency_timeout_s: how long to wait for writes to be seen; None does not wait.
            clock: measures and waits.
        """
        super().__init__()
        self._api, self._host = api, host
        self._dimension, self._metric = dimension, metric
        self._freshness = (
            None
            if consistency_timeout_s is None
            else Freshness(self._look, timeout_s=consistency_timeout_s, clock=clock)
        )

    # -- writing -------------------------------------------------------------------------------

    async def upsert(self, namespace: str, batch: Batch) -> None:
        """Insert or replace the records of a batch, in as few requests as can carry them.

        All are checked before any is sent; each request is written when it is its turn.
        """
        await self._check(namespace, batch)
        effort, bodies = records.effort(batch), records.requests(namespace, batch)
        while (body := await offload(effort, lambda: next(bodies, None))) is not None:
            await self._write(namespace, "vectors/upsert", body, fills=True)
        await self._settle(namespace, again=False)

    async def insert(self, namespace: str, batch: Batch) -> int:
        """Insert the records whose ids are not there, all checked before; return their number."""
        await self._check(namespace, batch)
        return await super().insert(namespace, batch)

    async def update_meta(
        self, namespace: str, ids: list[str] | None, filter: Filter | None, changes: dict[str, Any]
    ) -> int:
        """Merge changes into the metadata of records, which are read and written whole.

        If they are more than a page, all are read, merged and checked before the first is written.
        """
        wanted = await self.ids(namespace, filter) if ids is None else ids
        if len(wanted) > PAGE:
            async with aclosing(self.chosen(namespace, wanted, filter)) as pages:
                async for page in pages:
                    batch = merged(page, changes)
                    if batch is not None:
                        await self._check(namespace, batch)
        return await super().update_meta(namespace, wanted, filter, changes)

    async def _check(self, namespace: str, batch: Batch) -> None:
        """See that Pinecone takes every record of a batch.

        Raises:
            InvalidMeta: a record's metadata and text are more than Pinecone takes.
        """
        await offload(records.effort(batch), lambda: records.check(namespace, batch))

    async def delete(self, namespace: str, ids: list[str] | None, filter: Filter | None) -> int:
        """Delete the records that have one of the ids, and pass the filter; return their number.

        Pinecone does not tell it, so they are read first, a hundred in a request.
        """
        late = await self._late(namespace)
        if late is not None and filter is not None:
            raise late  # the filter would not see all that it should delete
        gone = await self._counted(namespace, ids, filter)
        for what in messages.deletions(ids, filter):
            body = {"namespace": encoded_namespace(namespace), **what}
            try:
                await self._write(namespace, "vectors/delete", messages.content(body), fills=False)
            except NoNamespace:
                if late is not None:  # what was written there may still come
                    raise late from None
        await self._settle(namespace)
        return gone

    async def _counted(self, namespace: str, ids: list[str] | None, filter: Filter | None) -> int:
        """Return how many records have one of the ids, and pass the filter."""
        name = encoded_namespace(namespace)
        if filter is not None:
            wanted = messages.deletions(ids, filter)
            return sum([len(await self._listed(name, what["filter"])) for what in wanted])
        if ids is None:
            return len(await self._listed(name))
        distinct = list(dict.fromkeys(encoded(one) for one in ids))
        return len([found async for found, _ in self._fetched(namespace, distinct)])

    async def _late(self, namespace: str) -> ConsistencyTimeout | None:
        """Return why searches do not show what was written, None if they do."""
        try:
            await self._settle(namespace)
        except ConsistencyTimeout as error:
            return error
        return None

    async def _write(self, namespace: str, path: str, body: bytes, *, fills: bool) -> None:
        reply = await self._api.post(f"{self._host}/{path}", body)
        if self._freshness is not None:
            self._freshness.wrote(namespace, reply.headers, fills=fills)

    async def _settle(self, namespace: str, *, again: bool = True) -> None:
        if self._freshness is not None:
            await self._freshness.settle(namespace, again=again)

    async def _look(self, namespace: str) -> Mapping[str, str] | None:
        """Return the headers of the cheapest query; None if there is no such namespace."""
        vector = [1.0] + [0.0] * (self._dimension - 1)
        try:
            return (await self._ask(namespace, vector, 1, None, include=())).headers
        except NoNamespace:
            return None

    # -- searching -----------------------------------------------------------------------------

    async def query(
        self,
        namespace: str,
        query: NDArray[np.float32],
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[Match]:
        """Return the nearest records, best first."""
        await self._settle(namespace)
        higher = self._metric != "euclidean"

        async def whole(size: int) -> list[Match]:
            if size > _WHOLE_RESULTS:
                raise _TooMuch
            include = ("Metadata", "Values") if include_vectors else ("Metadata",)
            rows = await self._query(namespace, query.tolist(), size, filter, include=include)
            return [self._match(row, vectors=include_vectors) for row in rows]

        async def bare(size: int) -> list[Match]:
            rows = await self._query(namespace, query.tolist(), size, filter, include=())
            return await self._named(namespace, rows)

        try:
            return await nearest(whole, k, higher_is_better=higher, limit=MAX_RESULTS)
        except _TooMuch:
            pass
        except StoreUnavailable as error:
            if error.status not in _TOO_LARGE:
                raise
        best = await nearest(bare, k, higher_is_better=higher, limit=MAX_RESULTS)
        return await self._filled(namespace, best, include_vectors=include_vectors)

    async def query_many(
        self,
        namespace: str,
        queries: list[NDArray[np.float32]],
        k: int,
        filter: Filter | None,
        *,
        include_vectors: bool,
    ) -> list[list[Match]]:
        """Return what `query` does for each of them, some requests at a time."""

        async def one(query: NDArray[np.float32]) -> list[Match]:
            return await self.query(namespace, query, k, filter, include_vectors=include_vectors)

        await self._settle(namespace)
        return await each(queries, one, concurrency=_CONCURRENCY)

    async def _query(
        self,
        namespace: str,
        vector: list[float],
        size: int,
        filter: Filter | None,
        *,
        include: tuple[str, ...],
    ) -> list[dict[str, Any]]:
        try:
            return messages.matches(
                await self._ask(namespace, vector, size, filter, include=include)
            )
        except NoNamespace:
            return []

    async def _ask(
        self,
        namespace: str,
        vector: list[float],
        size: int,
        filter: Filter | None,
        *,
        include: tuple[str, ...],
    ) -> Reply:
        body: dict[str, Any] = {
            "namespace": encoded_namespace(namespace),
            "vector": vector,
            "topK": size,
            "includeMetadata": "Metadata" in include,
            "includeValues": "Values" in include,
        }
        if filter is not None:
            body["filter"] = condition(filter)
        return await self._api.post(f"{self._host}/query", messages.content(body))

    def _match(self, row: dict[str, Any], *, vectors: bool) -> Match:
        name, text, meta = records.contents(row)
        return Match(name, self._score(row), text, meta, records.floats(row) if vectors else None)

    def _score(self, row: dict[str, Any]) -> float:
        """Return the score; Pinecone's Euclidean distance is squared."""
        score = float(row["score"])
        return max(score, 0.0) ** 0.5 if self._metric == "euclidean" else score

    async def _named(self, namespace: str, rows: list[dict[str, Any]]) -> list[Match]:
        """Return matches of ids and scores."""
        names: dict[str, str | None] = {row["id"]: decoded(row["id"]) for row in rows}
        await self._resolve(namespace, names)
        return [
            Match(name, self._score(row))
            for row in rows
            if (name := names[row["id"]]) is not None  # else it was deleted meanwhile
        ]

    async def _resolve(self, namespace: str, names: dict[str, str | None]) -> None:
        """Fill in the ids that only records can tell."""
        unknown = [name for name in names if names[name] is None]
        async for name, vector in self._fetched(namespace, unknown):
            names[name] = records.contents(vector)[0]

    async def _filled(
        self, namespace: str, best: list[Match], *, include_vectors: bool
    ) -> list[Match]:
        """Return the matches with what they hold; one deleted meanwhile is left out."""
        held = await self._records(namespace, [match.id for match in best])
        return [
            replace(match, text=there.text, meta=there.meta, vector=vector)
            for match in best
            if (there := held.get(match.id)) is not None
            for vector in [list(there.vector) if include_vectors else None]
        ]

    # -- reading -------------------------------------------------------------------------------

    async def get(self, namespace: str, ids: list[str]) -> list[Record]:
        """Return the records of these ids, in their order."""
        await self._settle(namespace)
        held = await self._records(namespace, ids)
        return [held[name] for name in ids if name in held]

    async def count(self, namespace: str, filter: Filter | None) -> int:
        """Return how many records pass, by listing them all, a hundred in a request.

        Pinecone's own counts lag behind, and know no filters.
        """
        await self._settle(namespace)
        return await self._counted(namespace, None, filter)

    async def namespaces(self, prefix: str) -> list[str]:
        """Return the namespaces that hold records and start so.

        Pinecone lists a hundred in a request, with counts that lag behind; so each one is queried.
        """
        if self._freshness is not None:
            await self._freshness.settle_all()
        listed = [
            name
            async for page in self._pages("namespaces", limit=_A_PAGE)
            for name in messages.names(page, "namespaces", "name")
        ]
        named = await each(listed, self._holding, concurrency=_CONCURRENCY)
        return sorted(name for name in named if name is not None and name.startswith(prefix))

    async def _holding(self, encoded_name: str) -> str | None:
        """Return the name of a namespace that holds records, else None."""
        try:
            first = await self._api.get(
                f"{self._host}/vectors/list", namespace=encoded_name, limit=1
            )
        except NoNamespace:
            return None
        ids, name = messages.names(first, "vectors", "id"), decoded_namespace(encoded_name)
        if name is not None or not ids:
            return name if ids else None
        held = messages.vectors(await self._fetch(encoded_name, ids))
        return next((records.namespace_of(vector) for vector in held.values()), None)

    async def ids(self, namespace: str, filter: Filter | None) -> list[str]:
        """Return the ids of what passes the filter, in any order; a hundred come in a request."""
        await self._settle(namespace)
        where = None if filter is None else condition(filter)
        listed = await self._listed(encoded_namespace(namespace), where)
        names = {name: decoded(name) for name in listed}
        await self._resolve(namespace, names)
        return [name for name in names.values() if name is not None]

    async def _listed(self, encoded_name: str, where: Mapping[str, Any] | None = None) -> list[str]:
        """Return the encoded ids of a namespace, or of what passes a filter of Pinecone's."""
        if where is None:
            return [
                name
                async for page in self._pages("vectors/list", namespace=encoded_name, limit=_A_PAGE)
                for name in messages.names(page, "vectors", "id")
            ]
        passing: list[str] = []
        body: dict[str, Any] = {"namespace": encoded_name, "filter": where, "limit": _A_PAGE}
        path = f"{self._host}/vectors/fetch_by_metadata"
        while True:
            try:
                reply = await self._api.post(path, messages.content(body))
            except NoNamespace:
                return passing
            passing += messages.vectors(reply)
            token = messages.next_page(reply)
            if token is None:
                return passing
            body["paginationToken"] = token

    async def _pages(self, path: str, **parameters: Any) -> AsyncIterator[Reply]:
        token: str | None = None
        while True:
            try:
                page = await self._api.get(
                    f"{self._host}/{path}", **parameters, paginationToken=token
                )
            except NoNamespace:
                return
            yield page
            token = messages.next_page(page)
            if token is None:
                return

    async def _records(self, namespace: str, ids: list[str]) -> dict[str, Record]:
        wanted = list(dict.fromkeys(encoded(name) for name in ids))
        found = [records.record(vector) async for _, vector in self._fetched(namespace, wanted)]
        return {record.id: record for record in found}

    async def _fetched(
        self, namespace: str, ids: list[str]
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        name = encoded_namespace(namespace)
        for some in messages.fetches(ids):
            for encoded_id, vector in messages.vectors(await self._fetch(name, some)).items():
                yield encoded_id, vector

    async def _fetch(self, encoded_name: str, ids: list[str]) -> Reply:
        try:
            return await self._api.get(
                f"{self._host}/vectors/fetch", ids=ids, namespace=encoded_name
            )
        except NoNamespace:
            return Reply({}, {})


class _TooMuch(Exception):
    """More results than can come with their metadata."""

"""One index: its namespaces, and what of the writes can be seen yet."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

import numpy as np

from fakes.pinecone_server import limits
from fakes.pinecone_server.language import passes
from fakes.pinecone_server.limits import Refused

Rows = dict[str, dict[str, Any]]


@dataclass(slots=True)
class Namespace:
    """Records that can be seen, and writes that cannot yet."""

    rows: Rows = field(default_factory=Rows)
    written: int = 0
    seen: int = 0
    pending: deque[tuple[int, list[int], Callable[[Rows], None]]] = field(
        default_factory=deque[tuple[int, list[int], Callable[[Rows], None]]]
    )

    def write(self, change: Callable[[Rows], None], lag: int) -> int:
        """Note a change, seen after so many further queries; return its position in the log."""
        self.written += 1
        self.pending.append((self.written, [lag], change))
        self.catch_up(0)
        return self.written

    def catch_up(self, queries: int) -> None:
        """Let queries go by."""
        for _, left, _ in self.pending:
            left[0] -= queries
        while self.pending and self.pending[0][1][0] <= 0:
            self.seen, _, change = self.pending.popleft()
            change(self.rows)


@dataclass(slots=True)
class Index:
    """An index of one metric and dimension."""

    name: str
    dimension: int
    metric: str
    host: str
    not_ready: int
    lag: int = 0
    namespaces: dict[str, Namespace] = field(default_factory=dict[str, Namespace])

    def describe(self) -> dict[str, Any]:
        """Answer `GET /indexes/{name}`; each request brings it nearer to being ready."""
        ready = self.not_ready <= 0
        self.not_ready -= 1
        return {
            "name": self.name,
            "dimension": self.dimension,
            "metric": self.metric,
            "host": self.host,
            "vector_type": "dense",
            "deletion_protection": "disabled",
            "spec": {"serverless": {"cloud": "aws", "region": "us-east-1"}},
            "status": {"ready": ready, "state": "Ready" if ready else "Initializing"},
        }

    def existing(self, name: str, *, queries: int = 0) -> Namespace:
        """Return a namespace that searches know, after so many more of them."""
        namespace = self.namespaces.get(name)
        if namespace is not None:
            namespace.catch_up(queries)
        if namespace is None or not namespace.seen or name not in self.namespaces:
            raise Refused(404, "Namespace not found", code=5)
        return namespace

    def upsert(self, body: dict[str, Any]) -> int:
        """Store vectors; return the position of the write."""
        vectors: list[dict[str, Any]] = body["vectors"]
        if not 1 <= len(vectors) <= limits.MAX_VECTORS:
            raise Refused(400, f"request must have 1 to {limits.MAX_VECTORS} vectors")
        for vector in vectors:
            limits.check_name(vector["id"], "Vector ID")
            limits.check_metadata(vector["metadata"])
            self._check(vector["values"])

        def change(rows: Rows) -> None:
            for vector in vectors:
                rows.pop(vector["id"], None)
                rows[vector["id"]] = vector

        name = limits.check_name(body["namespace"], "Namespace")
        return self.namespaces.setdefault(name, Namespace()).write(change, self.lag)

    def delete(self, body: dict[str, Any]) -> int:
        """Delete by one of three ways; return the position of the write."""
        ways = [way for way in ("ids", "filter", "deleteAll") if body.get(way)]
        if len(ways) != 1:
            raise Refused(400, "give exactly one of ids, filter and deleteAll")
        ids: list[str] = body.get("ids", [])
        if len(ids) > limits.MAX_VECTORS:
            raise Refused(400, f"at most {limits.MAX_VECTORS} ids in a deletion")
        name = limits.check_name(body["namespace"], "Namespace")
        if name not in self.namespaces:
            raise Refused(404, "Namespace not found", code=5)

        def change(rows: Rows) -> None:
            gone = ids or [*rows]
            if ways == ["filter"]:
                gone = [key for key in rows if passes(body["filter"], rows[key]["metadata"])]
            for key in gone:
                rows.pop(key, None)
            if ways == ["deleteAll"]:
                self.namespaces.pop(name, None)

        return self.namespaces[name].write(change, self.lag)

    def query(self, body: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """Return the nearest in no order that means anything, and how far the log is seen."""
        size = body["topK"]
        if not isinstance(size, int) or not 1 <= size <= limits.MAX_RESULTS:
            raise Refused(400, f"topK must be 1 to {limits.MAX_RESULTS}")
        wanted = self._check(body["vector"])
        passes(body.get("filter", {}), {})
        name = limits.check_name(body["namespace"], "Namespace")
        namespace = self.existing(name, queries=1)
        rows = [
            row
            for row in namespace.rows.values()
            if passes(body.get("filter", {}), row["metadata"])
        ]
        scored = [(score, row) for score, row in zip(self._scores(rows, wanted), rows, strict=True)]
        scored.sort(key=lambda pair: pair[0], reverse=self.metric != "euclidean")
        best = scored[:size]
        if len(best) >= 3:
            Random(len(best)).shuffle(best)
        matches = [_shown(row, score, body) for score, row in best]
        if len(json.dumps(matches)) > limits.MAX_RESULT_BYTES:
            raise Refused(400, "the result is larger than 4 MB: ask for less")
        return {"matches": matches, "usage": {"readUnits": 1}}, namespace.seen

    def _check(self, values: Any) -> list[float]:
        if len(values) != self.dimension:
            raise Refused(
                400,
                f"Vector dimension {len(values)} does not match the dimension of the index "
                f"{self.dimension}",
            )
        if self.metric == "cosine" and not any(np.array(values, np.float32)):
            raise Refused(400, "Dense vectors must contain at least one non-zero value")
        return cast(list[float], values)

    def _scores(self, rows: list[dict[str, Any]], wanted: list[float]) -> list[float]:
        held = [np.array(row["values"], np.float32).astype(np.float64) for row in rows]
        query = np.array(wanted, np.float32).astype(np.float64)
        if self.metric == "euclidean":
            return [float(((row - query) ** 2).sum()) for row in held]
        products = [float((row * query).sum()) for row in held]
        if self.metric == "dotproduct":
            return products
        length = float(np.sqrt((query**2).sum()))
        lengths = [float(np.sqrt((row**2).sum())) * length for row in held]
        return [product / both for product, both in zip(products, lengths, strict=True)]


def _shown(row: dict[str, Any], score: float, body: dict[str, Any]) -> dict[str, Any]:
    shown = {"id": row["id"], "score": score}
    if body.get("includeMetadata"):
        shown["metadata"] = row["metadata"]
    shown["values"] = row["values"] if body.get("includeValues") else []
    return shown

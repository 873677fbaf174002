"""The service: control plane and indexes behind one transport."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import httpx2

from fakes.pinecone_server import limits
from fakes.pinecone_server.data import Index
from fakes.pinecone_server.language import passes
from fakes.pinecone_server.limits import Refused

API_KEY: Final = "pcsk_test_0123456789"
API_VERSION: Final = "2025-10"
CONTROL_HOST: Final = "api.pinecone.io"

_MAX_URL: Final = 8192


class PineconeServer:
    """Pinecone, as far as a vector store uses it, at version 2025-10 of its API.

    Attributes:
        requests: what came, oldest first: method, path, and body.
        indexes: by their names.
        lag: writes are seen after so many further queries of their namespace.
        not_ready: a new index is ready after it was described so often.
        tells_positions: whether answers tell log positions; those of pods do not.
    """

    def __init__(self, *, api_key: str = API_KEY, lag: int = 0, not_ready: int = 1) -> None:
        """Begin without an index."""
        self.requests: list[tuple[str, str, Any]] = []
        self.indexes: dict[str, Index] = {}
        self.lag, self.not_ready = lag, not_ready
        self.tells_positions = True
        self._api_key = api_key
        self._planned: deque[httpx2.Response | Exception] = deque()

    @property
    def transport(self) -> httpx2.AsyncBaseTransport:
        """The transport through which a client reaches it."""
        return httpx2.MockTransport(self._handle)

    def client(self) -> httpx2.AsyncClient:
        """Return a client that reaches nothing else."""
        return httpx2.AsyncClient(transport=self.transport)

    def make_index(self, name: str, *, dimension: int, metric: str = "cosine") -> Index:
        """Make an index, as its owner does in the console; it is ready."""
        host = f"{name}-abc123.svc.aped-0000-a000.pinecone.io"
        made = Index(name, dimension, metric, host, not_ready=0, lag=self.lag)
        return self.indexes.setdefault(name, made)

    def plan(self, *answers: httpx2.Response | Exception) -> None:
        """Answer the next requests so, whatever they are; an error is raised by the transport."""
        self._planned.extend(answers)

    # -- answering -----------------------------------------------------------------------------

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content or b"null")
        self.requests.append((request.method, unquote(request.url.path), body))
        if self._planned:
            planned = self._planned.popleft()
            if isinstance(planned, Exception):
                raise planned
            return planned
        try:
            self._check(request)
            return self._control(request, body) or self._index(request, body)
        except Refused as refused:
            return _answer(refused.body, status=refused.status)

    def _check(self, request: httpx2.Request) -> None:
        if request.headers.get("api-key") != self._api_key:
            raise Refused(401, "Invalid API Key", code=16)
        if request.headers.get("x-pinecone-api-version") != API_VERSION:
            raise Refused(400, "this server speaks version 2025-10 only")
        if len(request.content) > limits.MAX_BODY_BYTES:
            raise Refused(400, "the request is larger than 2 MB")
        if len(str(request.url)) > _MAX_URL:
            raise Refused(414, "the address is too long")

    def _control(self, request: httpx2.Request, body: Any) -> httpx2.Response | None:
        if request.url.host != CONTROL_HOST:
            return None
        if request.method == "POST":
            return self._create(body)
        index = self.indexes.get(unquote(request.url.path).removeprefix("/indexes/"))
        if index is None:
            body = {"error": {"code": "NOT_FOUND", "message": "Resource not found"}, "status": 404}
            return _answer(body, status=404)
        return _answer(index.describe())

    def _create(self, body: dict[str, Any]) -> httpx2.Response:
        if body.keys() != {"name", "dimension", "metric", "vector_type", "spec"}:
            raise Refused(422, "the request is not that of version 2025-10")
        if body["name"] in self.indexes:
            body = {
                "error": {"code": "ALREADY_EXISTS", "message": "Resource exists"},
                "status": 409,
            }
            return _answer(body, status=409)
        index = self.make_index(body["name"], dimension=body["dimension"], metric=body["metric"])
        index.not_ready = self.not_ready
        return _answer(index.describe(), status=201)

    def _index(self, request: httpx2.Request, body: Any) -> httpx2.Response:
        index = next((one for one in self.indexes.values() if one.host == request.url.host), None)
        if index is None or index.not_ready > 0:
            raise Refused(404, "Index not found", code=5)
        index.lag = self.lag
        path = request.url.path
        if path in _READS:
            return _answer(_READS[path](index, body or request.url.params))
        if path == "/query":
            found, seen = index.query(body)
            return self._answer_with_positions(found, seen=seen)
        if path not in _WRITES:
            raise Refused(404, "no such endpoint", code=5)
        return self._answer_with_positions({}, request=_WRITES[path](index, body))

    def _answer_with_positions(
        self, body: dict[str, Any], *, request: int | None = None, seen: int | None = None
    ) -> httpx2.Response:
        headers: dict[str, str] = {}
        if self.tells_positions and request is not None:
            headers["X-Pinecone-Request-Lsn"] = str(request)
        if self.tells_positions and seen is not None:
            headers["X-Pinecone-Max-Indexed-Lsn"] = str(seen)
        return _answer(body, headers=headers)


def _answer(
    body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> httpx2.Response:
    return httpx2.Response(status, json=body, headers=headers)


def _fetch(index: Index, parameters: Any) -> dict[str, Any]:
    ids = parameters.get_list("ids")
    if not 1 <= len(ids) <= limits.MAX_VECTORS:
        raise Refused(400, f"a fetch takes 1 to {limits.MAX_VECTORS} ids")
    rows = index.existing(parameters["namespace"]).rows
    return {"vectors": {name: rows[name] for name in ids if name in rows}}


def _list(index: Index, parameters: Any) -> dict[str, Any]:
    names = sorted(index.existing(parameters["namespace"]).rows)
    page, rest = _page(names, parameters.get("limit"), parameters.get("paginationToken"))
    return {"vectors": [{"id": name} for name in page], **rest}


def _by_metadata(index: Index, body: dict[str, Any]) -> dict[str, Any]:
    rows = index.existing(body["namespace"]).rows
    names = sorted(name for name in rows if passes(body["filter"], rows[name]["metadata"]))
    page, rest = _page(names, body.get("limit"), body.get("paginationToken"))
    return {"vectors": {name: rows[name] for name in page}, **rest}


def _namespaces(index: Index, parameters: Any) -> dict[str, Any]:
    names = sorted(index.namespaces)
    page, rest = _page(names, parameters.get("limit"), parameters.get("paginationToken"))
    # A count that lags behind: it tells what was written, not what is there.
    counted = [{"name": name, "record_count": str(index.namespaces[name].written)} for name in page]
    return {"namespaces": counted, **rest}


def _page(names: list[str], limit: Any, token: str | None) -> tuple[list[str], dict[str, Any]]:
    """Return a page, and what leads to the next; the last one has nothing that does."""
    size = int(limit or limits.MAX_PAGE)
    if not 1 <= size <= limits.MAX_PAGE:
        raise Refused(400, f"limit must be 1 to {limits.MAX_PAGE}")
    start = int(token or 0)
    more = len(names) > start + size
    return names[start : start + size], {"pagination": {"next": str(start + size)}} if more else {}


def _stats(index: Index, _: Any) -> dict[str, Any]:
    return {"dimension": index.dimension, "metric": index.metric}


_READS: Final[dict[str, Callable[[Index, Any], dict[str, Any]]]] = {
    "/describe_index_stats": _stats,
    "/namespaces": _namespaces,
    "/vectors/fetch": _fetch,
    "/vectors/fetch_by_metadata": _by_metadata,
    "/vectors/list": _list,
}
_WRITES: Final[dict[str, Callable[[Index, Any], int]]] = {
    "/vectors/delete": Index.delete,
    "/vectors/upsert": Index.upsert,
}

"""Vector stores by a path or a URL, with one scheme for each kind."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import SplitResult, unquote, urlsplit

import lib.vector
from lib._util.places import checked_path
from lib.vector.contract import VectorStore
from lib.vector.records import Layout, Metric

Options = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreName:
    """A vector store by its name.

    Attributes:
        shown: the name, without a password.
        kind: the store's class in `lib.vector`.
        options: what its constructor takes beside dimension and metric; may hold a secret.
    """

    shown: str = field(compare=False)
    kind: str
    options: Options = field(repr=False)

    def made(self, layout: Layout) -> VectorStore:
        """Return a store object for this place, not set up yet.

        Raises:
            ValueError: the constructor refuses what the name says.
        """
        try:
            store: VectorStore = getattr(lib.vector, self.kind)(
                dimension=layout.dimension, metric=layout.metric, **self.options
            )
        except ValueError as error:
            raise ValueError(f"{self.shown}: {error}") from error
        return store


def open_vector_store(
    url: str | os.PathLike[str], *, dimension: int | None = None, metric: Metric = "cosine"
) -> VectorStore:
    """Return the vector store that a URL or a path names; `setup()` or `async with` opens it.

    Args:
        url: a path of an SQLite file, `sqlite:///PATH`, `postgresql://HOST/DATABASE`,
            `qdrant+http://HOST:PORT/COLLECTION`, `qdrant:///PATH`, `lancedb:///PATH`,
            `chroma://HOST:PORT`, `chroma:///PATH`, `pinecone://INDEX`, or `memory:`.
        dimension: of every vector; a store in memory alone takes that of the first one.
        metric: how nearness is measured.

    Raises:
        ValueError: it names no store, or there is no dimension; the message holds no password.
        TypeError: it is neither text nor a path of text.
        MissingDriver: the driver of such a store is not installed.
    """
    place = os.fspath(url)
    if not isinstance(cast(object, place), str):
        raise TypeError("url is a str or a path of text, got bytes")
    if place in ("memory:", ":memory:"):
        return lib.vector.InMemoryVectorStore(dimension, metric)
    name = store_name(place)
    if dimension is None:
        raise ValueError(f"{name.shown} needs a dimension: give dimension=")
    return name.made(Layout(dimension=dimension, metric=metric))


def store_name(name: str) -> StoreName:
    """Return the store that a path or a URL names.

    Raises:
        ValueError: it names none; the message says how to, and holds no password.
    """
    if name in ("", ":memory:", "memory:"):
        raise ValueError("name a store that outlives this command: a path or a URL")
    scheme, colon, rest = name.partition(":")
    if not colon or scheme not in _SCHEMES:
        path = checked_path(name)
        if "://" in path:
            raise ValueError(f"unknown scheme {scheme!r}: known are a path, {', '.join(_FORMS)}")
        return StoreName(shown=path, kind="SQLiteVectorStore", options={"path": path})
    if not rest.startswith("//"):
        raise ValueError(f"a URL has '//' after {scheme!r}: known are {', '.join(_FORMS)}")
    kind, options = _SCHEMES[scheme]
    url = _parsed(name)
    user = f"{url.username}@" if url.username else ""
    place = url.netloc.rpartition("@")[2]
    return StoreName(
        shown=f"{url.scheme}://{user}{place}{url.path}", kind=kind, options=options(url)
    )


def _parsed(name: str) -> SplitResult:
    """Return the parts of a URL.

    Raises:
        ValueError: it is none; neither the message nor what lies behind it has any of its text.
    """
    try:
        url = urlsplit(name, allow_fragments=False)
    except ValueError:  # whose message quotes the password with the rest
        raise ValueError(f"this is no URL; {_ENCODED}") from None
    filed = not url.netloc and url.scheme in _FILED
    if not filed and "@" in url.path + url.query:
        raise ValueError(f"there is an '@' behind the host; {_ENCODED}")
    return url


def _file(url: SplitResult) -> str:
    """Return the path of `scheme:///PATH`, which is relative unless PATH begins with a slash."""
    if url.netloc or not url.path.startswith("/") or url.path == "/":
        raise ValueError(f"a {url.scheme} store is named {url.scheme}:///PATH")
    return url.path[1:]


def _query_options(url: SplitResult, *names: str) -> Options:
    """Return what stands behind the question mark."""
    pairs = [pair.partition("=") for pair in url.query.split("&") if pair]
    for key, _, _ in pairs:
        if key not in names:
            allowed = f"known is {', '.join(names)}" if names else "there are none"
            raise ValueError(f"unknown option {key!r} of a {url.scheme} store: {allowed}")
    return {key: unquote(value) for key, _, value in pairs}


def _server(url: SplitResult) -> Options:
    """Return the host and the port."""
    if not url.hostname:
        raise ValueError(f"a {url.scheme} store on a server is named {url.scheme}://HOST:PORT")
    try:
        port = url.port
    except ValueError:  # whose message quotes what may be a piece of a password
        raise ValueError(f"a port is a number from 0 to 65535; {_ENCODED}") from None
    return {"host": url.hostname, **({"port": port} if port else {})}


def _sqlite(url: SplitResult) -> Options:
    return {"path": _file(url), **_query_options(url, "table", "scratch_dir")}


def _lancedb(url: SplitResult) -> Options:
    return {"uri": _file(url), **_query_options(url, "table")}


def _postgres(url: SplitResult) -> Options:
    """Return the name of the database without our own options, which it would refuse."""
    pairs = [pair for pair in url.query.split("&") if pair]
    ours = [unquote(pair[6:]) for pair in pairs if pair.startswith("table=")]
    others = "&".join(pair for pair in pairs if not pair.startswith("table="))
    dsn = f"{url.scheme}://{url.netloc}{url.path}" + (f"?{others}" if others else "")
    return {"dsn": dsn, **({"table": ours[-1]} if ours else {})}


def _qdrant(url: SplitResult) -> Options:
    return {"path": _file(url), **_query_options(url, "collection")}


def _qdrant_server(url: SplitResult) -> Options:
    _query_options(url)
    _server(url)
    collection = unquote(url.path.strip("/"))
    key = os.environ.get("QDRANT_API_KEY")
    return {
        "url": f"{url.scheme.removeprefix('qdrant+')}://{url.netloc}",
        **({"collection": collection} if collection else {}),
        **({"api_key": key} if key else {}),
    }


def _chroma(url: SplitResult) -> Options:
    where = _server(url) if url.netloc else {"path": _file(url)}
    return {**where, **_query_options(url, "prefix")}


def _pinecone(url: SplitResult) -> Options:
    _query_options(url)
    if not url.netloc or url.path.strip("/"):
        raise ValueError("a pinecone store is named pinecone://INDEX")
    return {"index_name": url.netloc, "api_key": os.environ.get("PINECONE_API_KEY")}


_SCHEMES: Final[Mapping[str, tuple[str, Callable[[SplitResult], Options]]]] = {
    "chroma": ("ChromaVectorStore", _chroma),
    "lancedb": ("LanceDBVectorStore", _lancedb),
    "pinecone": ("PineconeVectorStore", _pinecone),
    "postgres": ("PostgresVectorStore", _postgres),
    "postgresql": ("PostgresVectorStore", _postgres),
    "qdrant": ("QdrantVectorStore", _qdrant),
    "qdrant+http": ("QdrantVectorStore", _qdrant_server),
    "qdrant+https": ("QdrantVectorStore", _qdrant_server),
    "sqlite": ("SQLiteVectorStore", _sqlite),
}
_FILED: Final = ("chroma", "lancedb", "qdrant", "sqlite")
"""Those whose path may be one of files, in which any character may stand."""
_FORMS: Final = (
    "sqlite:///PATH",
    "postgresql://HOST/DATABASE",
    "qdrant+http://HOST:PORT/COLLECTION",
    "qdrant:///PATH",
    "lancedb:///PATH",
    "chroma://HOST:PORT",
    "chroma:///PATH",
    "pinecone://INDEX",
)
_ENCODED: Final = (
    "in a user's name, a password and options write '@', '/', '?' and '#' as %40, %2F…"
)

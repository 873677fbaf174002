"""The contracts of `lib.vector`: what every store and every embedder promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    Protocol,
    TypeAlias,
    TypeGuard,
    get_args,
    runtime_checkable,
)

from lib.errors import UnsupportedFusion
from lib.vector.filter import Field, Filter
from lib.vector.records import Facet, Layout, Match, Metric, Record, Vector
from lib.vector.text.fusion import METHODS, Fusion, FusionLike, FusionMethod, fusion_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FilterLike: TypeAlias = Filter | Mapping[str, Any] | Mapping[Field, Any] | None
Purpose = Literal["document", "query"]
Capability = Literal[
    "hybrid", "keywords", "scan", "existing", "purge", "insert", "update", "batch", "facet"
]
"""What a store may be able to do beyond `VectorStore`.

- hybrid: `query_hybrid`, see `HybridStore`.
- keywords: `query_keywords`, see `KeywordStore`.
- scan: `scan`, see `ScanStore`.
- existing: `existing`, see `KeptStore`.
- purge: `purge`, see `PurgingStore`.
- insert: `insert`, see `InsertingStore`.
- update: `update_meta`, see `UpdatingStore`.
- batch: `query_many`, see `BatchStore`.
- facet: `facet`, see `FacetStore`.
"""
CAPABILITIES: Final[tuple[Capability, ...]] = get_args(Capability)
_METHODS: Final[Mapping[Capability, str]] = {
    "hybrid": "query_hybrid",
    "keywords": "query_keywords",
    "update": "update_meta",
    "batch": "query_many",
}
FusionWord = FusionMethod | Literal["weights"]
"""A method of fusion, or that its weights may differ."""
FUSION_WORDS: Final[tuple[FusionWord, ...]] = (*METHODS, "weights")
_DEFAULT_FUSION: Final = Fusion()
_RANKS_ALONE: Final = frozenset[FusionWord](("rrf",))


@runtime_checkable
class VectorStore(Protocol):
    """Records with vectors, partitioned by namespace, found by nearness and by metadata.

    A namespace is a hard partition; None names the same one as the empty string. A filter means
    the same in every store, or raises `UnsupportedFilter` before anything is read or written.
    Whatever goes in is copied, and so is whatever comes out. Arguments are judged before any
    effect: `InvalidVector`, `DimensionMismatch`, `InvalidMeta` and `InvalidFilter` change nothing.

    A class may declare two sets of words. `capabilities` says what it can do beyond this protocol
    (see `Capability`); without it, the methods that a store has decide. `refusals` says what it
    cannot express in a filter (see `lib.vector.filter.refusals`); without it, nothing.

    Attributes:
        metric: how nearness is measured.
        dimension: the length of every vector; None until the first upsert has settled it.
        higher_is_better: True if a higher score is a better one; False only for `euclidean`.
    """

    @property
    def metric(self) -> Metric:
        """The metric of its vectors."""
        ...

    @property
    def dimension(self) -> int | None:
        """The length of every vector; None until the first upsert has settled it."""
        ...

    @property
    def higher_is_better(self) -> bool:
        """True if a higher score is a better one."""
        ...

    async def setup(self) -> None:
        """Make the store usable; safe to repeat and to run in several processes at once."""
        ...

    async def upsert(self, records: Sequence[Record], *, namespace: str | None = None) -> None:
        """Insert the records, each replacing as a whole what its id held; all of them or none.

        Of an id that stands twice in `records` the last one counts. Safe to repeat.
        """
        ...

    async def query(
        self,
        vector: Vector,
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
        include_vectors: bool = False,
        score_threshold: float | None = None,
    ) -> list[Match]:
        """Return the k records nearest to `vector`, best first, ties in the order of their ids.

        Fewer only where fewer records pass the filter and the threshold: the filter comes before
        the search. `score_threshold` is the least similarity that counts, or under `euclidean`
        the largest distance.
        """
        ...

    async def get(self, ids: Sequence[str], *, namespace: str | None = None) -> list[Record]:
        """Return the records of these ids, in their order; unknown ids are left out."""
        ...

    async def delete(
        self,
        ids: Sequence[str] | None = None,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> int:
        """Delete records by id, by filter, or those that meet both; return how many there were.

        Unknown ids are ignored. Where a store has to count first, its own page says so; another
        writer may then come in between.

        Raises:
            ValueError: there are neither ids nor a filter; an empty mapping is no filter. What
                empties a namespace says so: `delete(filter=EVERYTHING)`.
        """
        ...

    async def count(
        self,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> int:
        """Return how many records of the namespace pass the filter."""
        ...

    async def namespaces(self, prefix: str = "") -> list[str]:
        """Return the names of the namespaces that hold records and start so, sorted."""
        ...

    async def close(self) -> None:
        """Release what the store holds; safe to repeat. Any other call then raises StoreClosed."""
        ...


@runtime_checkable
class HybridStore(VectorStore, Protocol):
    """A store that can fuse keyword relevance with nearness.

    A class may declare in `fusions` how it can (see `FusionWord`); without it, by reciprocal rank
    with equal weights, and its method need not take `fusion`.
    """

    async def query_hybrid(
        self,
        vector: Vector,
        text: str,
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
        fusion: FusionLike = "rrf",
    ) -> list[Match]:
        """Return the k best of two lists made one by `fusion`: nearest vectors, best BM25 texts.

        Any word of `text` may match; a text without words leaves the vector list alone. Higher
        scores are better whatever the metric: by reciprocal rank they are sums of 1 / (60 + rank).

        Raises:
            HybridUnavailable: this store has no full-text support here.
            UnsupportedFusion: it fuses by itself, and cannot fuse so.
            ValueError: `fusion` is not a fusion.
        """
        ...


@runtime_checkable
class KeywordStore(VectorStore, Protocol):
    """A store that can search texts by their words alone."""

    async def query_keywords(
        self,
        text: str,
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> list[Match]:
        """Return the k records whose texts are most relevant to the words of `text`, best first.

        Any word may match; a text without words finds nothing. Scores are BM25, or the store's
        own measure of relevance: higher is better whatever the metric, ties stand in the order of
        their ids.

        Raises:
            HybridUnavailable: this store has no full-text support here.
        """
        ...


@runtime_checkable
class ScanStore(VectorStore, Protocol):
    """A store whose records can be read one after another, as moving them elsewhere needs."""

    async def scan(
        self,
        *,
        filter: FilterLike = None,
        after: str | None = None,
        limit: int = 1000,
        namespace: str | None = None,
    ) -> list[Record]:
        """Return the first `limit` records whose ids follow `after`, in the order of their ids.

        The order is that of code points. Fewer only where no more follow, so that the last id of
        a page, passed as `after`, leads to the next one. What is written meanwhile may be missed.
        `list_records` of the library's own stores goes from page to page.

        Args:
            filter: what the records have to pass.
            after: an id, even of no record; None starts with the first record.
            limit: 1 to 10,000.
            namespace: to read.
        """
        ...


@runtime_checkable
class KeptStore(Protocol):
    """A store whose place outlives it, and can tell for what it was made."""

    async def existing(self) -> Layout | None:
        """Return how the place was made, whatever this object expects; None if nothing is there.

        Makes nothing, not even what `setup` would; neither needs `setup` nor stands in for it.
        """
        ...


@runtime_checkable
class PurgingStore(Protocol):
    """A store whose place keeps bytes of what was deleted until they are purged."""

    async def purge(self) -> None:
        """Leave no byte of what has been deleted or replaced in the place, as far as it can be.

        It may rewrite the whole place. Safe to repeat, as it must be if it fails midway.
        """
        ...


@runtime_checkable
class InsertingStore(Protocol):
    """A store that can leave records alone that are there."""

    async def insert(self, records: Sequence[Record], *, namespace: str | None = None) -> int:
        """Insert the records whose ids are not there, and leave those that are as they are.

        Of an id that stands twice in `records` the last one counts.

        Returns:
            How many were inserted.
        """
        ...


@runtime_checkable
class UpdatingStore(Protocol):
    """A store that can change metadata alone."""

    async def update_meta(
        self,
        meta: Mapping[str, Any],
        *,
        ids: Sequence[str] | None = None,
        filter: FilterLike = None,
        namespace: str | None = None,
    ) -> int:
        """Merge fields into the metadata of records by id, by filter, or those that meet both.

        A field that a record has is replaced as a whole, others stay; None makes one absent for
        filters. Vectors and texts stay as they are; unknown ids are ignored.

        Returns:
            How many records there were.

        Raises:
            ValueError: there are neither ids nor a filter; `EVERYTHING` is all records.
            InvalidMeta: the fields cannot be stored.
        """
        ...


@runtime_checkable
class BatchStore(Protocol):
    """A store that answers many queries in one call."""

    async def query_many(
        self,
        vectors: Sequence[Vector],
        k: int = 5,
        *,
        filter: FilterLike = None,
        namespace: str | None = None,
        include_vectors: bool = False,
        score_threshold: float | None = None,
    ) -> list[list[Match]]:
        """Return what `query` does for each vector, in their order; no vectors give no lists."""
        ...


@runtime_checkable
class FacetStore(Protocol):
    """A store that can tell which values a metadata field has."""

    async def facet(
        self,
        field: Field,
        *,
        filter: FilterLike = None,
        limit: int = 100,
        namespace: str | None = None,
    ) -> Facet:
        """Return the values of a field among the records that pass, with their counts.

        Args:
            field: of the metadata, which records may lack; a tuple of names is a nested one.
            filter: what the records have to pass.
            limit: how many values are returned at most, the most frequent first.
            namespace: to look into.

        Raises:
            ValueError: the limit is below 1.
            TypeError: the field is neither a string nor a tuple of strings.
        """
        ...


def capabilities(store: object) -> frozenset[Capability]:
    """Return what a store can do: what it declares and has the methods for.

    Where it declares nothing, the methods decide. The attributes of a proxy around a store
    decide for it.

    Raises:
        ValueError: it declares an unknown word.
    """
    declared = frozenset[str](getattr(store, "capabilities", CAPABILITIES))
    unknown = sorted(declared.difference(CAPABILITIES))
    if unknown:
        raise ValueError(
            f"capabilities of {type(store).__name__} hold {unknown[0]!r}: known are "
            f"{', '.join(CAPABILITIES)}"
        )
    return frozenset(
        capability
        for capability in CAPABILITIES
        if capability in declared and callable(getattr(store, method_of(capability), None))
    )


def method_of(capability: Capability) -> str:
    """Return the name of the method behind a capability."""
    return _METHODS.get(capability, capability)


def is_hybrid(store: object) -> TypeGuard[HybridStore]:
    """Return True if the store can fuse keyword relevance with nearness."""
    return "hybrid" in capabilities(store)


def is_searchable_by_keywords(store: object) -> TypeGuard[KeywordStore]:
    """Return True if the store can search texts by their words alone."""
    return "keywords" in capabilities(store)


def declared_fusions(store: object) -> frozenset[FusionWord]:
    """Return how a store can fuse; one that declares nothing, by equal reciprocal ranks."""
    return frozenset(getattr(store, "fusions", _RANKS_ALONE))


def checked_fusion(store: object, wanted: FusionLike) -> Fusion:
    """Return the fusion that is wanted of a store.

    Raises:
        UnsupportedFusion: the store declares that it cannot fuse so.
        ValueError: it is not the name of a method.
    """
    fusion = fusion_of(wanted)
    if fusion == _DEFAULT_FUSION:
        return fusion
    able, (near, worded) = declared_fusions(store), fusion.weights
    used: tuple[FusionWord, ...] = (
        (fusion.method,) if near == worded else (fusion.method, "weights")
    )
    for word in used:
        if word not in able:
            raise UnsupportedFusion(type(store).__name__, word, sorted(able))
    return fusion


async def query_hybrid(
    store: HybridStore,
    vector: Vector,
    text: str,
    k: int,
    *,
    filter: FilterLike,
    namespace: str | None,
    fusion: FusionLike,
) -> list[Match]:
    """Search a store that perhaps knows no `fusion`; equal reciprocal ranks are left to it.

    Raises:
        UnsupportedFusion: the store cannot fuse so.
    """
    chosen = checked_fusion(store, fusion)
    by_default = chosen == _DEFAULT_FUSION or declared_fusions(store) == _RANKS_ALONE
    options: dict[str, Any] = {} if by_default else {"fusion": chosen}
    return await store.query_hybrid(vector, text, k, filter=filter, namespace=namespace, **options)


def is_scannable(store: object) -> TypeGuard[ScanStore]:
    """Return True if the records of the store can be read one after another."""
    return "scan" in capabilities(store)


class Embedder(Protocol):
    """Turns texts into vectors.

    Attributes:
        dimension: the length of every vector.
    """

    @property
    def dimension(self) -> int:
        """The length of every vector."""
        ...

    async def embed(
        self, texts: Sequence[str], *, purpose: Purpose = "document"
    ) -> NDArray[np.float32]:
        """Return one row of `dimension` floats per text, in their order.

        Args:
            texts: n texts; none gives an array of shape (0, dimension).
            purpose: stored documents or queries; some models embed the two differently.
        """
        ...

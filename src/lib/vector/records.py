"""Records, matches and pages of vector stores: plain data, no driver, no numpy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

Metric = Literal["cosine", "dot", "euclidean"]
HitMetric = Literal["cosine", "dot", "euclidean", "rrf", "convex", "adaptive", "keywords"]


class Vector(Protocol):
    """Any sequence of floats: a list, a tuple, an `array.array`, a one-dimensional numpy array."""

    def __len__(self) -> int:
        """Return the dimension."""
        ...

    def __iter__(self) -> Iterator[float]:
        """Iterate over the elements."""
        ...

    def __getitem__(self, index: int, /) -> float:
        """Return one element."""
        ...


@dataclass(frozen=True, slots=True)
class Record:
    """One vector with its text and its metadata, as a store keeps it.

    Attributes:
        id: 1 to 512 characters, unique in its namespace.
        vector: d floats, kept with 32 bits each; a record may be made with any `Vector`, and is
            returned with a list.
        text: what the vector stands for, searched by hybrid queries; may be empty.
        meta: JSON: None, bool, int (64 bits), float, str, lists and dicts of them.
    """

    id: str
    vector: list[float]
    text: str = ""
    meta: dict[str, Any] = field(default_factory=dict[str, Any])

    if TYPE_CHECKING:  # nothing is copied: a large batch of numpy rows goes in as it is

        def __init__(  # the types of the one that the dataclass makes
            self,
            id: str,  # noqa: A002 - the name of the field
            vector: Vector,
            text: str = "",
            meta: dict[str, Any] = ...,
        ) -> None: ...


@dataclass(frozen=True, slots=True)
class Match:
    """One search result, best first in its list; equal scores stand in the order of their ids.

    Attributes:
        id: the record's id.
        score: a similarity for `cosine` and `dot` (higher is better), a distance for `euclidean`
            (lower is better), a sum that fusion makes for hybrid queries and a relevance such as
            BM25 for keyword queries (higher is better). Scores of different stores, metrics or
            fusions cannot be compared.
        text: the record's text.
        meta: a copy of the record's metadata.
        vector: d floats, or None without `include_vectors`.
    """

    id: str
    score: float
    text: str = ""
    meta: dict[str, Any] = field(default_factory=dict[str, Any])
    vector: list[float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """The values of one metadata field.

    Attributes:
        values: each bool, number and string that stands in the field, alone or in a list, with the
            number of records that have it: the most frequent first, then bools, numbers and
            strings in their order. 1 and 1.0 are one value, 1 and True are two.
        distinct: how many values there are, those that a limit leaves out included.
        minimum: the smallest number; None if there is none.
        maximum: the largest number; None if there is none.
    """

    values: list[tuple[bool | int | float | str, int]]
    distinct: int
    minimum: int | float | None
    maximum: int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The dimension and metric that the place of a store was made for.

    Attributes:
        dimension: of every vector; None where the first one settles it.
        metric: how nearness is measured; None where the first namespace settles it.
    """

    dimension: int | None
    metric: Metric | None


@dataclass(frozen=True, slots=True)
class Doc:
    """A text with an id and metadata, before it has a vector."""

    id: str
    text: str
    meta: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that an index has found, and how good it is.

    Attributes:
        doc: the document.
        score: how near it is to the query, read by `metric`.
        metric: the store's metric, the method of fusion of a hybrid search (`rrf`, `convex`,
            `adaptive`), or `keywords` when words alone were searched.
        higher_is_better: False only for `euclidean`.
    """

    doc: Doc
    score: float
    metric: HitMetric = "cosine"
    higher_is_better: bool = True

    @property
    def id(self) -> str:
        """The document's id."""
        return self.doc.id

    @property
    def text(self) -> str:
        """The document's text."""
        return self.doc.text

    @property
    def meta(self) -> dict[str, Any]:
        """The document's metadata."""
        return self.doc.meta

"""Latent semantic analysis: an embedder that learns from the documents it will search.

Terms that occur in the same documents point the same way, so that "car" finds "automobile" where
the documents show that they belong together. It needs no model, no network and no key; it knows
only words that it was fitted on, and is best beside BM25 (`hybrid=True`).
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import zipfile
import zlib
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from lib._util.contexts import AsyncClosable
from lib._util.files import write_atomically
from lib.errors import NotFitted, VectorError
from lib.vector.contract import Purpose
from lib.vector.embed.svd import Floats, Sparse, principal_axes
from lib.vector.text.analysis import analyze

_FORMAT: Final = "lib.lsa"
_VERSION: Final = 1  # to be raised when `analyze` gives other terms, too
_MIN_DIMENSION: Final = 2
_UNKNOWN_BELOW: Final = 1e-6


class LSAEmbedder(AsyncClosable):
    """Embeds texts by the company that their words keep in the documents it was fitted on.

    TF-IDF with logarithmic term frequencies, reduced to `dimension` by a truncated singular value
    decomposition; rows have length 1. The same documents give the same vectors. Fitting again
    gives another space: what was embedded before has to be embedded again, and `fingerprint`
    tells the two apart. Everything runs in a thread; the decomposition of 50,000 documents of
    100 terms takes 4 s on two cores.

    The last coordinate is kept for texts without a known word, which have no direction of their
    own: such a query is (.., 0, 1) and equally far from every document that has words; such a
    document is (.., 0, -1), the last that it finds. No text has a zero vector.

    Attributes:
        dimension: the length of every vector. With fewer than `dimension` independent documents
            the coordinates that nothing fills are 0.
        max_terms: only so many terms are used, those that occur in the most documents.

    Source: Deerwester et al., "Indexing by latent semantic analysis", 1990. Axes are divided by
    the root of their strength: Caron, "Experiments with LSA scoring: optimal rank and basis", 2001.
    """

    def __init__(self, dimension: int = 256, *, max_terms: int = 50_000) -> None:
        """Make an embedder to be fitted; `load` gives one that is.

        Raises:
            ValueError: `dimension` is below 2 or `max_terms` below 1.
        """
        if dimension < _MIN_DIMENSION:
            raise ValueError(f"dimension is {dimension}, an LSA embedder has at least 2")
        if max_terms < 1:
            raise ValueError(f"max_terms is {max_terms}, an LSA embedder needs at least 1 term")
        self.dimension = dimension
        self.max_terms = max_terms
        self._space: _Space | None = None

    @property
    def fingerprint(self) -> str:
        """An id of the fitted space: equal ones embed alike. Empty before `fit`."""
        return self._space.fingerprint if self._space else ""

    async def fit(self, texts: Sequence[str]) -> None:
        """Learn from these texts; what was learned before is replaced when the fit succeeds.

        Raises:
            ValueError: there is no text, or none of them holds a word.
        """
        self._space = await asyncio.to_thread(_fitted, texts, self.dimension, self.max_terms)

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Floats:
        """Return one row of length 1 per text, in their order.

        Raises:
            NotFitted: neither `fit` nor `load` has been called.
        """
        if self._space is None:
            raise NotFitted("this LSA embedder knows no documents yet: call fit() or load()")
        return await asyncio.to_thread(self._space.embed, texts, purpose)

    async def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted space to one file, durably and as a whole.

        Raises:
            NotFitted: there is nothing to save.
            OSError: the file cannot be written; one that was there before is unchanged.
        """
        if self._space is None:
            raise NotFitted("this LSA embedder knows no documents yet: there is nothing to save")
        await asyncio.to_thread(_write, Path(path), self._space, self.max_terms)

    @classmethod
    async def load(cls, path: str | PathLike[str]) -> Self:
        """Return the embedder that was saved.

        Raises:
            FileNotFoundError: there is no such file.
            VectorError: the file is damaged, no LSA model, or from another release.
        """
        space, max_terms = await asyncio.to_thread(_read, Path(path))
        embedder = cls(space.dimension, max_terms=max_terms)
        embedder._space = space
        return embedder


@dataclass(frozen=True)
class _Space:
    """The state that a fit has learned.

    Attributes:
        dimension: the length of the vectors, above the number of axes.
        terms: the vocabulary, sorted.
        idf: the weight of each term.
        projection: a row per term, a column per axis.
    """

    dimension: int
    terms: tuple[str, ...]
    idf: Floats
    projection: Floats

    @cached_property
    def fingerprint(self) -> str:
        state = hashlib.sha256("\n".join((str(self.dimension), *self.terms)).encode())
        state.update(self.idf.tobytes())
        state.update(self.projection.tobytes())
        return state.hexdigest()[:32]

    @cached_property
    def _columns(self) -> Mapping[str, int]:
        return {term: column for column, term in enumerate(self.terms)}

    def embed(self, texts: Sequence[str], purpose: Purpose) -> Floats:
        counts = [Counter(filter(self._columns.__contains__, analyze(text))) for text in texts]
        starts = np.cumsum([0, *map(len, counts)], dtype=np.intp)
        columns = np.fromiter(map(self._columns.__getitem__, chain(*counts)), np.intp, starts[-1])
        times = np.fromiter(chain(*(count.values() for count in counts)), np.float32, starts[-1])
        rows = _tf_idf(Sparse(starts, columns, times, len(self.terms)), self.idf)
        projected = rows.times(self.projection)
        lengths = np.linalg.norm(projected, axis=1)
        has_known_words = lengths > _UNKNOWN_BELOW
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        vectors[has_known_words, : projected.shape[1]] = (
            projected[has_known_words] / lengths[has_known_words, None]
        )
        vectors[~has_known_words, -1] = 1.0 if purpose == "query" else -1.0
        return vectors


def _fitted(texts: Sequence[str], dimension: int, max_terms: int) -> _Space:
    if not texts:
        raise ValueError("an LSA embedder cannot be fitted on no documents")
    counts, vocabulary = _counted(texts)
    if not vocabulary:
        raise ValueError(f"none of the {len(texts)} documents to fit on holds a word")
    terms, frequencies, counts = _most_frequent(counts, vocabulary, max_terms)
    idf = np.log((1 + len(texts)) / frequencies).astype(np.float32)
    axes, strengths = principal_axes(_tf_idf(counts, idf), dimension - 1)
    return _Space(dimension, terms, idf, axes * np.sqrt(strengths[0] / strengths))


def _counted(texts: Sequence[str]) -> tuple[Sparse, list[str]]:
    """Return how often each term stands in each text, and the terms as they were met."""
    vocabulary: dict[str, int] = {}
    starts, columns, times = array("q", [0]), array("q"), array("f")
    for text in texts:
        for term, count in Counter(analyze(text)).items():
            columns.append(vocabulary.setdefault(term, len(vocabulary)))
            times.append(count)
        starts.append(len(columns))
    counts = Sparse(
        np.array(starts, np.intp),
        np.array(columns, np.intp),
        np.array(times, np.float32),
        len(vocabulary),
    )
    return counts, list(vocabulary)


def _most_frequent(
    counts: Sparse, vocabulary: list[str], max_terms: int
) -> tuple[tuple[str, ...], NDArray[np.intp], Sparse]:
    """Return the terms of most documents in alphabetical order, their documents, their counts."""
    frequencies = np.bincount(counts.columns, minlength=counts.width)
    ranked = sorted(range(counts.width), key=lambda old: (-frequencies[old], vocabulary[old]))
    chosen = sorted(ranked[:max_terms], key=vocabulary.__getitem__)
    new_column = np.full(counts.width, -1, np.intp)
    new_column[chosen] = np.arange(len(chosen))
    columns = new_column[counts.columns]
    kept = columns >= 0
    sizes = np.bincount(counts.row_numbers()[kept], minlength=counts.height)
    starts = np.concatenate(([0], np.cumsum(sizes))).astype(np.intp)
    chosen_counts = Sparse(starts, columns[kept], counts.values[kept], len(chosen))
    return tuple(vocabulary[old] for old in chosen), frequencies[chosen], chosen_counts


def _tf_idf(counts: Sparse, idf: Floats) -> Sparse:
    """Return the weights (1 + log count) x idf, each row of length 1."""
    weights = (1 + np.log(counts.values)) * idf[counts.columns]
    rows = counts.row_numbers()
    squares = np.bincount(rows, weights=weights * weights, minlength=counts.height)
    values = weights / np.sqrt(squares).astype(np.float32)[rows]
    return Sparse(counts.starts, counts.columns, values, counts.width)


def _write(path: Path, space: _Space, max_terms: int) -> None:
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "dimension": space.dimension,
        "max_terms": max_terms,
    }
    buffer = io.BytesIO()
    np.savez(
        buffer,
        header=_bytes_array(json.dumps(header)),
        terms=_bytes_array("\n".join(space.terms)),
        idf=space.idf,
        projection=space.projection,
    )
    write_atomically(path, buffer.getvalue())


def _read(path: Path) -> tuple[_Space, int]:
    content = path.read_bytes()
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:  # checks each CRC
            header = json.loads(arrays["header"].tobytes())
            terms = tuple(arrays["terms"].tobytes().decode().split("\n"))
            space = _Space(header["dimension"], terms, arrays["idf"], arrays["projection"])
        written_by, max_terms = (header["format"], header["version"]), header["max_terms"]
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise VectorError(f"{path.name} is no LSA model, or is damaged") from error
    if written_by != (_FORMAT, _VERSION):
        raise VectorError(f"{path.name} was saved by another release: fit and save it again")
    return space, max_terms


def _bytes_array(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)

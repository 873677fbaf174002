"""The quality of retrieval: nDCG@10 and recall@100 on a folder of judged documents.

    make bench ARGS="retrieval --dataset DIR"

DIR has the layout of BEIR: `corpus.jsonl` (`_id`, `title`, `text`; also gzipped), `queries.jsonl`
(`_id`, `text`), `qrels.tsv` (a header, then query-id, corpus-id, score). Where it has `minilm.npz`
(`docs_int8`, `queries_f16`, rows in file order), dense and hybrid search use those vectors, else
those of LSA. The peer is bm25s with the same stop words and Snowball's stemmer. The interval is the
95 % one of a bootstrap over the queries; `beside` is the paired difference to the line above it.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib.vector import (
    InMemoryVectorStore,
    LSAEmbedder,
    PostgresVectorStore,
    Record,
    SQLiteVectorStore,
)
from lib.vector.text.analysis import analyze
from lib.vector.text.bm25 import BM25

K, DEPTH = 10, 100
Vectors: TypeAlias = NDArray[np.float32]
Found: TypeAlias = Mapping[str, Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Collection:
    """Documents, queries, and which document answers which query how well."""

    ids: list[str]
    texts: list[str]
    queries: dict[str, str]
    judged: dict[str, dict[str, int]]


def lines(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    plain, packed = folder / name, folder / f"{name}.gz"
    with plain.open("rb") if plain.exists() else gzip.open(packed, "rb") as file:
        for line in file:
            yield json.loads(line)


def read(folder: Path) -> Collection:
    documents = list(lines(folder, "corpus.jsonl"))
    judged: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        judged.setdefault(query, {})[document] = int(grade)
    return Collection(
        ids=[document["_id"] for document in documents],
        texts=[f"{found.get('title', '')} {found['text']}".strip() for found in documents],
        queries={query["_id"]: query["text"] for query in lines(folder, "queries.jsonl")},
        judged={query: grades for query, grades in judged.items() if any(grades.values())},
    )


def ndcg(found: Sequence[str], grades: dict[str, int]) -> float:
    """Source: Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, 2002."""
    gains = [grades.get(document, 0) for document in found[:K]]
    ideal = sorted(grades.values(), reverse=True)[:K]
    return discounted(gains) / discounted(ideal)


def discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(rank + 2) for rank, gain in enumerate(gains))


def recall(found: Sequence[str], grades: dict[str, int]) -> float:
    relevant = {document for document, grade in grades.items() if grade}
    return len(relevant.intersection(found[:DEPTH])) / len(relevant)


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the ends of the 95 % bootstrap interval of the mean."""
    drawn = np.random.default_rng(5).integers(0, len(values), (2_000, len(values)))
    low, high = np.percentile(values[drawn].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


class Report:
    """Prints one line for each way of searching."""

    def __init__(self, collection: Collection) -> None:
        self._judged = collection.judged
        self._gains: dict[str, NDArray[np.float64]] = {}
        print(f"{len(collection.ids)} documents, {len(self._judged)} judged queries")
        print(f"{'':30}{f'nDCG@{K}':>9}{'95 % interval':>17}{f'recall@{DEPTH}':>12}")

    def show(self, name: str, found: Found, *, beside: str | None = None) -> None:
        gains = np.array([ndcg(found[query], grades) for query, grades in self._judged.items()])
        recalled = np.mean([recall(found[query], grades) for query, grades in self._judged.items()])
        low, high = interval(gains)
        line = f"{name:30}{gains.mean():9.4f}{f'{low:.3f} to {high:.3f}':>17}{recalled:12.4f}"
        if beside is not None:
            worse, better = interval(gains - self._gains[beside])
            line += f"   beside {beside}: {worse:+.4f} to {better:+.4f}"
        self._gains[name] = gains
        print(line)


def lexical(collection: Collection) -> Found:
    index = BM25()
    for text in collection.texts:
        index.add(analyze(text))
    return {
        name: [collection.ids[row] for row, _ in index.ranked(analyze(text), DEPTH, collection.ids)]
        for name, text in collection.queries.items()
    }


async def searched(
    store: Any, collection: Collection, documents: Vectors, queries: Vectors
) -> tuple[Found, Found]:
    """Return what is found for each query, by vectors alone and with words."""
    await store.setup()
    rows = zip(collection.ids, documents, collection.texts, strict=True)
    await store.upsert([Record(name, vector, text) for name, vector, text in rows])
    dense: dict[str, Sequence[str]] = {}
    fused: dict[str, Sequence[str]] = {}
    for (name, text), vector in zip(collection.queries.items(), queries, strict=True):
        dense[name] = [match.id for match in await store.query(vector, DEPTH)]
        fused[name] = [match.id for match in await store.query_hybrid(vector, text, DEPTH)]
    await store.close()
    return dense, fused


def given_vectors(folder: Path) -> tuple[str, Vectors, Vectors] | None:
    if not (folder / "minilm.npz").exists():
        return None
    arrays = np.load(folder / "minilm.npz")
    return (
        "MiniLM",
        arrays["docs_int8"].astype(np.float32),
        arrays["queries_f16"].astype(np.float32),
    )


async def learned_vectors(collection: Collection) -> tuple[str, Vectors, Vectors]:
    embedder = LSAEmbedder()
    await embedder.fit(collection.texts)
    documents = await embedder.embed(collection.texts)
    queries = await embedder.embed(list(collection.queries.values()), purpose="query")
    return f"LSA-{embedder.dimension}", documents, queries


def stores(dimension: int, *, postgres: bool) -> dict[str, Callable[[], Any]]:
    compared: dict[str, Callable[[], Any]] = {
        "memory": InMemoryVectorStore,
        "SQLite": lambda: SQLiteVectorStore(dimension=dimension),
    }
    if postgres:
        sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
        url = import_module("servers.postgres").url()
        compared["PostgreSQL"] = lambda: PostgresVectorStore(url, dimension=dimension)
    return compared


async def main(folder: Path, *, postgres: bool) -> None:
    collection = read(folder)
    report = Report(collection)
    peers: Any = import_module("peers.retrieval")
    report.show("bm25s", peers.bm25s_found(collection.texts, collection.ids, collection.queries))
    report.show("BM25", lexical(collection), beside="bm25s")
    model, documents, queries = given_vectors(folder) or await learned_vectors(collection)
    for name, make in stores(documents.shape[1], postgres=postgres).items():
        dense, fused = await searched(make(), collection, documents, queries)
        report.show(f"{model}, {name}", dense)
        report.show(f"{model} + words, {name}", fused, beside=f"{model}, {name}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dataset", type=Path, required=True, metavar="DIR")
    parser.add_argument("--postgres", action="store_true", help="start a server, and compare it")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.dataset, postgres=arguments.postgres))

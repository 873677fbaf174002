"""How well texts are found: nDCG@10 on a folder of judged documents.

    .venv/bin/python benchmarks/retrieval.py DIR

DIR has the layout of BEIR: `corpus.jsonl` (`_id`, `title`, `text`; also gzipped), `queries.jsonl`
(`_id`, `text`), `qrels.tsv` (a header, then query-id, corpus-id, score). Where it has `minilm.npz`
(`docs_int8`, `queries_f16`, rows in file order), dense and hybrid search use those vectors.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib.vector import HybridStore, InMemoryVectorStore, LSAEmbedder, Record, SQLiteVectorStore
from lib.vector.analysis import analyze
from lib.vector.bm25 import BM25, best

K = 10
Vectors: TypeAlias = NDArray[np.float32]


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
        judged=judged,
    )


def ndcg(found: Sequence[str], grades: dict[str, int]) -> float:
    """Source: Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, 2002."""
    gains = [grades.get(document, 0) for document in found[:K]]
    ideal = sorted(grades.values(), reverse=True)[:K]
    return discounted(gains) / discounted(ideal) if any(ideal) else 0.0


def discounted(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(rank + 2) for rank, gain in enumerate(gains))


def report(name: str, collection: Collection, search: Callable[[str], Sequence[str]]) -> None:
    scores = [ndcg(search(query), grades) for query, grades in collection.judged.items()]
    print(f"{name:34} {np.mean(scores):.4f}")


def lexical(collection: Collection) -> dict[str, Sequence[str]]:
    index = BM25()
    for text in collection.texts:
        index.add(analyze(text))
    return {
        name: [collection.ids[row] for row in best(index.scores(analyze(text)), K, collection.ids)]
        for name, text in collection.queries.items()
    }


async def searched(
    store: HybridStore, collection: Collection, documents: Vectors, queries: Vectors
) -> tuple[dict[str, Sequence[str]], dict[str, Sequence[str]]]:
    """Return what is found for each query, by vectors alone and with words."""
    rows = zip(collection.ids, documents, collection.texts, strict=True)
    await store.upsert([Record(name, vector, text) for name, vector, text in rows])
    dense: dict[str, Sequence[str]] = {}
    fused: dict[str, Sequence[str]] = {}
    for (name, text), vector in zip(collection.queries.items(), queries, strict=True):
        dense[name] = [match.id for match in await store.query(vector, K)]
        fused[name] = [match.id for match in await store.query_hybrid(vector, text, K)]
    await store.close()
    return dense, fused


async def compare(name: str, collection: Collection, documents: Vectors, queries: Vectors) -> None:
    dimension = documents.shape[1]
    in_memory = await searched(InMemoryVectorStore(), collection, documents, queries)
    in_file = await searched(SQLiteVectorStore(dimension=dimension), collection, documents, queries)
    report(name, collection, in_memory[0].__getitem__)
    report(f"{name} + BM25, memory", collection, in_memory[1].__getitem__)
    report(f"{name} + FTS5, SQLite", collection, in_file[1].__getitem__)


async def main(folder: Path) -> None:
    collection = read(folder)
    print(f"{len(collection.ids)} documents, {len(collection.judged)} judged queries, nDCG@{K}")
    report("BM25", collection, lexical(collection).__getitem__)
    embedder = LSAEmbedder()
    await embedder.fit(collection.texts)
    documents = await embedder.embed(collection.texts)
    queries = await embedder.embed(list(collection.queries.values()), purpose="query")
    await compare(f"LSA-{embedder.dimension}", collection, documents, queries)
    given = folder / "minilm.npz"
    if given.exists():
        arrays = np.load(given)
        await compare(
            "MiniLM",
            collection,
            arrays["docs_int8"].astype(np.float32),
            arrays["queries_f16"].astype(np.float32),
        )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} DIR")
    asyncio.run(main(Path(sys.argv[1])))

"""Measures how well texts are found on judged documents: BM25, vectors, and fusions of both.

    make bench ARGS="retrieval --dataset DIR"
    make bench ARGS="retrieval --fusions --dataset DIR --dataset DIR ..."
    make bench ARGS="retrieval --made"
    make bench ARGS="retrieval --analysis --dataset DIR --stop-words FILE ..."

DIR has the layout of BEIR: `corpus.jsonl` (`_id`, `title`, `text`; also gzipped), `queries.jsonl`
(`_id`, `text`), `qrels.tsv` (a header, then query-id, corpus-id, score). Where it has `minilm.npz`
(`docs_int8`, `queries_f16`, rows in file order), dense and hybrid search use those vectors, else
those of LSA. The peer is bm25s with the same stop words and Snowball's stemmer. The interval is the
95 % one of a bootstrap over the queries; `beside` is the paired difference to the line above it.

`--fusions` compares each fusion with the better of words alone and vectors alone, and takes LSA
even where there is `minilm.npz`, beside it. `--made` does so on the collections of
`tests/made_collections.py`: one where words decide, one where meaning does, one mixed, of 600
queries each, from three seeds. `--analysis` leaves single letters or digits, or the words of a
longer list, out of BM25's queries, and shows the paired difference to Lucene's 33 stop words alone.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib.vector import (
    Fusion,
    InMemoryVectorStore,
    LSAEmbedder,
    PostgresVectorStore,
    Record,
    SQLiteVectorStore,
)
from lib.vector.text.analysis import analyze, query_words
from lib.vector.text.bm25 import BM25
from lib.vector.text.fusion import METHODS

K, DEPTH = 10, 100
SEEDS = (1, 2, 3)  # of made collections
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

    def __init__(
        self,
        judged: Mapping[str, dict[str, int]],
        documents: int,
        label: str,
        *,
        recalled: bool = True,
    ) -> None:
        self._judged, self._recalled = judged, recalled
        self._gains: dict[str, NDArray[np.float64]] = {}
        print(f"\n{label}: {documents} documents, {len(self._judged)} judged queries")
        last = f"{f'recall@{DEPTH}':>12}" if recalled else ""
        print(f"{'':30}{f'nDCG@{K}':>9}{'95 % interval':>17}{last}")

    def show(self, name: str, found: Found, *, beside: str | None = None) -> float:
        gains = np.array([ndcg(found[query], grades) for query, grades in self._judged.items()])
        low, high = interval(gains)
        line = f"{name:30}{gains.mean():9.4f}{f'{low:.3f} to {high:.3f}':>17}"
        if self._recalled:
            recalls = [recall(found[query], grades) for query, grades in self._judged.items()]
            line += f"{np.mean(recalls):12.4f}"
        if beside is not None:
            worse, better = interval(gains - self._gains[beside])
            change = float(np.mean(gains - self._gains[beside]))
            line += f"   beside {beside}: {change:+.4f} ({worse:+.4f} to {better:+.4f})"
        self._gains[name] = gains
        print(line)
        return float(gains.mean())


def lexical(collection: Collection, kept: Callable[[str], str] = query_words) -> Found:
    """Return what BM25 finds; `kept` leaves words out of queries."""
    index = BM25()
    for text in collection.texts:
        index.add(analyze(text))
    return {
        name: [
            collection.ids[row]
            for row, _ in index.ranked(analyze(kept(text)), DEPTH, collection.ids)
        ]
        for name, text in collection.queries.items()
    }


def without(words: str) -> Callable[[str], str]:
    """Return what leaves these words, a regular expression, out of a text."""
    word = re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])", re.IGNORECASE)
    return lambda text: word.sub(" ", text)


def compare_analyses(folders: Sequence[Path], lists: Sequence[Path]) -> None:
    variants = {
        "as it is": query_words,
        "no single letters": without("[a-z]"),
        "no single letters, digits": without("[a-z0-9]"),
    }
    for path in lists:
        words = path.read_text(encoding="utf-8").split()
        variants[f"{path.name} ({len(words)})"] = without("|".join(words))
    for folder in folders:
        collection = read(folder)
        report = Report(collection.judged, len(collection.ids), folder.name)
        report.show("33 stop words", lexical(collection, str))
        for name, kept in variants.items():
            report.show(name, lexical(collection, kept), beside="33 stop words")


async def compare_fusions(label: str, parts: Sequence[tuple[Collection, Vectors, Vectors]]) -> None:
    """Show words, vectors and each fusion of collections of one kind, beside the better part."""
    store, questions, judged = InMemoryVectorStore(), list[Question](), dict[str, dict[str, int]]()
    for number, (collection, documents, queries) in enumerate(parts):
        rows = zip(collection.ids, documents, collection.texts, strict=True)
        records = [Record(name, vector, text) for name, vector, text in rows]
        await store.upsert(records, namespace=f"part {number}")
        pairs = zip(collection.queries.items(), queries, strict=True)
        for (name, text), vector in pairs:
            if name in collection.judged:
                judged[f"{number} {name}"] = collection.judged[name]
                questions.append(Question(f"{number} {name}", f"part {number}", text, vector))
    count = sum(len(collection.ids) for collection, _, _ in parts)
    report = Report(judged, count, label, recalled=False)
    means = {
        "words": report.show("words", {one.name: await one.worded(store) for one in questions}),
        "vectors": report.show("vectors", {one.name: await one.near(store) for one in questions}),
    }
    better = max(means, key=means.__getitem__)
    for fusion in (*map(Fusion, METHODS), Fusion("convex", (0.3, 0.7))):
        found = {one.name: await one.fused(store, fusion) for one in questions}
        weights = "" if fusion.weights == (1.0, 1.0) else " {:g}:{:g}".format(*fusion.weights)
        report.show(fusion.method + weights, found, beside=better)


@dataclass(frozen=True)
class Question:
    """One query of one part."""

    name: str
    namespace: str
    text: str
    vector: NDArray[np.float32]

    async def worded(self, store: InMemoryVectorStore) -> list[str]:
        return ids(await store.query_keywords(self.text, K, namespace=self.namespace))

    async def near(self, store: InMemoryVectorStore) -> list[str]:
        return ids(await store.query(self.vector, K, namespace=self.namespace))

    async def fused(self, store: InMemoryVectorStore, fusion: Fusion) -> list[str]:
        found = await store.query_hybrid(
            self.vector, self.text, K, namespace=self.namespace, fusion=fusion
        )
        return ids(found)


def ids(found: Sequence[Any]) -> list[str]:
    return [match.id for match in found]


async def compare_folders(folders: Sequence[Path]) -> None:
    for folder in folders:
        collection = read(folder)
        learned = await learned_vectors(collection)
        for model, documents, queries in filter(None, (given_vectors(folder), learned)):
            await compare_fusions(f"{folder.name}, {model}", [(collection, documents, queries)])


async def compare_made() -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    module = import_module("made_collections")
    for kind in module.KINDS:
        parts = [as_collection(module.made_collection(kind, seed=seed)) for seed in SEEDS]
        await compare_fusions(f"made, {kind}", parts)


def as_collection(made: Any) -> tuple[Collection, Vectors, Vectors]:
    collection = Collection(
        ids=[f"{row:05}" for row in range(len(made.texts))],
        texts=made.texts,
        queries={str(number): text for number, text in enumerate(made.queries)},
        judged={
            str(number): {f"{row:05}": 1 for row in rows} for number, rows in enumerate(made.wanted)
        },
    )
    return collection, made.vectors, made.query_vectors


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
    report = Report(collection.judged, len(collection.ids), folder.name)
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
    parser.add_argument("--dataset", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--postgres", action="store_true", help="start a server, and compare it")
    parser.add_argument("--fusions", action="store_true", help="compare what fusions make of both")
    parser.add_argument("--made", action="store_true", help="compare them on made collections, too")
    parser.add_argument("--analysis", action="store_true", help="compare what BM25 leaves out")
    parser.add_argument("--stop-words", type=Path, action="append", default=[], metavar="FILE")
    arguments = parser.parse_args()
    if arguments.made:
        asyncio.run(compare_made())
    if arguments.fusions:
        asyncio.run(compare_folders(arguments.dataset))
    if arguments.analysis:
        compare_analyses(arguments.dataset, arguments.stop_words)
    if not (arguments.made or arguments.fusions or arguments.analysis):
        for folder in arguments.dataset:
            asyncio.run(main(folder, postgres=arguments.postgres))

"""Keyword search beside bm25s, rank_bm25, tantivy and FTS5: all in one process, in turns.

    make bench ARGS="bm25 --documents 100000"

Documents of about 40 terms from a Zipf vocabulary of 100,000 made-up words, queries of 2 to 5 of
them, any may match, the ten best are wanted. All engines are given the same terms, so that nothing
but the index is compared. `add` is one document until it is searchable: an engine that has to be
built again shows "rebuild". `same` is the share of the ten that plain BM25 in 64 bits finds, a tie
at the end counting as found.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from lib.vector.text.bm25 import BM25

K = 10
VOCABULARY = 100_000
SLOW = {"rank_bm25": 100_000}  # above so many documents it is left out


class Engine(Protocol):
    def query(self, terms: list[str]) -> list[int]: ...


@dataclass
class Ours:
    """The index of `InMemoryVectorStore`."""

    index: BM25
    ids: list[str]

    @classmethod
    def built(cls, documents: list[list[str]]) -> Ours:
        index = BM25()
        for terms in documents:
            index.add(terms)
        return cls(index, [f"{row:09}" for row in range(2 * len(documents))])

    def query(self, terms: list[str]) -> list[int]:
        return [row for row, _ in self.index.ranked(terms, K, self.ids)]

    def add(self, terms: list[str]) -> None:
        self.index.add(terms)

    def delete(self, row: int) -> None:
        self.index.remove(row)


def collection(documents: int, queries: int) -> tuple[list[list[str]], list[list[str]]]:
    noise = np.random.default_rng(11)
    chance = 1.0 / np.arange(1, VOCABULARY + 1) ** 1.07
    edges = np.cumsum(chance / chance.sum())
    words = np.array([f"w{number}" for number in range(VOCABULARY)], object)

    def drawn(sizes: Sequence[int]) -> Iterator[list[str]]:
        for size in sizes:
            yield words[np.searchsorted(edges, noise.random(size))].tolist()

    texts = list(drawn(np.clip(noise.poisson(40, documents), 5, None).tolist()))
    frequent = 50  # queries leave out the most frequent words, as stop words do
    term_lists = [
        words[frequent + noise.integers(0, 20_000, noise.integers(2, 6))].tolist()
        for _ in range(queries)
    ]
    return texts, term_lists


def truth(documents: list[list[str]], queries: list[list[str]]) -> list[dict[int, float]]:
    """Return the scores of the best documents for each query, with all ties at the end."""
    lengths = np.array([len(terms) for terms in documents], float)
    wanted = {term for query in queries for term in query}
    found: dict[str, dict[int, int]] = {term: {} for term in wanted}
    for row, terms in enumerate(documents):
        for term in terms:
            if term in wanted:
                found[term][row] = found[term].get(row, 0) + 1
    answers: list[dict[int, float]] = []
    for query in queries:
        scores: dict[int, float] = {}
        for term in query:
            rows = found[term]
            idf = np.log1p((len(documents) - len(rows) + 0.5) / (len(rows) + 0.5))
            for row, count in rows.items():
                length = 0.25 + 0.75 * lengths[row] / lengths.mean()
                scores[row] = scores.get(row, 0.0) + idf * count / (count + 1.2 * length)
        least = sorted(scores.values(), reverse=True)[:K][-1] if scores else 0.0
        answers.append({row: score for row, score in scores.items() if score >= least - 1e-4})
    return answers


def agreement(engine: Engine, queries: list[list[str]], answers: list[dict[int, float]]) -> float:
    shares = [
        len(set(engine.query(query)) & answer.keys()) / min(K, len(answer))
        for query, answer in zip(queries, answers, strict=True)
        if answer
    ]
    return float(np.mean(shares))


def milliseconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start)


def query_times(
    engines: dict[str, Engine], queries: list[list[str]], rounds: int
) -> dict[str, list[float]]:
    """Return the times of all queries in ms; in each round every engine has its turn."""
    times: dict[str, list[float]] = {name: [] for name in engines}
    for turn in range(-1, rounds):
        for name, engine in engines.items():
            for query in queries:
                spent = milliseconds(lambda engine=engine, query=query: engine.query(query))
                if turn >= 0:  # the round before the first one warms up
                    times[name].append(spent)
    return times


def change_times(engine: Any, documents: list[list[str]]) -> tuple[str, str]:
    """Return the medians, in ms, of adding a document until it is searchable and of a delete."""
    if not hasattr(engine, "add"):
        return "rebuild", "rebuild"
    adds = [milliseconds(lambda row=row: engine.add(documents[row])) for row in range(50)]
    deletes = [milliseconds(lambda row=row: engine.delete(row)) for row in range(50)]
    return f"{np.median(adds):.3f}", f"{np.median(deletes):.3f}"


def main(arguments: argparse.Namespace) -> None:
    documents, term_lists = collection(arguments.documents, arguments.queries)
    answers = truth(documents, term_lists)
    peers: Any = import_module("peers.bm25")
    makers: dict[str, Callable[[list[list[str]]], Any]] = {"lib": Ours.built, **peers.ENGINES}
    engines: dict[str, Any] = {}
    rates: dict[str, float] = {}
    for name, make in makers.items():
        if len(documents) > SLOW.get(name, len(documents)):
            continue
        start = time.perf_counter()
        engines[name] = make(documents)
        rates[name] = len(documents) / (time.perf_counter() - start)
    times = query_times(engines, term_lists, arguments.rounds)
    ours = float(np.median(times["lib"]))
    print(f"{len(documents):,} documents, {len(term_lists)} queries, top {K}, times in ms")
    print(
        f"{'':12}{'query':>9}{'ratio':>8}{'p99':>9}{'add':>9}{'delete':>9}{'docs/s':>10}{'same':>7}"
    )
    for name, engine in engines.items():
        middle = float(np.median(times[name]))
        same = agreement(engine, term_lists, answers)
        add, delete = change_times(engine, documents)
        print(
            f"{name:12}{middle:9.3f}{middle / ours:7.2f}x{np.percentile(times[name], 99):9.3f}"
            f"{add:>9}{delete:>9}{rates[name]:10,.0f}{same:7.3f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    main(parser.parse_args())

"""Made collections of texts with vectors: words decide, meaning decides, or now one, now the other.

Ten documents share a topic, which is a direction. A document's vector is its topic and noise; its
text has 15 to 60 common words (Zipf's law), 6 words of its topic, a name that some eight documents
of any topic have, and a name that three or so of its topic have. Queries have 6 common words each,
and

- `words`: a name. The documents with that name are wanted. Of a name of many topics the vector
  knows nothing, of one within a topic it knows the topic.
- `meaning`: nothing else. The documents of a topic are wanted, which the vector knows.
- `mixed`: a third of either kind; the last third has two words of the topic that is wanted, and a
  vector that knows it with more noise.

The noise of a query's vector is 1.5 to 3.5 times the topic, of a document's 1.5 times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Kind = Literal["words", "meaning", "mixed"]
KINDS: tuple[Kind, ...] = ("words", "meaning", "mixed")
Floats: TypeAlias = NDArray[np.float32]

_COMMON, _COMMON_OF_QUERY = 400, 6
_OF_TOPIC, _OF_NAME, _NAMES_OF_TOPIC = 10, 8, 3


@dataclass(frozen=True, kw_only=True)
class MadeCollection:
    """Documents, queries, and which documents are wanted for each query.

    Attributes:
        vectors: of the documents, one row each.
        query_vectors: of the queries.
        wanted: the rows of documents, for each query.
    """

    texts: list[str]
    vectors: Floats
    queries: list[str]
    query_vectors: Floats
    wanted: list[set[int]]


def made_collection(
    kind: Kind, *, documents: int = 2_000, queries: int = 200, dimension: int = 384, seed: int = 1
) -> MadeCollection:
    """Return a collection; the same arguments make the same one."""
    random = np.random.default_rng([seed, KINDS.index(kind)])
    share = 1.0 / np.arange(1, _COMMON + 1)

    def common(count: int) -> list[str]:
        drawn = random.choice(_COMMON, size=count, p=share / share.sum())
        return [f"common{word}" for word in drawn]

    def noisy(topic: int | None, noise: float) -> NDArray[np.float64]:
        direction = 0.0 if topic is None else directions[topic]
        return direction + noise * random.normal(size=dimension)

    directions = random.normal(size=(documents // _OF_TOPIC, dimension))
    topics = [row % len(directions) for row in range(documents)]
    names = [
        (
            f"name{random.integers(documents // _OF_NAME)}",
            f"n{topic}x{random.integers(_NAMES_OF_TOPIC)}",
        )
        for topic in topics
    ]
    texts = [
        [*common(int(random.integers(15, 61))), *_topical(random, topic, 6), *own]
        for topic, own in zip(topics, names, strict=True)
    ]
    vectors = [noisy(topic, 1.5) for topic in topics]
    worded, query_vectors, wanted = list[list[str]](), list[NDArray[np.float64]](), list[set[int]]()
    for number in range(queries):
        row, noise = int(random.integers(documents)), random.uniform(1.5, 3.5)
        part = kind if kind != "mixed" else ("words", "meaning", "both")[number % 3]
        same = {each for each, topic in enumerate(topics) if topic == topics[row]}
        if part == "words":
            place = number % 2
            row_topic = topics[row] if place else None
            wanted.append(
                {each for each, own in enumerate(names) if own[place] == names[row][place]}
            )
            worded.append([*common(_COMMON_OF_QUERY), names[row][place]])
        else:
            row_topic = topics[row]
            wanted.append(same)
            more = _topical(random, row_topic, 2) if part == "both" else []
            noise = noise + 1.0 if part == "both" else noise
            worded.append([*common(_COMMON_OF_QUERY), *more])
        query_vectors.append(noisy(row_topic, noise))
    return MadeCollection(
        texts=[" ".join(words) for words in texts],
        vectors=np.array(vectors, np.float32),
        queries=[" ".join(words) for words in worded],
        query_vectors=np.array(query_vectors, np.float32),
        wanted=wanted,
    )


def _topical(random: np.random.Generator, topic: int, count: int) -> list[str]:
    return [f"topic{topic}w{word}" for word in random.integers(8, size=count)]

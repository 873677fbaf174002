"""Adaptive fusion: decides from the two lists of one search how much vectors count.

1. Evidence: how far a score stands above the last of its list, in units of the list's own tail. The
   tail, all but the best fifth, is taken for chance, whose high scores fall off exponentially: by
   chance the first of a hundred has an evidence of about 5, whatever the scores are. Words stop at
   the score 0 of texts that lack them all; no evidence is above 12.
2. Agreement: the mean evidence that each list has for the ten best of the other. Lists that agree
   (1 or more) both speak of the query, and evidence is added, that of vectors counting 0.4: where
   vectors are poor, more loses to words alone, and where they are good, it gains little more.
3. Lists that disagree (0.2 or less) do not both speak of it, and adding them would shuffle good
   results with others. Vectors are then believed if they look sound: their ten nearest are near
   each other beyond what being near the query explains (by 3 standard errors), the first five
   stand out (three quarters of what chance has: cramped vectors have less), and words do not stand
   out 2.5 times as far. They count twenty times then, and 0.4 as before if not. In between, the
   weight slides.

The numbers were set on SciFact, Cranfield, NPL and CISI, with embeddings of MiniLM (SciFact only),
LSA of 256 and of 24 dimensions, and noise in their place, and on made collections.
`benchmarks/retrieval.py` measures what comes of them.

Source: R. A. Fisher, Statistical methods for research workers, 4th ed., 1932 (sums of logarithms
of probabilities); A. Arampatzis, S. Robertson, Modeling score distributions in information
retrieval, 2011 (exponential tails).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, TypeAlias

Evidence: TypeAlias = Mapping[str, float]

_AGREED_WEIGHT: Final = 0.4
_BELIEVED_WEIGHT: Final = 20.0
_DISAGREE, _AGREE = 0.2, 1.0
_MOST: Final = 12.0
_BEST, _FIRST = 10, 5
_COHERENT: Final = 3.0
_STANDS_OUT: Final = 0.75  # of what chance has
_FURTHER: Final = 2.5


def evidence(found: Sequence[tuple[str, float]], count: int) -> Evidence:
    """Return what the scores of a list say for each id: 0 for its last.

    Args:
        found: ids with their scores, higher being better, best first.
        count: of how many the list is; those that it lacks have a score of 0.
    """
    scores = [score for _, score in found] + [0.0] * (count - len(found))
    if not scores:
        return {}
    least, start, chance = scores[-1], len(scores) // 5, _by_chance(len(scores))
    unit = _mean([score - least for score in scores[start:]]) / _mean(chance[start:])
    unit = max(unit, (scores[0] - least) / _MOST)
    return {name: (score - least) / unit if unit else 0.0 for name, score in found}


def weight_of_vectors(near: Evidence, worded: Evidence, coherence: float) -> float:
    """Return how much the evidence of vectors counts where that of words counts 1.

    Args:
        near: the nearest vectors, best first.
        worded: the best texts, best first.
        coherence: of the nearest vectors.
    """
    if not near or not worded:
        return 1.0
    support = [_mean([one.get(name, 0.0) for name in list(other)[:_BEST]])
               for one, other in ((near, worded), (worded, near))]  # fmt: skip
    slide = (_mean(support) - _DISAGREE) / (_AGREE - _DISAGREE)
    agreement = min(max(slide, 0.0), 1.0)
    alone = _BELIEVED_WEIGHT if _sound(near, worded, coherence) else _AGREED_WEIGHT
    return _AGREED_WEIGHT**agreement * alone ** (1.0 - agreement)


def _sound(near: Evidence, worded: Evidence, coherence: float) -> bool:
    first, words = (_mean(list(each.values())[:_FIRST]) for each in (near, worded))
    chance = _mean(_by_chance(len(near))[:_FIRST])
    return coherence > _COHERENT and first > _STANDS_OUT * chance and first * _FURTHER > words


def _by_chance(count: int) -> list[float]:
    """Return the evidence that each place of a list has if scores fall off exponentially."""
    return list(accumulate(1.0 / rank for rank in range(count, 0, -1)))[::-1]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)

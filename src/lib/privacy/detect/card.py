"""Numbers of payment cards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from lib.privacy.detect.finding import Finding

# Digits with at most one space or hyphen between two of them; not inside a word or a number.
_RUN: Final = re.compile(r"(?<![\w.])[0-9](?:[ -]?[0-9])+(?![\w]|\.[0-9])")
_GROUP: Final = re.compile(r"[0-9]+")
_MIN, _MAX = 13, 19

# Source: ISO/IEC 7812-1; the issuers' ranges as of 2024: first digits from, to, and lengths.
_ISSUERS: Final = (
    ("4", "4", (13, 16, 19)),  # Visa
    ("51", "55", (16,)),  # Mastercard
    ("2221", "2720", (16,)),
    ("34", "34", (15,)),  # American Express
    ("37", "37", (15,)),
    ("6011", "6011", range(16, 20)),  # Discover
    ("644", "659", range(16, 20)),
    ("3528", "3589", range(16, 20)),  # JCB
    ("300", "305", range(14, 20)),  # Diners Club
    ("3095", "3095", range(14, 20)),
    ("36", "36", range(14, 20)),
    ("38", "39", range(14, 20)),
    ("62", "62", range(16, 20)),  # UnionPay
    ("81", "82", (16,)),  # RuPay
    ("508", "508", (16,)),
    ("60", "60", (16,)),
    ("2200", "2204", range(16, 20)),  # Mir
    ("50", "50", range(13, 20)),  # Maestro
    ("56", "58", range(13, 20)),
    ("63", "63", range(13, 20)),
    ("67", "67", range(13, 20)),
)
_DOUBLED: Final = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)


class CardDetector:
    """Finds 13 to 19 digits of an issuer's range and length whose check digit is right.

    Source: ISO/IEC 7812-1, annex B (Luhn).
    """

    kinds = frozenset({"card"})

    def find(self, text: str) -> Iterator[Finding]:
        """Yield the numbers."""
        for run in _RUN.finditer(text):
            digits = run[0].replace(" ", "").replace("-", "")
            if len(digits) >= _MIN:
                for start, end in _cards(run[0], digits):
                    yield Finding("card", run.start() + start, run.start() + end)


def _cards(run: str, digits: str) -> Iterator[tuple[int, int]]:
    """Yield the parts of a run of groups that begin and end with a group and are a card."""
    groups = [group.span() for group in _GROUP.finditer(run)]
    # Where each group ends, counted in digits, gives the length of any row of groups at once.
    ends = [0, *accumulate(end - start for start, end in groups)]
    luhn = _Luhn(digits)
    for first, (start, _) in enumerate(groups):
        lengths = _lengths(digits[ends[first] : ends[first] + 4])
        for last in range(first, min(first + _MAX, len(groups)) if lengths else first):
            length = ends[last + 1] - ends[first]
            if length > _MAX:
                break
            if length in lengths and luhn.holds(ends[first], ends[last + 1]):
                yield start, groups[last][1]


def _lengths(head: str) -> frozenset[int]:
    return frozenset(
        length
        for low, high, lengths in _ISSUERS
        if low <= head[: len(low)] <= high
        for length in lengths
    )


class _Luhn:
    """Answers for every part of a number whether its check digit is right, in constant time."""

    def __init__(self, digits: str) -> None:
        values = [int(digit) for digit in digits]
        self._sums = [
            [0, *accumulate(_DOUBLED[v] if n % 2 == odd else v for n, v in enumerate(values))]
            for odd in (0, 1)
        ]

    def holds(self, start: int, end: int) -> bool:
        """Tell of the digits from `start` to `end`: every second one from the right is doubled."""
        sums = self._sums[end % 2]
        return (sums[end] - sums[start]) % 10 == 0

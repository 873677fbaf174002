"""Numbers of payment cards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from lib.privacy.detect.finding import Finding

# What people put between groups: spaces of every width and hyphens of every kind are among it.
_GAPS: Final = " .,:/|_*\t\xa0\xb7\u2002-\u200a\u2010-\u2015\u202f\u2212\u2022-"
# Digits in groups, between which is one of these; not inside a word or a fraction.
_RUN: Final = re.compile(rf"(?<![^\W_])[0-9]+(?:[{_GAPS}][0-9]+)*(?![^\W_])")
_GROUP: Final = re.compile(r"[0-9]+")
_MIN, _MAX = 13, 19
_MAX_GROUPS: Final = 9
"""Of a row in which a card is looked for; longer ones are tables."""
_ANNOUNCED: Final = re.compile(
    r"(?i)(?:card|visa|maestro|amex|diners|karte|carte|tarjeta|credit|debit|\bcc|\bpan)"
    r"[^\n]{0,24}\Z"
)

# How issuers print numbers, in digits by group: of 16, 19, 18 and 17, American Express, Diners,
# UnionPay, the old Visa, and what people write.
_GROUPINGS: Final = frozenset(
    {
        *((4, 4, 4, 4), (4, 4, 4, 4, 3), (4, 4, 4, 4, 2), (4, 4, 4, 4, 1), (4, 6, 5), (4, 6, 4)),
        *((6, 13), (4, 3, 3, 3), (8, 8), (4, 4, 4, 3), (4, 4, 4, 2)),
    }
)
_COUNTS: Final = sorted({len(grouping) for grouping in _GROUPINGS})

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
_NO_GAPS: Final = re.compile("[^0-9]")
_DOUBLED: Final = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)


class CardDetector:
    """Finds 13 to 19 digits of an issuer's range and length whose check digit is right.

    They are in one piece or in the groups that issuers print. Numbers of articles have 13 digits,
    too: such a number in one piece counts after a word for a card only. One number in ten of those
    that begin as a card's has the right check digit by chance: no pattern can tell it from a card.

    Source: ISO/IEC 7812-1, annex B (Luhn).
    """

    kinds: frozenset[str] = frozenset({"card"})

    def find(self, text: str) -> Iterator[Finding]:
        """Yield the numbers."""
        for run in _RUN.finditer(text):
            if run.end() - run.start() >= _MIN:
                for start, end in _rows(text, *run.span()):
                    if _is_card(text, start, end):
                        yield Finding("card", start, end)


def _rows(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a run of groups that are written as a card is."""
    groups = [group.span() for group in _GROUP.finditer(text, start, end)]
    tidy = len(groups) <= _MAX_GROUPS
    for first, (begin, stop) in enumerate(groups):
        if _MIN <= stop - begin <= _MAX and not _goes_on(text, begin, stop, "."):
            yield begin, stop
        for count in _COUNTS if tidy else ():
            row = groups[first : first + count]
            lengths = tuple(until - since for since, until in row)
            if lengths in _GROUPINGS and _is_even(text, row):
                yield begin, row[-1][1]


def _is_even(text: str, row: list[tuple[int, int]]) -> bool:
    """Return True if one separator stands between all groups and, but for a space, not around."""
    start, end, between = row[0][0], row[-1][1], {text[until] for _, until in row[:-1]}
    separator = between.pop()
    return not between and (separator.isspace() or not _goes_on(text, start, end, separator))


def _goes_on(text: str, start: int, end: int, separator: str) -> bool:
    """Return True if a digit follows on a separator, before or after."""
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    return (before[1:] == separator and before[:1].isdigit()) or (
        after[:1] == separator and after[1:].isdigit()
    )


def _is_card(text: str, start: int, end: int) -> bool:
    digits = _NO_GAPS.sub("", text[start:end])
    if len(digits) not in _lengths(digits[:4]) or not _luhn(digits):
        return False
    return len(digits) != end - start or len(digits) > _MIN or _is_announced(text, start)


def _is_announced(text: str, start: int) -> bool:
    return _ANNOUNCED.search(text, max(0, start - 40), start) is not None


@cache
def _lengths(head: str) -> frozenset[int]:
    return frozenset(
        length
        for low, high, lengths in _ISSUERS
        if low <= head[: len(low)] <= high
        for length in lengths
    )


def _luhn(digits: str) -> bool:
    """Return True if the check digit is right: every second digit from the right is doubled."""
    total = sum(map(int, digits[-1::-2])) + sum(_DOUBLED[int(digit)] for digit in digits[-2::-2])
    return total % 10 == 0

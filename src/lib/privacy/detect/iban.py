"""International bank account numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from lib.privacy.detect.finding import Finding

# Source: SWIFT, IBAN registry, release 99 (2024): length by country.
_LENGTHS: Final = {
    country: int(length)
    for length, countries in {
        "15": "NO",
        "16": "BE",
        "18": "DK FI FO GL NL SD FK",
        "19": "MK SI",
        "20": "AT BA EE KZ LT LU MN XK",
        "21": "CH HR LI LV",
        "22": "BG BH CR DE GB GE IE ME RS VA",
        "23": "AE GI IL IQ OM SO TL",
        "24": "AD CZ ES MD PK RO SA SE SK TN VG",
        "25": "LY PT ST",
        "26": "IS TR",
        "27": "BI DJ FR GR IT MC MR SM",
        "28": "AL AZ BY CY DO GT HN HU LB NI PL SV",
        "29": "BR EG PS QA UA",
        "30": "JO KW MU YE",
        "31": "MT SC",
        "32": "LC",
        "33": "RU",
    }.items()
    for country in countries.split()
}
# What people put between groups: spaces of every width and hyphens of every kind are among it.
_GAP: Final = r"[ .,:/|_*\t\xa0\xb7\u2002-\u200a\u2010-\u2015\u202f\u2212\u2022-]?"
_START: Final = re.compile(rf"(?<![A-Za-z0-9])[A-Za-z]{{2}}{_GAP}[0-9]{{2}}(?={_GAP}[A-Za-z0-9])")
_REST: Final = re.compile(rf"{_GAP}[A-Za-z0-9]")


class IBANDetector:
    """Finds numbers of a country's length whose remainder is right.

    One separator may stand between groups.

    Source: ISO 13616-1:2020; ISO/IEC 7064, MOD 97-10.
    """

    kinds: frozenset[str] = frozenset({"iban"})

    def find(self, text: str) -> Iterator[Finding]:
        """Yield the numbers."""
        for start in _START.finditer(text):
            length = _LENGTHS.get(start[0][:2].upper())
            if length is not None:
                end = _end(text, start.end(), length - 4)
                if end and _is_right(text[start.start() : end]):
                    yield Finding("iban", start.start(), end)


def _end(text: str, place: int, missing: int) -> int:
    """Return where so many more letters and digits end, 0 if they do not end there."""
    for _ in range(missing):
        step = _REST.match(text, place)
        if step is None:
            return 0
        place = step.end()
    return 0 if text[place : place + 1].isalnum() else place


def _is_right(written: str) -> bool:
    compact = "".join(filter(str.isalnum, written)).upper()
    return int("".join(str(int(char, 36)) for char in compact[4:] + compact[:4])) % 97 == 1

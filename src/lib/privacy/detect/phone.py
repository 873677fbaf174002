"""Telephone numbers: international, national as people write them, and bare after a word for one.

Digits alone are order numbers as often as telephone numbers: they count only after such a word,
or where they begin as mobile numbers do in the countries that write them so.
Dates, IP addresses, versions and amounts are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from lib.privacy.detect.finding import Finding

# Source: ITU-T E.164 (11/2010), 6.2.1: at most 15 digits; list of assigned country codes (2016).
_COUNTRY: Final = (
    r"(?:1|7|2(?:0|7|1[1-368]|2\d|3\d|4\d|5[0-8]|6\d|9[017-9])|3(?:[0-4]|5\d|6|7\d|8[0-35-79]|9)"
    r"|4(?:[013-9]|2[013])|5(?:[1-8]|0\d|9\d)|6(?:[0-6]|7[02-9]|8[0-35-9]|9[0-2])"
    r"|8(?:[1246]|00|08|5[02356]|7[08]|8[0-8])|9(?:[0-58]|6[0-8]|7[0-79]|9[2-68]))"
)
_GAP: Final = r"[ .()/\u2010-\u2015-]{0,3}"
_END: Final = r"(?![\w]|[.-]\d)"
_BEFORE: Final = r"(?<![\w+])(?<!\d[.,/:-])"
_WORD: Final = (
    r"(?:phone|mobile|cell(?:phone)?|fax|tel(?:ephone|efono|\xe9fono|\xe9phone|efon)?|call|dial"
    r"|whatsapp|sms|handy|mobil|rufnummer|m\xf3vil)"
)
_FORMS: Final = (
    # +49 30 1234567, +1 (415) 555-2671, 0049 30 1234567
    re.compile(rf"{_BEFORE}(?:\+|\(\+|00(?=[1-9])){_GAP}{_COUNTRY}(?:{_GAP}\d){{6,12}}{_END}"),
    # Source: North American Numbering Plan: (415) 555-2671, 415.555.2671
    re.compile(
        rf"{_BEFORE}(?:1[ .-])?(?:\([2-9]\d\d\) ?|[2-9]\d\d[ .-])[2-9]\d\d[ .-]\d{{4}}{_END}"
    ),
    # A trunk prefix 0, as most of Europe has it: 030 1234567, 0151/12345678, (020) 7946 0958
    re.compile(rf"{_BEFORE}\(?0[1-9]\d{{0,4}}\)?(?: ?[ /-] ?\d{{2,8}}){{1,4}}{_END}"),
    re.compile(rf"{_BEFORE}0[1-9](?:[ .-]\d\d){{4}}{_END}"),  # 01 23 45 67 89
    # Mobile numbers in one piece, of the United Kingdom and of Germany: 07911123456, 015112345678
    re.compile(rf"{_BEFORE}(?:07[1-57-9]\d{{8}}|01[567]\d{{8,9}}){_END}"),
)
_ANNOUNCED: Final = re.compile(
    rf"(?i)(?<!\w){_WORD}(?: ?(?:no|nr|number|nummer|me|us))?[.:=#]{{0,2}} {{0,3}}"
    rf"(?:(?:at|on|is) )?(\+?\d(?:{_GAP}\d){{6,14}}){_END}"
)
_INTERNATIONAL_DIGITS: Final = range(8, 16)
_AT_LEAST, _AT_LEAST_ANNOUNCED, _MAX_NATIONAL = 9, 7, 12
# A number of an order or a case, with its year: 09-2024-559408
_CASE: Final = re.compile(r"0\d[-/](?:19|20)\d\d[-/]")
_DATE: Final = re.compile(
    r"(?:0?[1-9]|[12]\d|3[01])([./-])(?:0?[1-9]|[12]\d|3[01])\1(?:19|20)?\d\d(?!\d|\1\d\d\1)"
)


class PhoneDetector:
    """Finds numbers of 7 to 15 digits that are written as telephone numbers."""

    kinds: frozenset[str] = frozenset({"phone"})

    def find(self, text: str) -> Iterator[Finding]:
        """Yield the numbers."""
        for form in _FORMS:
            for found in form.finditer(text):
                if _is_number(found[0]):
                    yield Finding("phone", *found.span())
        for found in _ANNOUNCED.finditer(text):
            if _is_number(found[1], announced=True):
                yield Finding("phone", *found.span(1))


def _is_number(written: str, *, announced: bool = False) -> bool:
    digits = sum(char.isdigit() for char in written)
    if written.startswith("00"):  # in one piece it is a number that was filled up with zeros
        return digits - 2 in _INTERNATIONAL_DIGITS and (announced or digits != len(written))
    if written.startswith(("+", "(+")):
        return digits in _INTERNATIONAL_DIGITS
    dated = _DATE.match(written) or _CASE.match(written)
    return (
        _AT_LEAST_ANNOUNCED if announced else _AT_LEAST
    ) <= digits <= _MAX_NATIONAL and not dated

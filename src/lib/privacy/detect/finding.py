"""Findings of detectors, and the rule for two that overlap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol


class Finding(NamedTuple):
    """A piece of a text that is secret or personal.

    Attributes:
        kind: what it is: "secret", "card", "iban", "email", "phone", or a detector's own word.
        start: where it begins, in characters.
        end: where it ends; the character there is no part of it.
    """

    kind: str
    start: int
    end: int


class Detector(Protocol):
    """Finds some kinds of content: pure, the same for the same text, in linear time.

    It gets the text as it is written and, where that differs, once more as it reads: without
    invisible characters, in NFKC, with ASCII digits; and where it has JSON escapes, with these
    read. What it finds may overlap.
    """

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of its findings, in lower case: letters, digits and underscores."""
        ...

    def find(self, text: str) -> Iterable[Finding]:
        """Yield what it finds."""
        ...


def resolve(findings: Iterable[Finding], order: Sequence[str]) -> list[Finding]:
    """Return findings that do not overlap, in the order of the text.

    The longest counts, of equal ones the earliest, then the one whose kind comes first in `order`.
    """
    place = {kind: number for number, kind in enumerate(order)}
    ranked = sorted(
        {found for found in findings if found.start < found.end},
        key=lambda f: (f.start - f.end, f.start, place.get(f.kind, len(place)), f.kind),
    )
    kept: list[Finding] = []
    taken = bytearray(max((found.end for found in ranked), default=0))
    for found in ranked:
        # Longer ones came first, so whatever overlaps this one holds its first or last character.
        if not taken[found.start] and not taken[found.end - 1]:
            taken[found.start : found.end] = b"\x01" * (found.end - found.start)
            kept.append(found)
    return sorted(kept, key=lambda f: f.start)

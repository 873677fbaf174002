"""All detectors over one text: as it is written, as it reads, and without JSON escapes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from lib.privacy.detect.escapes import Unescaped, levels
from lib.privacy.detect.finding import Detector, Finding, resolve
from lib.privacy.detect.plain import Plain


def find(text: str, detectors: Sequence[Detector]) -> list[Finding]:
    """Return what stands in the text, without overlaps, in its order; see `resolve`.

    Nothing is found inside a placeholder of these detectors, nor across one, and no finding begins
    or ends within a JSON escape.
    """
    order = [kind for detector in detectors for kind in sorted(detector.kinds)]
    found = set(_everywhere(text, detectors))
    if found:
        found = _outside(found, [each.span() for each in placeholder(order).finditer(text)])
    return resolve(found, order)


def placeholder(kinds: Iterable[str]) -> re.Pattern[str]:
    """Return the pattern of what stands for findings of these kinds, and for a whole text."""
    words = "|".join(sorted({re.escape(kind.upper()) for kind in kinds} | {"REDACTED"}))
    return re.compile(rf"\[(?:{words})(?::[0-9a-f]{{8}})?\]")


def _everywhere(text: str, detectors: Sequence[Detector]) -> Iterator[Finding]:
    read = list(levels(text))
    yield from _whole(_as_written(text, detectors), read, read)
    for depth, each in enumerate(read, 1):
        yield from _whole(_as_it_reads(each.text, detectors), read[depth:], read)


def _as_written(text: str, detectors: Sequence[Detector]) -> Iterator[Finding]:
    for detector in detectors:
        yield from detector.find(text)
    if not text.isascii() and Plain(text).text != text:
        yield from _as_it_reads(text, detectors)


def _as_it_reads(text: str, detectors: Sequence[Detector]) -> Iterator[Finding]:
    plain = Plain(text)
    for detector in detectors:
        for found in detector.find(plain.text):
            yield Finding(found.kind, *plain.written(found.start, found.end))


def _whole(
    findings: Iterable[Finding], above: Sequence[Unescaped], every: Sequence[Unescaped]
) -> Iterator[Finding]:
    """Yield those that begin within no escape, where they stand in the text as it was written.

    The others are letters of escapes: where there is something, a level above has it, too.

    Args:
        findings: in the text of one level.
        above: the levels above it.
        every: all levels.
    """
    for kind, *found in findings:
        span: tuple[int, int] | None = (found[0], found[1])
        for level in above:
            span = level.read(*span) if span is not None else None
        if span is not None:
            for level in reversed(every):
                span = level.written(*span)
            yield Finding(kind, *span)


def _outside(found: set[Finding], kept: Sequence[tuple[int, int]]) -> set[Finding]:
    """Return the findings that touch none of the spans; both are walked once, in order."""
    outside: set[Finding] = set()
    place = 0
    for each in sorted(found, key=lambda f: f.start):
        while place < len(kept) and kept[place][1] <= each.start:
            place += 1
        if place == len(kept) or kept[place][0] >= each.end:
            outside.add(each)
    return outside

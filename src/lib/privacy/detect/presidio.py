"""Findings of Microsoft Presidio, which recognizes names and places by a language model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

from lib.privacy.detect.finding import Finding

ENTITIES: Final = (
    "PERSON",
    "LOCATION",
    "EMAIL_ADDRESS",
    "PHONE_NUMBER",
    "CREDIT_CARD",
    "IBAN_CODE",
)
_OURS: Final = {
    "EMAIL_ADDRESS": "email",
    "PHONE_NUMBER": "phone",
    "CREDIT_CARD": "card",
    "IBAN_CODE": "iban",
}


class Analyzer(Protocol):
    """The one method used of a `presidio_analyzer.AnalyzerEngine`."""

    def analyze(self, text: str, language: str, entities: list[str] | None = None) -> Sequence[Any]:
        """Return results with `entity_type`, `start`, `end` and `score`."""
        ...


class PresidioDetector:
    """Uses an analyzer that you have set up, with the model of your choice.

    It is as fast as the model, and as repeatable: another version of the model may find other
    names in the same text. Install `lib-agents[presidio]`.

    Source: presidio-analyzer 2.2, `AnalyzerEngine.analyze` and `RecognizerResult`.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        language: str = "en",
        entities: Sequence[str] = ENTITIES,
        *,
        min_score: float = 0.5,
    ) -> None:
        """Take an analyzer.

        Args:
            analyzer: usually a `presidio_analyzer.AnalyzerEngine`.
            language: of the texts, as the analyzer calls it.
            entities: what to look for, in Presidio's words; kinds are those in lower case, or ours
                where we have one.
            min_score: from 0 to 1; what the analyzer is less sure of is no finding.
        """
        self._analyzer = analyzer
        self._language = language
        self._entities = list(entities)
        self._min_score = min_score
        self.kinds: frozenset[str] = frozenset(map(_kind, entities))

    def find(self, text: str) -> Iterator[Finding]:
        """Yield what the analyzer finds."""
        if not text:
            return
        results = self._analyzer.analyze(text, self._language, entities=list(self._entities))
        for result in results:
            if result.score >= self._min_score:
                yield Finding(_kind(result.entity_type), int(result.start), int(result.end))


def _kind(entity: str) -> str:
    return _OURS.get(entity, entity.lower())

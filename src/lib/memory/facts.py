"""Facts: what is remembered of a person, and the words by which two of them are the same. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from lib._util.json import digest
from lib.content.hygiene import clean

MAX_TEXT_CHARS: Final = 500
MAX_KEY_CHARS: Final = 80
MAX_SOURCES: Final = 32

_EDGES: Final = "\"'“”‘’«»()[]{}<>.,;:!?…*_`"  # noqa: RUF001 - the quotation marks of people
_NEGATION_WORDS: Final = """
not no never none nothing nobody neither nor without cannot hardly
nicht kein keine keinen keiner keinem nie niemals ohne ne pas jamais aucun aucune sans
sin nunca jamás ningún ninguna non mai senza não nem sem geen niet nooit zonder
"""
_NEGATIONS: Final = frozenset(_NEGATION_WORDS.split())
_FILLER_WORDS: Final = "a an the is are am was were be that of my your his her user user's"
_FILLERS: Final = frozenset(_FILLER_WORDS.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that is remembered.

    Attributes:
        id: unique in the memory of a user; the same words have the same id there.
        text: the fact, in one sentence.
        key: what it tells, where that has one value at a time, such as "home city": of facts with
            one key the newest is true. "" where several are true beside each other.
        said_at: when it was said last.
        since: when it was said first.
        times: in how many runs it was said.
        confidence: 0 to 1, as the extractor judged.
        sources: the ids of the runs in which it was said, the newest 32; "" was no run.
        until: from when on it is no longer true, if that was said.
        superseded_by: the id of the fact that took its place, "" while it is current.
        why: why that one did.
        ended_in: the source of that one.
        recalled_at: when it was last recalled, to the day; None for never.
    """

    id: str
    text: str
    key: str = ""
    said_at: datetime
    since: datetime
    times: int = 1
    confidence: float = 1.0
    sources: tuple[str, ...] = ()
    until: datetime | None = None
    superseded_by: str = ""
    why: str = ""
    ended_in: str = ""
    recalled_at: datetime | None = None

    @property
    def current(self) -> bool:
        """True while no other fact has taken its place."""
        return not self.superseded_by

    def to_meta(self) -> dict[str, Any]:
        """Return the metadata of its record, times as seconds since 1970."""
        meta: dict[str, Any] = {
            "key": self.key,
            "current": self.current,
            "said_at": self.said_at.timestamp(),
            "since": self.since.timestamp(),
            "times": self.times,
            "confidence": self.confidence,
            "sources": list(self.sources),
        }
        for name in ("superseded_by", "why", "ended_in"):
            if value := getattr(self, name):
                meta[name] = value
        for name in ("until", "recalled_at"):
            if (moment := getattr(self, name)) is not None:
                meta[name] = moment.timestamp()
        return meta

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON, times as ISO 8601 and what it lacks left out."""
        data: dict[str, Any] = {"id": self.id, "text": self.text}
        for name in ("key", "superseded_by", "why"):
            if value := getattr(self, name):
                data[name] = value
        for name in ("said_at", "since", "until", "recalled_at"):
            if (moment := getattr(self, name)) is not None:
                data[name] = iso(moment)
        return {
            **data,
            "times": self.times,
            "confidence": self.confidence,
            "sources": [each for each in self.sources if each],
        }


def fact_of(record_id: str, text: str, meta: Mapping[str, Any]) -> Fact:
    """Return the fact that a record holds."""
    return Fact(
        id=record_id,
        text=text,
        key=meta.get("key", ""),
        said_at=moment_of(meta["said_at"]),
        since=moment_of(meta["since"]),
        times=meta.get("times", 1),
        confidence=meta.get("confidence", 1.0),
        sources=tuple(meta.get("sources", ())),
        until=None if meta.get("until") is None else moment_of(meta["until"]),
        superseded_by=meta.get("superseded_by") or "",
        why=meta.get("why") or "",
        ended_in=meta.get("ended_in") or "",
        recalled_at=None if meta.get("recalled_at") is None else moment_of(meta["recalled_at"]),
    )


def moment_of(seconds: float) -> datetime:
    """Return the time that is so many seconds after 1970, in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def iso(moment: datetime) -> str:
    """Return a time in ISO 8601, to the second, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def tidy(text: str, max_chars: int = MAX_TEXT_CHARS) -> str:
    """Return a text on one line, without what no reader sees, cut to a length."""
    return " ".join(clean(text).split())[:max_chars].strip()


def tidy_key(key: str) -> str:
    """Return a key as it is compared: in lower case, words apart."""
    return tidy(re.sub(r"[_\-]+", " ", key).casefold(), MAX_KEY_CHARS)


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text without case and the punctuation around them."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    return tuple(filter(None, (word.strip(_EDGES) for word in folded.split())))


def fact_id(text: str, *, tenant: str | None, user: str | None) -> str:
    """Return the id of a fact: the same words have the same id in the memory of one user.

    So a fact that is stored twice, after a crash or by two processes at once, is there once.
    """
    return digest("fact", tenant or "", user or "", " ".join(words_of(text)))[:32]


def likeness(one: str, other: str) -> float:
    """Return the share of words that two texts have in common, 0 to 1, filler words left out."""
    first, second = (frozenset(words_of(text)) - _FILLERS for text in (one, other))
    return len(first & second) / len(first | second) if first | second else 0.0


def may_be_same(one: str, other: str) -> bool:
    """Return False if one of two texts negates, or has a number, where the other does not.

    Vectors of "I like tea" and "I do not like tea" are near to each other, so nearness alone
    never makes two facts one.
    """
    return _negations(one) % 2 == _negations(other) % 2 and _numbers(one) == _numbers(other)


def _negations(text: str) -> int:
    return sum(word in _NEGATIONS or word.endswith("n't") for word in words_of(text))


def _numbers(text: str) -> list[str]:
    return sorted(word for word in words_of(text) if any(char.isdigit() for char in word))

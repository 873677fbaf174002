"""Changes of a memory: facts are added, said again, or take the place of others. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from lib.llm import Usage
from lib.llm.client import usage_to_json
from lib.memory.facts import MAX_SOURCES, Fact, fact_id, may_be_same, tidy, tidy_key

SAME_KEY: Final = "it tells the same, and was said later"
REPLACES: Final = "it contradicts it, and was said later"
OTHER_WORDS: Final = "it says the same in other words"
CORRECTED: Final = "a person corrected it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A fact that an extractor has found, before it is compared with what is known.

    Attributes:
        text: the fact, in one sentence.
        key: see `Fact`.
        quote: the words of the user that say so. What they did not say is not remembered.
        confidence: 0 to 1.
        same_as: the id of a known fact that says the same.
        replaces: the ids of known facts that are no longer true.
        until: see `Fact`.
    """

    text: str
    key: str = ""
    quote: str = ""
    confidence: float = 1.0
    same_as: str = ""
    replaces: Sequence[str] = ()
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """The changes that remembering has made.

    Attributes:
        added: facts that are new.
        again: facts that were known, and were said once more.
        superseded: facts whose place others have taken; `superseded_by` and `why` tell which.
        left_out: how many candidates were not stored, by the reason.
        usage: what a model has used to find the facts.
        model: which model.
        provider: the provider that bills it.
    """

    added: Sequence[Fact] = ()
    again: Sequence[Fact] = ()
    superseded: Sequence[Fact] = ()
    left_out: dict[str, int] = field(default_factory=dict[str, int])
    usage: Usage | None = None
    model: str | None = None
    provider: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it for the log: each fact with what became of it, and the proof."""
        records = [
            _change(change, fact)
            for change in ("added", "again", "superseded")
            for fact in getattr(self, change)
        ]
        data: dict[str, Any] = {"records": records, "count": len(records)}
        if self.left_out:
            data["left_out"] = self.left_out
        if self.usage is not None and (used := usage_to_json(self.usage)):
            data["usage"] = used
        for name in ("model", "provider"):
            if value := getattr(self, name):
                data[name] = value
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of facts.

    Attributes:
        tenant: whose memory it is.
        user: the person in it.
        source: the id of the run, "" for none.
        said_at: when it was said.
    """

    tenant: str | None
    user: str | None
    source: str
    said_at: datetime


class Changes:
    """The facts of one user that are at hand, and what candidates change in them."""

    def __init__(
        self, facts: Iterable[Fact], origin: Origin, is_near: Callable[[str, Fact], bool]
    ) -> None:
        """Take what is known.

        Args:
            facts: every fact that a candidate may meet: of its id and its key, and those that
                were shown to the extractor.
            origin: of the candidates.
            is_near: returns True if a text is near enough to a fact to say the same.
        """
        self._facts = {fact.id: fact for fact in facts}
        self._before = dict(self._facts)
        self._origin = origin
        self._is_near = is_near

    def add(self, candidate: Candidate, *, why: str = REPLACES) -> None:
        """Take one candidate: newest wins by when it was said, not by when it is stored."""
        text, key, origin = tidy(candidate.text), tidy_key(candidate.key), self._origin
        own = fact_id(text, tenant=origin.tenant, user=origin.user)
        judged = self._facts.get(candidate.same_as)
        if own not in self._facts and judged is not None and judged.current:
            if self._is_near(text, judged) and may_be_same(text, judged.text):
                self._say_again(judged, candidate)
                return
            candidate = replace(candidate, replaces=[*candidate.replaces, judged.id])
            if why == REPLACES:
                why = OTHER_WORDS if may_be_same(text, judged.text) else REPLACES
        if own in self._facts:
            self._say_again(self._facts[own], candidate)
            key = key or self._facts[own].key
        else:
            self._facts[own] = Fact(
                id=own,
                text=text,
                key=key,
                said_at=origin.said_at,
                since=origin.said_at,
                confidence=_share(candidate.confidence),
                sources=(origin.source,),
                until=candidate.until,
            )
        self._settle(own, key, set(candidate.replaces), why)

    def _say_again(self, fact: Fact, candidate: Candidate) -> None:
        """Raise the date and the count; a fact that was superseded earlier is true again."""
        origin = self._origin
        is_later = origin.said_at >= fact.said_at
        is_repeat = bool(origin.source) and origin.source in fact.sources
        if is_repeat and not is_later:
            return
        revived = is_later and not fact.current and not is_repeat
        self._facts[fact.id] = replace(
            fact,
            key=tidy_key(candidate.key) or fact.key,
            said_at=max(fact.said_at, origin.said_at),
            since=min(fact.since, origin.said_at),
            times=fact.times + (not is_repeat),
            confidence=max(fact.confidence, _share(candidate.confidence)),
            sources=_with_source(fact.sources, origin.source),
            until=candidate.until if is_later else fact.until,
            **({"superseded_by": "", "why": "", "ended_in": ""} if revived else {}),
        )

    def _settle(self, own: str, key: str, replaced: set[str], why: str) -> None:
        """Let the newest of the facts that contradict each other stand, and end the others."""
        mine = self._facts[own]
        if not mine.current:
            return
        others = [
            fact
            for fact in self._facts.values()
            if fact.current
            and fact.id != own
            and (fact.id in replaced or (key and fact.key == key))
        ]
        newer = [fact for fact in others if fact.said_at > mine.said_at]
        if newer:  # this was said earlier, and is stored late
            newest = max(newer, key=lambda fact: fact.said_at)
            self._end(mine, newest, SAME_KEY if newest.key == key and key else why)
            return
        for fact in others:
            self._end(fact, mine, why if fact.id in replaced else SAME_KEY)

    def _end(self, fact: Fact, by: Fact, why: str) -> None:
        ended_in = self._origin.source
        self._facts[fact.id] = replace(fact, superseded_by=by.id, why=why, ended_in=ended_in)

    @property
    def changed(self) -> list[Fact]:
        """The facts to store, in the order of their ids."""
        changed = [fact for name, fact in self._facts.items() if self._before.get(name) != fact]
        return sorted(changed, key=lambda fact: fact.id)

    def remembered(self) -> Remembered:
        """Return what has changed."""
        new, old = self._before.keys(), self._before
        changed = self.changed
        return Remembered(
            added=[fact for fact in changed if fact.id not in new],
            again=[fact for fact in changed if fact.id in new and fact.current],
            superseded=[
                fact
                for fact in changed
                if not fact.current and fact.id in new and old[fact.id].current
            ],
        )


def _change(change: str, fact: Fact) -> dict[str, Any]:
    record = {"id": fact.id, "text": fact.text, "change": change}
    proof = {"key": fact.key, "superseded_by": fact.superseded_by, "why": fact.why}
    return {**record, **{name: value for name, value in proof.items() if value}}


def remembered_before(facts: Iterable[Fact], source: str) -> Remembered:
    """Return what a source has changed before it was cut off, from the facts that name it."""
    there = list(facts)
    return Remembered(
        added=[each for each in there if each.sources[:1] == (source,)],
        again=[each for each in there if source in each.sources[1:] and each.current],
        superseded=[
            each for each in there if each.ended_in == source and each.sources[:1] != (source,)
        ],
    )


def _with_source(sources: Sequence[str], source: str) -> tuple[str, ...]:
    others = [each for each in sources if each != source]
    return (*others, source)[-MAX_SOURCES:]


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))

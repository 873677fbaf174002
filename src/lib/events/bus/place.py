"""Where a group has come to in one partition, and who works there: the value of one mark.

Pure: what may follow a place is said here, `claim` writes it down.

A page that fails is tried again, after pauses that grow. After so many deliveries, its events are
delivered one by one, so that one of them alone is found to be at fault. An exception says so at
once; a process that dies might have died of anything, so that takes two of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from lib._util.json import canonical, parse
from lib.events.store import START

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 30.0
_DEADLY: Final = 2
"""So many processes that died with an event alone in hand make it a dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a group is in one partition.

    Attributes:
        cursor: all before it has been handled, or is a dead letter.
        owner: the bus that holds the claim, None if nobody does.
        until: when the claim ends; without an owner, before when nobody need try again. Seconds
            since 1970.
        tries: failed deliveries in a row: of the page at the cursor, or of events alone.
        alone: so many events from the cursor on are delivered one by one.
        hand: the cursor after the event that was delivered alone last, empty if none was: whether
            that is the event at the cursor still, or has been erased.
        died: so many processes died with that event in hand.
    """

    cursor: str = START
    owner: str | None = None
    until: float = 0.0
    tries: int = 0
    alone: int = 0
    hand: str = ""
    died: int = 0

    @classmethod
    def decode(cls, text: str) -> Place:
        """Return the place that a mark holds; a bare cursor is one of layout 1."""
        if not is_place(text):
            return cls(cursor=text)
        data: dict[str, Any] = parse(text)
        return cls(**{name: data[name] for name in cls.__slots__ if name in data})

    def encode(self) -> str:
        """Return the value of the mark; what is not set is left out."""
        data = {name: getattr(self, name) for name in self.__slots__}
        return canonical({name: value for name, value in data.items() if value or name == "cursor"})

    @property
    def deadly(self) -> bool:
        """Whether the event in hand is not to be delivered again."""
        return self.died >= _DEADLY

    def free(self, owner: str, now: float, *, early: bool) -> bool:
        """Tell whether this owner may claim it; `early` waits for no pause."""
        return self.owner == owner or self.until <= now or (early and self.owner is None)

    def claimed(self, owner: str, until: float, *, most: int, batch: int) -> Place:
        """Return the place in the hands of this owner; that of another died with a delivery."""
        place = replace(self, owner=owner, until=until)
        if self.owner in (None, owner):
            return place
        if self.alone:
            return replace(place, died=self.died + bool(self.hand))
        return _parted(replace(place, tries=self.tries + 1), most, batch)

    def handed(self, hand: str, until: float) -> Place:
        """Return the place before the delivery of an event alone."""
        return replace(self, hand=hand, died=self.died if hand == self.hand else 0, until=until)

    def moved(self, cursor: str, until: float) -> Place:
        """Return the place after a delivery."""
        left = max(self.alone - 1, 0)
        return Place(cursor=cursor, owner=self.owner, until=until, alone=left)

    def failed(self, now: float, *, most: int, events: int) -> Place:
        """Return the place after a page has failed: nobody's, and not to be tried at once."""
        tries = self.tries + 1
        place = replace(self, owner=None, until=now + pause_s(tries), tries=tries)
        return _parted(place, most, events)

    def buried(self, cursor: str, now: float) -> Place:
        """Return the place after a dead letter.

        The more of them follow each other, the longer are the pauses: then it may be the handler
        that fails, and not the events.
        """
        streak = self.tries + 1
        left, until = max(self.alone - 1, 0), now + pause_s(streak)
        return Place(cursor=cursor, until=until, alone=left, tries=streak if left else 0)

    def released(self, until: float = 0.0) -> Place:
        """Return the place in nobody's hands."""
        return replace(self, owner=None, until=until)


def is_place(text: str) -> bool:
    """Tell a place from a bare cursor, which layout 1 kept."""
    return text.startswith("{")


def _parted(place: Place, most: int, events: int) -> Place:
    """Return the place with its events to be delivered alone, if it has failed often enough."""
    return place if place.tries < most else replace(place, tries=0, alone=events)


def pause_s(failures: int) -> float:
    """Return how long to wait after so many failures in a row."""
    return min(_FIRST_PAUSE_S * 2 ** min(failures - 1, 20), _LONGEST_PAUSE_S)

"""The progress of a group in one partition: its cursor and its owner, the value of one mark.

Pure: this module decides which progress may follow another one, `claim` writes it.

A page that fails is delivered again, after pauses that grow. After `max_deliveries`, its events are
delivered one by one, to find the one that is at fault. An exception shows that at once; a process
may die of anything, so two dead processes are needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from lib._util.json import canonical, parse
from lib.events.store import START

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 30.0
_MAX_DEATHS: Final = 2
"""So many processes that died during the delivery of one event make it a dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a group in one partition. The fields are the keys of the stored JSON.

    Attributes:
        cursor: every event before it has been handled, or is a dead letter.
        owner: the bus that holds the claim, or None.
        until: when the claim ends; without an owner, when the pause after a failure ends. Seconds
            since 1970.
        tries: failed deliveries in a row: of the page at the cursor, or of single events.
        alone: so many events from the cursor on are delivered one by one.
        hand: the cursor after the event that was last delivered alone, empty if none was: it tells
            whether that event is still the one at the cursor, or has been erased.
        died: so many processes died during the delivery of that event.
    """

    cursor: str = START
    owner: str | None = None
    until: float = 0.0
    tries: int = 0
    alone: int = 0
    hand: str = ""
    died: int = 0

    @classmethod
    def decode(cls, text: str) -> Progress:
        """Return the progress that a mark holds; a bare cursor is one of layout 1."""
        if not is_progress(text):
            return cls(cursor=text)
        data: dict[str, Any] = parse(text)
        return cls(**{name: data[name] for name in cls.__slots__ if name in data})

    def encode(self) -> str:
        """Return the value of the mark; defaults are left out."""
        data = {name: getattr(self, name) for name in self.__slots__}
        return canonical({name: value for name, value in data.items() if value or name == "cursor"})

    @property
    def kills_processes(self) -> bool:
        """True if the event last delivered alone is not to be delivered again."""
        return self.died >= _MAX_DEATHS

    def is_free(self, owner: str, now: float, *, early: bool) -> bool:
        """Return True if this owner may claim the partition; `early` skips a pause."""
        return self.owner == owner or self.until <= now or (early and self.owner is None)

    def claimed(self, owner: str, until: float, *, max_deliveries: int, batch: int) -> Progress:
        """Return the progress claimed by this owner; another owner counts as a failed delivery."""
        claimed = replace(self, owner=owner, until=until)
        if self.owner in (None, owner):
            return claimed
        if self.alone:
            return replace(claimed, died=self.died + bool(self.hand))
        return _split(replace(claimed, tries=self.tries + 1), max_deliveries, batch)

    def delivering(self, hand: str, until: float) -> Progress:
        """Return the progress before the delivery of a single event."""
        return replace(self, hand=hand, died=self.died if hand == self.hand else 0, until=until)

    def moved(self, cursor: str, until: float) -> Progress:
        """Return the progress after a delivery."""
        left = max(self.alone - 1, 0)
        return Progress(cursor=cursor, owner=self.owner, until=until, alone=left)

    def failed(self, now: float, *, max_deliveries: int, events: int) -> Progress:
        """Return the progress after a failed page: without an owner, and with a pause."""
        tries = self.tries + 1
        failed = replace(self, owner=None, until=now + pause_s(tries), tries=tries)
        return _split(failed, max_deliveries, events)

    def skipped(self, cursor: str, now: float) -> Progress:
        """Return the progress after a dead letter.

        The more of them follow each other, the longer the pauses: then the handler may be at fault,
        and not the events.
        """
        streak = self.tries + 1
        left, until = max(self.alone - 1, 0), now + pause_s(streak)
        return Progress(cursor=cursor, until=until, alone=left, tries=streak if left else 0)

    def released(self, until: float = 0.0) -> Progress:
        """Return the progress without an owner."""
        return replace(self, owner=None, until=until)


def is_progress(text: str) -> bool:
    """Return True for an encoded progress, False for the bare cursor of layout 1."""
    return text.startswith("{")


def _split(progress: Progress, max_deliveries: int, events: int) -> Progress:
    """Return the progress with single deliveries ahead, if it has failed often enough."""
    return progress if progress.tries < max_deliveries else replace(progress, tries=0, alone=events)


def pause_s(failures: int) -> float:
    """Return how long to wait after so many failures in a row."""
    return min(_FIRST_PAUSE_S * 2 ** min(failures - 1, 20), _LONGEST_PAUSE_S)

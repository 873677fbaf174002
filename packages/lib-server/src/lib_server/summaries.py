"""Summaries of runs for lists and sums: the first words, tokens, cost; folded from their logs.

A log is read once, and then only what has come since: an open run whose head has moved is read from
there, a closed one never again. What was folded is kept in memory, of the runs that were wanted
last. A run that this process has never summed up costs reading its log.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lib.events import Event, EventStore, RunInfo
from lib.events import kinds as k
from lib.events.paging import log_pages
from lib.events.payloads import fits

if TYPE_CHECKING:
    from lib.observe.spend import SpendFold

MOST_KEPT: Final = 20_000
"""How many runs are kept; each takes about one KiB."""

_ASKING: Final = frozenset({k.RUN_STARTED, k.TURN_REQUESTED})
_MOST_CHARS: Final = 200


class ModelUse(NamedTuple):
    """The use that a run has made of a model.

    Attributes:
        model: None if the log names none.
        cost: in US dollars, of the calls that have a price.
        unpriced: how many calls have none.
    """

    model: str | None
    tokens: int
    cost: Decimal
    unpriced: int


class Summary(NamedTuple):
    """A run in short.

    Attributes:
        question: the first words of what the user has written, on one line; of a session, in its
            first turn.
        models: what it has used, without its child runs.
    """

    question: str
    models: tuple[ModelUse, ...]

    @property
    def tokens(self) -> int:
        """Input and output."""
        return sum(use.tokens for use in self.models)

    @property
    def cost(self) -> float | None:
        """In US dollars; None if a call has no price."""
        return None if any(use.unpriced for use in self.models) else self.known_cost

    @property
    def known_cost(self) -> float:
        """In US dollars, of the calls that have a price."""
        return float(sum((use.cost for use in self.models), Decimal(0)))


_NOTHING: Final = Summary("", ())


@dataclass(slots=True)
class _Entry:
    """A run as far as its log has been read; the fold is kept while the run is open."""

    fold: SpendFold | None
    head: int = 0
    closed: bool = False
    question: str = ""
    summary: Summary = _NOTHING

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.kind in _ASKING and not self.question and fits(event.kind, event.data):
                self.question = _question(event.data.get("input"))
            self.head = max(self.head, event.seq)
            if self.fold is not None:
                self.fold.add([event])

    def finish(self, *, closed: bool) -> None:
        if self.fold is None:
            return
        models = self.fold.spend.models.items()
        uses = (ModelUse(name, of.tokens, of.known_cost, of.unpriced) for name, of in models)
        self.summary = Summary(self.question, tuple(uses))
        if closed:
            self.closed, self.fold = True, None


class Summaries:
    """The summaries of a server's runs."""

    def __init__(self, store: EventStore, *, most: int = MOST_KEPT) -> None:
        """Begin with none.

        Args:
            store: the logs of all tenants: callers find the runs that they may see.
            most: how many runs are kept.
        """
        self._store = store
        self._most = most
        self._module: ModuleType | None = None
        self._entries = OrderedDict[str, _Entry]()

    def kept(self, info: RunInfo) -> Summary | None:
        """Return the summary of a run if nothing has to be read for it, else None."""
        entry = self._entries.get(info.run_id)
        if entry is None or not (entry.closed or entry.head >= info.head):
            return None
        self._entries.move_to_end(info.run_id)
        return entry.summary

    async def of(self, info: RunInfo) -> Summary:
        """Return the summary of a run as it was listed, or later."""
        summary = self.kept(info)
        if summary is not None:
            return summary
        entry = self._entries.pop(info.run_id, None) or _Entry(await self._new_fold())
        async for events in log_pages(self._store, info.run_id, after=entry.head):
            entry.add(events)
        entry.finish(closed=info.status == "closed")
        self._entries[info.run_id] = entry
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)
        return entry.summary

    async def _new_fold(self) -> SpendFold:
        if self._module is None:  # imported late: servers that sum up nothing start sooner
            self._module = await asyncio.to_thread(import_module, "lib.observe.spend")
        fold: SpendFold = self._module.SpendFold()
        return fold


def _question(messages: Any) -> str:
    """Return the first words of the last message of the user, "" without one."""
    for message in reversed(messages or []):
        if message.get("role") == "user":
            parts = message.get("parts") or [{"text": message.get("content", "")}]
            words = " ".join(str(part.get("text", "")) for part in parts)
            line = " ".join(words[: 2 * _MOST_CHARS].split())
            return line if len(line) <= _MOST_CHARS else f"{line[: _MOST_CHARS - 1]}…"
    return ""

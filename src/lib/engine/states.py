"""The states of runs, folded from their logs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from lib.engine.core.algorithm import Algorithm, Request
from lib.engine.core.decide import Refolding
from lib.engine.core.session import SESSION
from lib.engine.core.state import RunState, begin
from lib.engine.history import Histories
from lib.events import Event, EventStore
from lib.events import kinds as k
from lib.events.paging import log_pages

KEPT: Final = 64
"""Of how many sessions the state is kept."""
PAGE: Final = 500
"""How many events are read at once: each page is folded, and forgotten, before the next."""


class States:
    """Folds logs for those who drive runs.

    A session is taken up for each of its turns. So the states of those used last are kept while
    they are idle, and only what is new is read: a late turn costs what an early one did. Nothing
    that was said is in such a state.
    """

    def __init__(self, store: EventStore, histories: Histories, *, kept: int = KEPT) -> None:
        """Take the logs, and what turns go on with."""
        self._store = store
        self._histories = histories
        self._limit = kept
        self._kept: OrderedDict[str, RunState[Any]] = OrderedDict()

    async def read(
        self, run_id: str, algorithm: Algorithm[Any], log: Sequence[Event] = ()
    ) -> tuple[RunState[Any], dict[str, Request]] | None:
        """Return the state of a run and its open requests as they were decided, by key.

        Args:
            run_id: the run; None is returned where there is no such run (any more).
            algorithm: how it goes on.
            log: its events, if they are at hand.

        Raises:
            UnknownAlgorithm: it is a turn after others whose algorithm is not here.
            StoreError: the logs cannot be read.
        """
        kept = self._kept.pop(run_id, None)
        if kept is not None:
            tail = await self._store.read(run_id, after=kept.head - 1)
            if tail and _ends_with(kept, tail[0]):
                refolding = Refolding(algorithm, kept)
                refolding.extend(tail[1:])
                return refolding.state, refolding.decided()
        page = log or await self._store.read(run_id, limit=PAGE)
        if not page:
            return None
        past = await self._histories.before(page[0])
        refolding = Refolding(algorithm, begin(algorithm, page[0], past.conversation))
        refolding.extend(page[1:])
        if not log and len(page) == PAGE:
            after = page[-1].seq
            async for page in log_pages(self._store, run_id, after=after, page=PAGE):
                refolding.extend(_emptied(page))
        return refolding.state, refolding.decided()

    def keep(self, algorithm: Algorithm[Any], state: RunState[Any]) -> None:
        """Keep the state of a run that is driven no longer, if it is an idle session."""
        if algorithm.name == SESSION and state.outcome is None and not state.open:
            self._kept[state.run_id] = state
            if len(self._kept) > self._limit:
                self._kept.popitem(last=False)


def _emptied(page: list[Event]) -> Iterator[Event]:
    """Yield the events, and forget each: garbage is not collected where none gathers."""
    page.reverse()
    while page:
        yield page.pop()


def _ends_with(state: RunState[Any], last: Event) -> bool:
    """Tell whether this is the event that the state was folded up to."""
    return last.seq == state.head and (k.is_signal(last.kind) or last.at == state.at)

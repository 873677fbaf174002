"""One sink as the observer sees it: what waits for it, in which order, and how it is tried again.

Each sink has a lane of its own, so that a slow one delays nobody but itself. What it does not take
is tried again, ever more seldom, while others have their turn; what it says it will never take is
given up until somebody asks for it. A lane has only so much room: when it is full the bus waits,
and what is due waits in the log.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from lib._util.clock import Clock
from lib._util.repeated import RepeatedFailure
from lib.errors import ExportError
from lib.observe.export.outbox import Ledger

_log = logging.getLogger("lib.observe")

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 60.0
_LONGEST_REST_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How the export of some traces went; those of which nothing is said here have arrived.

    Attributes:
        sent: the ids of the spans that the sink has acknowledged.
        lacked: the traces of which the sink lacked something, whatever came of them.
        busy: the traces that another observer exports just now, with the seconds to wait for it.
        failed: the traces that did not arrive, and why.
    """

    sent: frozenset[str] = frozenset()
    lacked: frozenset[str] = frozenset()
    busy: Mapping[str, float] = field(default_factory=dict[str, float])
    failed: Mapping[str, Exception] = field(default_factory=dict[str, Exception])


Export = Callable[[Sequence[str]], Awaitable[Result]]


@dataclass(slots=True)
class _Due:
    """When a trace is to be exported, by the clock's `monotonic`, and how often it has failed.

    Attributes:
        batches: the batches of the ledger's list that it is in.
    """

    at: float
    failed: int = 0
    batches: list[int] = field(default_factory=list[int])


class Lane:
    """The queue in front of one sink: several traces an export, in the order in which they came."""

    def __init__(
        self,
        name: str,
        export: Export,
        ledger: Ledger,
        *,
        clock: Clock,
        room: int,
        at_once: int,
    ) -> None:
        """Begin with nothing due.

        Args:
            name: of the sink, for people.
            export: exports the traces of root runs, and never raises for what the sink does.
            ledger: keeps what is due, for the next process.
            clock: tells when a trace is due.
            room: how many traces may wait.
            at_once: how many traces go into one export.
        """
        self._name = name
        self._export = export
        self._ledger = ledger
        self._clock = clock
        self._room = room
        self._at_once = self._now_at_once = at_once
        self._due: dict[str, _Due] = {}
        self._under_way: dict[str, _Due] = {}
        self._decided = set[str]()  # of those under way, what has become of them is known
        self._given_up: dict[str, None] = {}
        self._resting_until = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self._hurried = 0
        self._begun = asyncio.Event()
        self._news = asyncio.Event()
        self._changed = asyncio.Condition()
        self._closed = False
        self._trouble = RepeatedFailure(_log, logging.ERROR, clock)

    @property
    def failed(self) -> bool:
        """Whether a trace that was due has not arrived, and has not since."""
        return bool(self._given_up) or any(due.failed for due in self._due.values())

    @property
    def resting(self) -> bool:
        """Whether the sink is left alone, since it has just failed."""
        return self._clock.monotonic() < self._resting_until

    async def note(self, root_ids: Iterable[str], result: Result) -> None:
        """Learn how an export went that was none of the lane's; what others export is due again."""
        self._note([root_id for root_id in root_ids if root_id not in result.busy], result)
        if result.busy:
            batch = await self._ledger.owe(list(result.busy))
            at = self._clock.monotonic() + max(result.busy.values())
            self._put([(root_id, batch) for root_id in result.busy], at=at)

    def _note(self, root_ids: Iterable[str], result: Result) -> None:
        for root_id in root_ids:
            self._given_up.pop(root_id, None)
            if root_id in result.failed:
                self._given_up[root_id] = None
        while len(self._given_up) > self._room:
            self._given_up.pop(next(iter(self._given_up)))

    async def add(self, root_ids: Iterable[str], *, at: float) -> None:
        """Let traces be exported when their time has come; wait as long as there is no room.

        Raises:
            ExportError: the lane is closed.
        """
        wanted = list(dict.fromkeys(root_ids))
        while wanted:
            async with self._changed:
                await self._changed.wait_for(lambda: self._closed or self._free() > 0)
                if self._closed:
                    raise ExportError(f"the observer of this {self._name} is closed")
            free = max(self._free(), 1)
            fitting, wanted = wanted[:free], wanted[free:]
            batch = await self._ledger.owe(fitting)
            self._put([(root_id, batch) for root_id in fitting], at=at)

    def _free(self) -> int:
        return self._room - len(self._due) - len(self._under_way)

    async def caught_up(self) -> None:
        """Return when all that is due now was exported, or tried once more without success."""
        await self._begun.wait()
        async with self._changed:
            for due in self._due.values():
                due.at = min(due.at, self._clock.monotonic()) if due.failed else due.at
            # A trace may be both under way and due again, for what has happened to it meanwhile.
            waiting = [*self._due.items(), *self._under_way.items()]
            tries = [due.failed for _, due in waiting]

            def left() -> bool:
                return any(
                    (self._due.get(root_id) is due or self._under_way.get(root_id) is due)
                    and due.failed == failed
                    for (root_id, due), failed in zip(waiting, tries, strict=True)
                )

            self._hurried += 1
            self._news.set()
            try:
                await self._changed.wait_for(lambda: not left())
            finally:
                self._hurried -= 1

    async def run(self) -> None:
        """Export what is added, until cancelled; begin with what earlier processes owe."""
        self._closed = False
        self._put_back_undecided()  # of a use before this one that was cut off
        with self._logged(f"what was due for {self._name} cannot be read"):
            self._put(await self._ledger.owed(), at=self._clock.monotonic())
        self._begun.set()
        while True:
            root_ids = await self._next()
            with self._logged(f"the lane of {self._name} goes on after an error"):
                await self._settle(root_ids, await self._export(root_ids))
            self._put_back_undecided()
            async with self._changed:
                self._changed.notify_all()

    async def close(self) -> None:
        """Take nothing more, and let go of those who wait for room."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    @contextmanager
    def _logged(self, what: str) -> Generator[None]:
        """Log what goes wrong, and go on: at worst something is looked at once more."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - nothing else would tell of it
            self._trouble.failed(what, error)

    # -- one round -------------------------------------------------------------------------

    def _put(self, listed: Iterable[tuple[str, int]], *, at: float) -> None:
        for root_id, batch in listed:
            batches = self._due.setdefault(root_id, _Due(at)).batches
            if batch not in batches:
                batches.append(batch)
        self._news.set()

    def _put_back(self, root_id: str, due: _Due) -> None:
        """Let a trace be due again, after all others; it may have become so already."""
        newer = self._due.pop(root_id, None)
        due.batches += newer.batches if newer else []
        self._due[root_id] = due

    def _put_back_undecided(self) -> None:
        """Let what was under way be due again, unless it is known what has become of it."""
        for root_id, due in self._under_way.items():
            if root_id not in self._decided:
                self._put_back(root_id, due)
        self._under_way.clear()
        self._decided.clear()

    async def _next(self) -> list[str]:
        """Return the traces that are due, as soon as there are any, and take them out."""
        while True:
            self._news.clear()
            now, ready = self._clock.monotonic(), list[str]()
            rest_s = 0.0 if self._hurried else self._resting_until - now
            if rest_s <= 0:
                ready = [root_id for root_id, due in self._due.items() if due.at <= now]
            if ready := ready[: self._now_at_once]:
                self._under_way = {root_id: self._due.pop(root_id) for root_id in ready}
                return ready
            first = min((due.at for due in self._due.values()), default=math.inf)
            await self._sleep(max(first - now, rest_s))

    async def _sleep(self, delay_s: float) -> None:
        """Sleep until that time has passed, or something is new."""
        waiting: set[asyncio.Future[Any]] = {asyncio.ensure_future(self._news.wait())}
        if delay_s < math.inf:
            waiting.add(asyncio.ensure_future(self._clock.sleep(delay_s)))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    async def _settle(self, root_ids: Sequence[str], result: Result) -> None:
        now, done = self._clock.monotonic(), dict[str, _Due]()
        for root_id in root_ids:
            self._decided.add(root_id)
            due, failure = self._under_way[root_id], result.failed.get(root_id)
            if root_id in result.busy:
                due.at = now + result.busy[root_id]
                self._put_back(root_id, due)
            elif failure is None or is_permanent(failure):
                done[root_id] = due
            else:
                due.at = now + min(_FIRST_PAUSE_S * 2.0 ** min(due.failed, 16), _LONGEST_PAUSE_S)
                due.failed += 1
                self._put_back(root_id, due)
        self._note(done, result)
        self._rest(root_ids, result.failed.values())
        for batch in [batch for due in done.values() for batch in due.batches]:
            await self._ledger.paid(batch)

    def _rest(self, root_ids: Sequence[str], failures: Iterable[Exception]) -> None:
        """Leave a sink alone that has just failed, longer each time, or as long as it asks for.

        One trace may be what it fails at, so fewer go together next time.
        """
        passing = [failure for failure in failures if not is_permanent(failure)]
        if not passing:
            self._pause_s = _FIRST_PAUSE_S
            self._now_at_once = min(2 * self._now_at_once, self._at_once)
            return
        told = [error.retry_after_s for error in passing if isinstance(error, ExportError)]
        asked = min(max([0.0, *(seconds or 0.0 for seconds in told)]), _LONGEST_REST_S)
        self._resting_until = self._clock.monotonic() + max(asked, self._pause_s)
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
        self._now_at_once = max(1, len(root_ids) // 2)


def is_permanent(failure: Exception) -> bool:
    """Tell whether sending the same again cannot help, even once the sink is set up rightly."""
    return isinstance(failure, ExportError) and failure.permanent and not failure.setup

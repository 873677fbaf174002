"""The deep check of a log: decided again, every request is the one that was recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast, overload

from lib.engine.core.algorithm import Algorithm, LLMRequest, Request
from lib.engine.core.decide import next_step
from lib.engine.core.session import SessionLoop
from lib.engine.core.state import begin, evolve
from lib.engine.runtime.caches import ConversationCache, EarlierTurns
from lib.errors import StoreCorrupt, UnknownAlgorithm
from lib.events import Event, EventStore, RunInfo
from lib.events import kinds as k
from lib.events.payloads import fits
from lib.events.verify import Fault

Check = Callable[[RunInfo, Sequence[Event]], Iterator[Fault]]
ByConfig = Callable[[Mapping[str, Any]], Algorithm[Any] | None]

NOT_HERE: Final = "its algorithm is not here"
NOT_WHOLE: Final = "not all that the turns before it have said can be read"

_UNKNOWN = EarlierTurns(whole=False)


@overload
def request_check(algorithms: Iterable[Algorithm[Any]], store: None = None) -> Check: ...
@overload
def request_check(algorithms: Iterable[Algorithm[Any]], store: EventStore) -> StoreCheck: ...
def request_check(
    algorithms: Iterable[Algorithm[Any]], store: EventStore | None = None
) -> Check | StoreCheck:
    """Return a check for `verify_store(checks=[…])`.

    It folds each log with its algorithm and holds every request against the decision at that
    point, and every model request against its recorded digest. Runs of other algorithms pass.

    Args:
        algorithms: what runs are folded by.
        store: where the turns before a turn are. Without it, what the turns of a session send to
            models is not held against its digests, nor is it where some of it has been erased.
    """
    if store is not None:
        return StoreCheck(algorithms, store)
    by_name = _by_name(algorithms)

    def check(run: RunInfo, events: Sequence[Event]) -> Iterator[Fault]:
        past = _UNKNOWN if events and events[0].data.get("upto") else EarlierTurns()
        return _faults(by_name.get(run.algorithm), events, past)

    return check


class StoreCheck:
    """A check for `verify_store(checks=[…])` that reads the turns before a turn, and counts.

    Attributes:
        decided: how many runs were decided again in full.
        undecided: how many were not, or not in full, by the algorithm's name and the reason.
    """

    def __init__(
        self,
        algorithms: Iterable[Algorithm[Any]],
        store: EventStore,
        *,
        by_config: ByConfig | None = None,
    ) -> None:
        """Begin without a run.

        Args:
            algorithms: what runs are folded by, by name.
            store: where the turns before a turn are.
            by_config: returns what folds a run of another name, from the config that is recorded
                in its start, or None.
        """
        self.decided: int = 0
        self.undecided: Counter[tuple[str, str]] = Counter()
        self._by_name = _by_name(algorithms)
        self._by_config = by_config
        self._guessed = set[str]()
        self._histories = ConversationCache(store, self._by_name)

    async def __call__(self, run: RunInfo, events: Sequence[Event]) -> Iterable[Fault]:
        """Return where the log of a run is not what its algorithm decides."""
        if not events:
            return []
        algorithm = self._algorithm(run, events[0])
        if algorithm is None:
            self.undecided[run.algorithm, NOT_HERE] += 1
            return []
        past = await self._past(events[0])
        if past.whole:
            self.decided += 1
        else:
            self.undecided[run.algorithm, NOT_WHOLE] += 1
        faults = list(_faults(algorithm, events, past))
        if run.algorithm in self._guessed:
            note = f"; folded as {algorithm.name!r}, whose config it has"
            return [replace(fault, message=fault.message + note) for fault in faults]
        return faults

    def _algorithm(self, run: RunInfo, started: Event) -> Algorithm[Any] | None:
        algorithm = self._by_name.get(run.algorithm)
        if self._by_config is None or (algorithm and run.algorithm not in self._guessed):
            return algorithm
        config: object = started.data.get("config")
        found = self._by_config(cast("Mapping[str, Any]", config)) if config else None
        if found is None:
            return algorithm
        # The turns of a session that come later rest on it, too; an agent may have become a team.
        self._by_name[run.algorithm] = found
        self._guessed.add(run.algorithm)
        return found

    async def _past(self, started: Event) -> EarlierTurns:
        try:
            return await self._histories.before(started)
        except (UnknownAlgorithm, StoreCorrupt, KeyError, TypeError, ValueError):
            return _UNKNOWN  # a fault of the turns before, reported with those


def _by_name(algorithms: Iterable[Algorithm[Any]]) -> dict[str, Algorithm[Any]]:
    return {algorithm.name: algorithm for algorithm in [SessionLoop(), *algorithms]}


def _faults(
    algorithm: Algorithm[Any] | None, events: Sequence[Event], past: EarlierTurns
) -> Iterator[Fault]:
    if algorithm is None or not events:
        return
    event = events[0]
    if "input" not in event.data:
        yield Fault(event.run_id, event.seq, "fold", "it does not say what the run was given")
        return
    try:
        state = begin(algorithm, event, past.conversation)
        for event in events[1:]:
            is_request = event.kind in k.REQUESTS and fits(event.kind, event.data)
            if is_request and not event.data.get("unstarted"):
                decided = {r.key: r for r in next_step(algorithm, state).requests}
                yield from _hold(event, decided.get(event.data["key"]), past)
            state = evolve(algorithm, state, event)
    except Exception as error:  # noqa: BLE001 - around an algorithm, which may be anyone's
        yield Fault(event.run_id, event.seq, "fold", f"cannot be folded: {error!r}")


def _hold(event: Event, decided: Request | None, past: EarlierTurns) -> Iterator[Fault]:
    if decided is None:
        message = f"{event.data['key']!r} is not what the log before it asks for"
        yield Fault(event.run_id, event.seq, "request-decided", message)
    elif isinstance(decided, LLMRequest) and past.whole:
        again = decided.digest(event.data.get("tools_digest", ""))
        recorded = event.data.get("digest", "")
        if again != recorded:
            message = f"{decided.key!r} renders to {again[:12]}, recorded {recorded[:12]}"
            yield Fault(event.run_id, event.seq, "request-digest", message)

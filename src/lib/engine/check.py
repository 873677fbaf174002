"""The deep check of a log: decided again, every request is the one that was recorded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, overload

from lib.engine.core.algorithm import Algorithm, LLMRequest, Request
from lib.engine.core.decide import next_step
from lib.engine.core.session import SessionLoop
from lib.engine.core.state import begin, evolve
from lib.engine.history import Histories, Past
from lib.errors import StoreCorrupt, UnknownAlgorithm
from lib.events import Event, EventStore, RunInfo
from lib.events import kinds as k
from lib.events.payloads import fits
from lib.events.verify import Fault

Check = Callable[[RunInfo, Sequence[Event]], Iterator[Fault]]
StoreCheck = Callable[[RunInfo, Sequence[Event]], Awaitable[Iterable[Fault]]]

_UNKNOWN = Past(whole=False)
_UNREADABLE = (UnknownAlgorithm, StoreCorrupt, KeyError, TypeError, ValueError)


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
    by_name = {algorithm.name: algorithm for algorithm in [SessionLoop(), *algorithms]}

    def check(run: RunInfo, events: Sequence[Event]) -> Iterator[Fault]:
        past = _UNKNOWN if events and events[0].data.get("upto") else Past()
        return _faults(by_name.get(run.algorithm), events, past)

    if store is None:
        return check
    histories = Histories(store, by_name)

    async def check_in_store(run: RunInfo, events: Sequence[Event]) -> Iterable[Fault]:
        try:
            past = await histories.before(events[0]) if events else Past()
        except _UNREADABLE:  # a fault of the turns before, and told with those
            past = _UNKNOWN
        return list(_faults(by_name.get(run.algorithm), events, past))

    return check_in_store


def _faults(
    algorithm: Algorithm[Any] | None, events: Sequence[Event], past: Past
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
            asks = event.kind in k.REQUESTS and fits(event.kind, event.data)
            if asks and not event.data.get("unstarted"):
                decided = {r.key: r for r in next_step(algorithm, state).requests}
                yield from _hold(event, decided.get(event.data["key"]), past)
            state = evolve(algorithm, state, event)
    except (KeyError, TypeError, ValueError) as error:
        yield Fault(event.run_id, event.seq, "fold", f"cannot be folded: {error!r}")


def _hold(event: Event, decided: Request | None, past: Past) -> Iterator[Fault]:
    if decided is None:
        message = f"{event.data['key']!r} is not what the log before it asks for"
        yield Fault(event.run_id, event.seq, "request-decided", message)
    elif isinstance(decided, LLMRequest) and past.whole:
        again = decided.digest(event.data.get("tools_digest", ""))
        recorded = event.data.get("digest", "")
        if again != recorded:
            message = f"{decided.key!r} renders to {again[:12]}, recorded {recorded[:12]}"
            yield Fault(event.run_id, event.seq, "request-digest", message)

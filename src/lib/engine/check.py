"""The deep check of a log: decided again, every request is the one that was recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from lib.engine.core.algorithm import Algorithm, LLMRequest, Request
from lib.engine.core.decide import next_step
from lib.engine.core.state import begin, evolve
from lib.events import Event, RunInfo
from lib.events import kinds as k
from lib.events.verify import Fault


def request_check(
    algorithms: Iterable[Algorithm[Any]],
) -> Callable[[RunInfo, Sequence[Event]], Iterator[Fault]]:
    """Return a check for `verify_store(checks=[…])`.

    It folds each log with its algorithm and holds every request against the decision at that
    point, and every model request against its recorded digest. Runs of other algorithms pass.
    """
    by_name = {algorithm.name: algorithm for algorithm in algorithms}

    def check(run: RunInfo, events: Sequence[Event]) -> Iterator[Fault]:
        algorithm = by_name.get(run.algorithm)
        if algorithm is None or not events:
            return
        seq = 1
        try:
            state = begin(algorithm, events[0])
            for event in events[1:]:
                seq = event.seq
                if event.kind in k.REQUESTS and not event.data.get("unstarted"):
                    decided = {r.key: r for r in next_step(algorithm, state).requests}
                    yield from _hold(event, decided.get(event.data["key"]))
                state = evolve(algorithm, state, event)
        except (KeyError, TypeError, ValueError) as error:
            yield Fault(run.run_id, seq, "fold", f"cannot be folded: {error!r}")

    return check


def _hold(event: Event, decided: Request | None) -> Iterator[Fault]:
    if decided is None:
        message = f"{event.data['key']!r} is not what the log before it asks for"
        yield Fault(event.run_id, event.seq, "request-decided", message)
    elif isinstance(decided, LLMRequest):
        again = decided.digest(event.data.get("tools_digest", ""))
        if again != event.data["digest"]:
            message = (
                f"{decided.key!r} renders to {again[:12]}, recorded {event.data['digest'][:12]}"
            )
            yield Fault(event.run_id, event.seq, "request-digest", message)

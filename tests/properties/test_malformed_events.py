"""Payloads of any JSON: a store refuses what readers could not read, and no fold ever raises."""

import asyncio
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lib.algorithms import React
from lib.engine.api.waiting import pending_in
from lib.engine.core.algorithm import NULL_ALGORITHM
from lib.engine.core.decide import next_step, rehydrate
from lib.engine.core.session import SessionLoop
from lib.engine.core.state import fold
from lib.errors import InvalidEvent
from lib.events import Event, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.events.payloads import fits
from lib.events.runs import fold as project
from lib.events.verify import log_faults
from lib.observe import spans_from_events
from lib.testing.event_store.kit import AT

KINDS = sorted(
    value
    for name, value in vars(k).items()
    if name.isupper() and str(value).startswith("lib.") and value != k.PREFIX
)
NAMES = [
    "algorithm",
    "input",
    "config",
    "budget",
    "root",
    "parent",
    "request",
    "upto",
    "worker",
    "epoch",
    "error",
    "outcome",
    "output",
    "reason",
    "signal_id",
    "key",
    "digest",
    "model",
    "provider",
    "settings",
    "tools_digest",
    "provider_state",
    "reply",
    "attempts",
    "misfit",
    "empty",
    "usage",
    "call_id",
    "name",
    "args",
    "effects",
    "idempotency_key",
    "invalid",
    "unstarted",
    "truncated",
    "code",
    "message",
    "approved",
    "comment",
    "run_id",
    "spend",
    "covers",
    "text",
    "value",
    "meta",
    "source",
    "span_id",
    "stage",
    "verdict",
    "tokens",
    "cost",
    "llm_calls",
    "tool_calls",
    "seconds",
    "depth",
    "parts",
    "role",
    "content",
    "type",
    "id",
    "arguments",
    "stop",
    "state",
    "input_tokens",
    "max_steps",
    "system",
    "tools",
    "turn_budget",
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([2**70, -(2**70), 1.5, -0.5, 1e300, "", "a", "llm/1", "tool/1/c", "user"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=8,
)
MESSAGES: list[dict[str, str]] = [{"role": "user", "content": "go"}]
CALL: dict[str, Any] = {"type": "tool_call", "id": "c", "name": "look", "arguments": {}}
LIKELY: dict[str, Any] = {
    "key": st.sampled_from(["llm/1", "tool/1/c", "t1"]),
    "call_id": st.just("c"),
    "signal_id": st.just("t1"),
    "name": st.just("look"),
    "args": st.just(dict[str, Any]()),
    "input": st.just(MESSAGES),
    "reply": st.just({"parts": [CALL]}) | st.fixed_dictionaries({"parts": JSON, "usage": JSON}),
    "approved": st.booleans(),
    "outcome": st.just("COMPLETED"),
    "run_id": st.just("child"),
    "algorithm": st.just("react"),
}


@st.composite
def payloads(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the fields of any kind, each of them as it should be, or anything."""
    data = draw(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4))
    for name, likely in LIKELY.items():
        if draw(st.integers(0, 7)):
            data[name] = draw(likely if draw(st.integers(0, 7)) else JSON)
    return data


EVENTS = st.tuples(st.sampled_from(KINDS), payloads())


def log(*entries: tuple[str, dict[str, Any]]) -> list[Event]:
    return [Event("r", seq, kind, data, AT) for seq, (kind, data) in enumerate(entries, 1)]


def read_by_all(events: list[Event]) -> None:
    """Fold and decide with every algorithm there is, and read all that is read of a log."""
    algorithms: list[Any] = [React(), React(provider_state=True), SessionLoop(), NULL_ALGORITHM]
    for algorithm in algorithms:
        state = fold(algorithm, events)
        next_step(algorithm, state)
        next_step(algorithm, state._replace(cancel_reason="enough"))
        assert state.granted is not None
        rehydrate(algorithm, events)
        if isinstance(algorithm, React):
            algorithm.conversation(state.loop)
    pending_in(events)
    spans_from_events(events)


@given(payloads(), st.lists(EVENTS, max_size=6))
def test_every_reader_reads_malformed_events_of_older_releases(
    start: dict[str, Any], rest: list[tuple[str, dict[str, Any]]]
) -> None:
    events = log((k.RUN_STARTED, start), *rest)
    read_by_all(events)

    malformed = {event.seq for event in events if not fits(event.kind, event.data)}
    assert set(fold(NULL_ALGORITHM, events).malformed) == malformed


@given(st.lists(EVENTS.filter(lambda each: each[0] != k.RUN_STARTED), max_size=6))
def test_every_payload_that_a_store_accepts_is_readable_by_every_reader(
    entries: list[tuple[str, dict[str, Any]]],
) -> None:
    async def main() -> list[Event]:
        store = MemoryEventStore()
        await store.setup()
        start = NewEvent(k.RUN_STARTED, {"algorithm": "react", "input": MESSAGES}, AT)
        await store.append("r", [start], expected=0)
        for kind, data in entries:
            info = await store.run("r")
            assert info is not None
            if info.status == "closed" and not k.is_signal(kind):
                continue
            with suppress(InvalidEvent):
                await store.append("r", [NewEvent(kind, data, AT)], expected=info.head)
        return await store.read("r")

    events = asyncio.run(main())
    assert fold(NULL_ALGORITHM, events).malformed == ()
    read_by_all(events)


@given(EVENTS)
def test_verification_finds_exactly_what_a_store_would_refuse(
    entry: tuple[str, dict[str, Any]],
) -> None:
    events = log((k.RUN_STARTED, {"algorithm": "react", "input": MESSAGES}), entry)
    info = project(events[:1])

    found = [fault.seq for fault in log_faults(info, events) if fault.rule == "payload"]
    assert found == ([] if fits(*entry) else [2])

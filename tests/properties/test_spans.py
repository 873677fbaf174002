"""Laws of spans over random logs: what a log says, its spans say, at every moment and for good."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lib._util.json import canonical
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.events.codec import event_from_json, event_to_json
from lib.events.rules import log_faults
from lib.observe import Span, span_id_of, spans_from_events
from lib.observe import attributes as a
from lib.observe.spans.readers import READERS
from lib.testing.aio import run
from lib.testing.logs import logs, store_log, traces

SECRET = "hunter2-\U0001f511-swordfish"
limits = st.integers(0, 60) | st.just(4000)


def as_bytes(spans: Sequence[Span]) -> bytes:
    def plain(value: Any) -> Any:
        return value.isoformat() if isinstance(value, datetime) else value

    def fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: plain(value) for name, value in pairs}

    return canonical([asdict(span, dict_factory=fields) for span in spans]).encode()


@given(traces())
def test_the_logs_that_these_laws_are_shown_on_keep_every_rule_of_a_log(drawn: list[list[Event]]):
    async def main() -> None:
        store = MemoryEventStore()
        await store.setup()
        for log in drawn:
            await store_log(store, log)
        for info in await store.runs():
            assert log_faults(info, await store.read(info.run_id)) == []

    run(main())


@given(logs(), st.booleans(), limits)
def test_a_log_gives_the_same_bytes_whenever_it_is_read(
    log: list[Event], capture: bool, limit: int
):
    again = [event_from_json(event_to_json(event)) for event in log]

    spans = spans_from_events(log, capture_content=capture, content_limit=limit)

    assert as_bytes(spans) == as_bytes(
        spans_from_events(again, capture_content=capture, content_limit=limit)
    )


@given(logs(), st.booleans())
def test_a_closed_span_never_changes_whatever_comes_after_it(log: list[Event], capture: bool):
    spans = spans_from_events(log, capture_content=capture)

    for size in range(len(log)):
        before = spans_from_events(log[:size], capture_content=capture)
        assert [span.span_id for span in before] == [span.span_id for span in spans[: len(before)]]
        closed = [(old, new) for old, new in zip(before, spans, strict=False) if old.end]
        assert [old for old, _ in closed] == [new for _, new in closed]


@given(logs())
def test_open_are_exactly_the_spans_of_what_the_log_leaves_open(log: list[Event]):
    opened: dict[tuple[str, str], None] = {("run", ""): None}
    asked: set[str] = set()
    for event in log:
        family = event.kind.removeprefix("lib.").rpartition(".")[0]
        key = event.data.get("key") or event.data.get("signal_id", "")
        if event.kind == k.RUN_COMPLETED:
            opened = {pair: None for pair in opened if pair[0] == "turn"}
            break
        if event.kind in k.REQUESTS:
            opened.pop(("approval", key), None)
            opened[family, key] = None
        elif (
            event.kind in {k.APPROVAL_REQUESTED, k.TURN_REQUESTED}
            and f"{family}/{key}" not in asked
        ):
            asked.add(f"{family}/{key}")
            opened[family, key] = None
        elif event.kind in k.RESULTS | {k.APPROVAL_DECIDED, k.TURN_COMPLETED}:
            opened.pop((family, key), None)

    spans = spans_from_events(log)

    assert {span.span_id for span in spans if span.end is None} == {
        span_id_of("run", family, key) for family, key in opened if family != "child"
    }


@given(traces())
def test_every_parent_comes_before_its_children_and_none_is_missing(drawn: list[list[Event]]):
    by_run = {log[0].run_id: log for log in drawn}
    spans = [
        span
        for log in drawn
        for span in spans_from_events(
            log, parent_events=by_run.get(log[0].data.get("parent", {}).get("run_id"))
        )
    ]

    known: set[str | None] = {None}
    for span in spans:
        assert span.parent_id in known
        assert span.span_id not in known
        known.add(span.span_id)
    assert len({span.trace_id for span in spans}) == 1
    assert [span.parent_id for span in spans].count(None) == 1


@given(logs(content=st.just(SECRET)))
def test_nothing_that_was_said_is_in_a_span_unless_content_is_captured(log: list[Event]):
    spans = spans_from_events(log)

    assert SECRET not in repr(spans)
    assert SECRET in repr(spans_from_events(log, capture_content=True))


@given(logs(content=st.text(max_size=200)), limits)
def test_what_is_captured_never_exceeds_the_limit(log: list[Event], limit: int):
    def size(value: Any) -> int:
        return len(value) if isinstance(value, str) else len(canonical(value))

    for span in spans_from_events(log, capture_content=True, content_limit=limit):
        shown = [span.input, span.output, span.status_message]
        shown += [event.attributes.get(a.REASON) for event in span.events]
        assert all(size(value) <= limit for value in shown if value is not None)


@given(logs())
def test_the_totals_of_a_run_are_the_sums_over_its_leaves(log: list[Event]):
    root, *leaves = spans_from_events(log)

    for usage, names in a.USAGE.items():
        numbers = [leaf.attributes[names[0]] for leaf in leaves if names[0] in leaf.attributes]
        assert root.attributes.get(a.TOTALS[usage]) == (sum(numbers) if numbers else None)
        assert not root.attributes.keys() & set(names)
    calls = {
        a.TOTALS["llm_calls"]: [leaf for leaf in leaves if leaf.kind == "llm"],
        a.TOTALS["tool_calls"]: [
            leaf
            for leaf in leaves
            if leaf.kind == "tool" and a.TOOL_UNSTARTED not in leaf.attributes
        ],
    }
    assert {name: root.attributes.get(name, 0) for name in calls} == {
        name: len(found) for name, found in calls.items()
    }


@given(logs())
def test_kinds_without_a_reader_and_events_after_the_end_change_nothing(log: list[Event]):
    read = [event for event in log if event.kind in {k.RUN_STARTED, *READERS}]
    ends = [place for place, event in enumerate(read, 1) if event.kind == k.RUN_COMPLETED]

    assert spans_from_events(log) == spans_from_events(read[: ends[0] if ends else None])


@given(logs())
def test_time_never_runs_backwards_in_a_span_even_when_clocks_do(log: list[Event]):
    assert all(span.end is None or span.start <= span.end for span in spans_from_events(log))

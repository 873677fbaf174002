"""Laws of spans over random logs: what a log says, its spans say, at every moment and for good."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fakes.random_logs import logs, traces
from lib._util.json import canonical
from lib.evals import score_of
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.events.codec import event_from_json, event_to_json
from lib.events.verify import log_faults
from lib.observe import Span, span_id_of, spans_from_events
from lib.observe import attributes as a
from lib.observe.span import SPAN_KINDS
from lib.observe.spans.derive import READERS
from lib.testing.logs import make_log, store_log

SECRET = "hunter2-\U0001f511-swordfish"
NOTHING: dict[str, Any] = {}
limits = st.integers(0, 60) | st.just(4000)


def as_bytes(spans: Sequence[Span]) -> bytes:
    def plain(value: Any) -> Any:
        return value.isoformat() if isinstance(value, datetime) else value

    def fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: plain(value) for name, value in pairs}

    return canonical([asdict(span, dict_factory=fields) for span in spans]).encode()


@given(traces())
async def test_generated_logs_verify(
    drawn: list[list[Event]],
):
    store = MemoryEventStore()
    await store.setup()
    for log in drawn:
        await store_log(store, log)
    for info in await store.runs():
        assert log_faults(info, await store.read(info.run_id)) == []


@given(logs(), st.booleans(), limits)
def test_spans_of_a_log_are_the_same_bytes_at_each_reading(
    log: list[Event], capture: bool, limit: int
):
    again = [event_from_json(event_to_json(event)) for event in log]

    spans = spans_from_events(log, capture_content=capture, content_limit=limit)

    derived = spans_from_events(again, capture_content=capture, content_limit=limit)
    assert as_bytes(spans) == as_bytes(derived)
    assert repr(spans) == repr(derived)


@given(traces(), st.booleans(), limits)
def test_a_closed_span_never_changes_whatever_comes_after_it(
    drawn: list[list[Event]], capture: bool, limit: int
):
    log, above = drawn[-1], drawn[0]
    shown: dict[str, Any] = {"capture_content": capture, "content_limit": limit}
    spans = spans_from_events(log, parent_events=above, **shown)

    for size in range(len(log)):
        before = spans_from_events(log[:size], parent_events=above, **shown)
        assert [span.span_id for span in before] == [span.span_id for span in spans[: len(before)]]
        closed = [(old, new) for old, new in zip(before, spans, strict=False) if old.end]
        assert [repr(old) for old, _ in closed] == [repr(new) for _, new in closed]


@given(traces())
def test_a_child_does_not_move_when_its_parents_log_grows(drawn: list[list[Event]]):
    above, log = drawn[0], drawn[-1]
    key = log[0].data.get("parent", NOTHING).get("key")
    kinds = {k.TOOL_REQUESTED, k.CHILD_REQUESTED, k.TURN_REQUESTED}
    starters = [event for event in above if event.kind in kinds]
    request = [
        event.seq
        for event in starters
        if key in (event.data.get("key"), event.data.get("signal_id"))
    ]
    spans = spans_from_events(log, parent_events=above)

    for size in range(min(request, default=0), len(above)):
        assert spans_from_events(log, parent_events=above[:size]) == spans


@given(logs())
def test_once_a_run_has_ended_only_scores_add_to_its_spans_and_none_is_open(log: list[Event]):
    ends = [event.seq for event in log if event.kind == k.RUN_COMPLETED]
    spans = spans_from_events(log)

    for seq in ends:
        ended = spans_from_events(log[:seq])
        assert spans[: len(ended)] == ended
        assert all(span.end is not None for span in spans)
        assert {span.kind for span in spans[len(ended) :]} <= {"evaluator"}


@given(logs())
def test_each_judgement_is_one_span_whenever_and_however_often_it_comes(log: list[Event]):
    scores = [event for event in log if event.kind == k.EVAL_SCORE and score_of(event)]
    keys = dict.fromkeys(event.data["signal_id"] for event in scores)

    spans = spans_from_events(log)

    found = [span for span in spans if span.kind == "evaluator"]
    assert [span.span_id for span in found] == [span_id_of("run", "score", key) for key in keys]
    assert all(span.start == span.end for span in found)


@given(logs())
def test_exactly_the_unfinished_work_of_a_log_has_open_spans(log: list[Event]):
    opened: dict[tuple[str, str], None] = {("run", ""): None}
    request: set[str] = set()
    for event in log:
        family = event.kind.removeprefix("lib.").rpartition(".")[0].replace("child", "tool")
        key = event.data.get("key") or event.data.get("signal_id", "")
        if event.kind == k.RUN_COMPLETED:
            opened = {}
            break
        if event.kind in k.REQUESTS:
            opened.pop(("approval", key), None)
            opened[family, key] = None
        elif (
            event.kind in {k.APPROVAL_REQUESTED, k.TURN_REQUESTED}
            and f"{family}/{key}" not in request
        ):
            request.add(f"{family}/{key}")
            opened[family, key] = None
        elif event.kind in k.RESULTS | {k.APPROVAL_DECIDED, k.TURN_COMPLETED}:
            opened.pop((family, key), None)

    spans = spans_from_events(log)

    assert {span.span_id for span in spans if span.end is None} == {
        span_id_of("run", family, key) for family, key in opened
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

    span_ids: set[str | None] = {None}
    for span in spans:
        assert span.parent_id in span_ids
        assert span.span_id not in span_ids
        span_ids.add(span.span_id)
    assert len({span.trace_id for span in spans}) == 1
    assert [span.parent_id for span in spans].count(None) == 1


@given(traces(content=st.just(SECRET), words=st.just(SECRET)), limits)
def test_spans_hold_content_only_if_it_is_captured(drawn: list[list[Event]], limit: int):
    for log in drawn:
        for result in (log, log[: len(log) // 2 + 1]):
            spans = spans_from_events(result, parent_events=drawn[0], content_limit=limit)
            assert SECRET not in repr(spans)
            assert canonical(SECRET)[1:-1].encode() not in as_bytes(spans)
            assert SECRET in repr(spans_from_events(result, capture_content=True))


@given(logs(content=st.just("swordfish")))
def test_content_that_looks_like_an_identifier_is_not_exported(log: list[Event]):
    labels = {event.data.get("value") for event in log if event.kind == k.EVAL_SCORE}

    assert "swordfish" in labels or "swordfish" not in repr(spans_from_events(log))


@given(logs(content=st.text(max_size=200), words=st.text(max_size=200)), limits)
def test_captured_content_never_exceeds_the_limit(log: list[Event], limit: int):
    def size(value: Any) -> int:
        return len(value) if isinstance(value, str) else len(canonical(value))

    for span in spans_from_events(log, capture_content=True, content_limit=limit):
        shown = [span.input, span.output, span.status_message]
        shown += [event.attributes.get(a.REASON) for event in span.events]
        shown += [span.attributes.get(name) for name in (a.EVALUATION_WHY, a.EVALUATION_META)]
        assert all(size(value) <= limit for value in shown if value is not None)
        texts = [value for value in span.attributes.values() if isinstance(value, str)]
        assert all(len(value) <= max(limit, 128) for value in texts)


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


@given(logs(), st.booleans())
def test_unknown_kinds_and_fields_change_no_span(log: list[Event], capture: bool):
    spans = spans_from_events(log, capture_content=capture)

    read = [event for event in log if event.kind in {k.RUN_STARTED, *READERS}]
    strange = {"x-new": SECRET, "spend": {"tokens": 1}, "reason_code": 7}
    newer = [replace(event, data={**strange, **event.data}) for event in log]
    assert spans_from_events(read, capture_content=capture) == spans
    assert spans_from_events(newer, capture_content=capture) == spans


junk = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers(), max_size=2)


@given(logs(max_steps=12), st.data())
def test_a_log_with_any_payload_has_spans(log: list[Event], data: st.DataObject):
    keep = {"algorithm", "root", "parent"}
    for event in log:
        for field in sorted(event.data.keys() - keep):
            match data.draw(st.integers(0, 3)):
                case 0:
                    event.data[field] = data.draw(junk)
                case 1:
                    del event.data[field]
                case _:
                    pass

    root, *spans = spans_from_events(log, capture_content=True)

    span_ids = {root.span_id}
    for span in spans:
        assert span.parent_id in span_ids
        assert span.span_id not in span_ids
        span_ids.add(span.span_id)
        assert span.kind in SPAN_KINDS
        assert list(span.attributes) == sorted(span.attributes)


@given(st.lists(st.sampled_from(sorted(READERS)), max_size=6))
def test_every_kind_can_come_without_a_payload(kinds: list[str]):
    start = (0, k.RUN_STARTED, {"algorithm": "support", "input": NOTHING})
    log = make_log(start, *((1, kind, NOTHING) for kind in kinds))

    assert spans_from_events(log, capture_content=True)[0].kind in {"agent", "session", "workflow"}


@given(logs())
def test_time_never_runs_backwards_in_a_span_even_when_clocks_do(log: list[Event]):
    assert all(span.end is None or span.start <= span.end for span in spans_from_events(log))

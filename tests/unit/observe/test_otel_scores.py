"""A score becomes a span below what was judged."""

from datetime import timedelta
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SpanExportResult

from lib.errors import ExportError
from lib.observe import LANGFUSE, OTelSink, Score
from lib.observe import attributes as a
from lib.observe.sink import ScoringSink
from lib.testing.aio import run
from lib.testing.clock import ManualClock
from lib.testing.sink import make_trace

from .otel_kit import AT, Exporter, Sending


async def test_a_score_becomes_a_span_without_length_below_what_was_judged():
    sending, root = Sending(), make_trace()[0]
    score = Score(name="quality", value=0.9, comment="why", source="llm", at=AT, meta={"v": 1})
    sink = OTelSink(sending)

    await sink.score(root.trace_id, [score], span_id="86e2ff7d92d1f6d9")

    ((span, attributes),) = sending.sent
    assert isinstance(sink, ScoringSink)
    assert sink.traits.scores_as_spans
    assert (span.name, span.kind, span.trace_id) == ("evaluate quality", "evaluator", root.trace_id)
    assert (span.start, span.end, span.parent_id) == (AT, AT, "86e2ff7d92d1f6d9")
    assert attributes == {
        "gen_ai.evaluation.explanation": "why",
        "gen_ai.evaluation.name": "quality",
        "gen_ai.evaluation.score.value": 0.9,
        "lib.evaluation.meta": '{"v":1}',
        "lib.evaluation.source": "llm",
        "lib.span.kind": "evaluator",
    }


@pytest.mark.parametrize(
    ("value", "number", "label"),
    [(True, 1.0, "pass"), (False, 0.0, "fail"), ("friendly", None, "friendly"), (2, 2.0, None)],
)
async def test_verdicts_are_sent_as_value_and_label(
    value: Any, number: float | None, label: str | None
):
    sending = Sending()

    await OTelSink(sending).score("a" * 32, [Score(name="x", value=value, at=AT)])

    ((_, attributes),) = sending.sent
    assert attributes.get(a.EVALUATION_VALUE) == number
    assert attributes.get(a.EVALUATION_LABEL) == label


async def test_the_score_of_a_trace_is_below_its_root_with_the_same_tenant_and_user():
    sending = Sending()
    sink, spans = OTelSink(sending), make_trace()

    await sink.export(spans)
    await sink.score(spans[0].trace_id, [Score(name="x", value=1, at=AT)])
    await sink.score("b" * 32, [Score(name="x", value=1, at=AT)])

    (under, attributes), (alone, others) = sending.sent[3:]
    assert under.parent_id == spans[0].span_id
    assert attributes["lib.run_id"] == spans[0].run_id
    assert attributes["lib.tenant"] == spans[0].tenant
    assert attributes["lib.trace.name"] == spans[0].name
    assert alone.parent_id is None
    assert "lib.trace.name" not in others


async def test_the_score_of_an_unknown_trace_does_not_name_it():
    sending = Sending()

    await OTelSink(sending, dialect=LANGFUSE).score("a" * 32, [Score(name="x", value=1, at=AT)])

    assert "langfuse.trace.name" not in sending.sent[0][1]


def test_ids_of_scores_are_fixed_by_trace_span_and_name():
    def ids(trace_id: str, name: str, span_id: str | None, value: float) -> str:
        sending = Sending()
        score = Score(name=name, value=value, at=AT + timedelta(seconds=value))
        run(OTelSink(sending).score(trace_id, [score], span_id=span_id))
        return sending.sent[0][0].span_id

    one = ids("a" * 32, "x", None, 1)

    assert one == ids("a" * 32, "x", None, 2)
    others = [
        ids("b" * 32, "x", None, 1),
        ids("a" * 32, "y", None, 1),
        ids("a" * 32, "x", "c" * 16, 1),
    ]
    assert len({one, *others}) == 4


async def test_a_score_without_a_time_has_the_present():
    sending = Sending()
    scores = [Score(name="x", value=1, at=AT), Score(name="y", value=1)]
    later = AT + timedelta(hours=1)

    await OTelSink(sending, clock=ManualClock(later)).score("a" * 32, scores)

    assert [(span.start, span.end) for span, _ in sending.sent] == [(AT, AT), (later, later)]


async def test_a_failure_reports_how_many_of_the_first_scores_were_taken():
    exporter = Exporter(*[SpanExportResult.SUCCESS] * 2, SpanExportResult.FAILURE)
    scores = [Score(name=name, value=1, at=AT) for name in "abcd"]

    with pytest.raises(ExportError) as raised:
        await OTelSink(exporter, batch_size=1).score("a" * 32, scores)

    assert raised.value.taken_scores == 2


async def test_no_scores_send_nothing():
    sending = Sending()

    await OTelSink(sending).score("a" * 32, [])

    assert sending.sent == []


class Forgetful(OTelSink):
    _max_roots = 2


async def test_only_so_many_roots_are_remembered():
    sending = Sending()
    sink = Forgetful(sending)

    for number in (1, 2, 1, 3):
        await sink.export(make_trace(number))
    sending.sent.clear()
    for number in (1, 2, 3):
        trace_id = make_trace(number)[0].trace_id
        await sink.score(trace_id, [Score(name="x", value=1, at=AT)])

    assert [span.parent_id is None for span, _ in sending.sent] == [False, True, False]

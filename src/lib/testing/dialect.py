"""The contract of dialects, for those of the library and for yours.

Subclass `DialectContract` and give it a fixture `dialect`:

    class TestMyDialect(DialectContract):
        @pytest.fixture
        def dialect(self) -> Dialect:
            return MY_DIALECT
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from lib.observe import Dialect, Span, SpanKind, span_id_of, trace_id_of
from lib.observe.span import SPAN_KINDS
from lib.testing.extra import pytest

_START: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
_SECRET: Final = "hunter2"  # noqa: S105 - must not appear
_CONTENT: Final = re.compile(
    r"messages?\b|(input|output)\.value|\.(input|output|arguments|result|documents|text)$"
    r"|documents|gen_ai\.(prompt|completion)|instructions|\bparameters$"
)
"""Names of attributes that hold messages, in one dialect or another."""

_USAGE: Final = {"gen_ai.usage.input_tokens": 1200, "gen_ai.usage.output_tokens": 30}
_INT64: Final = range(-(2**63), 2**63)


def make_span(kind: SpanKind, **fields: Any) -> Span:
    """Return a span of a kind as the log tells it, without content."""
    span = Span(
        trace_id=trace_id_of("run-1"),
        span_id=span_id_of("run-1", kind, ""),
        parent_id=span_id_of("run-1", "run", ""),
        name=f"{kind} x",
        kind=kind,
        start=_START,
        end=_START + timedelta(seconds=1),
        attributes={"lib.key": "k1", **({} if kind == "agent" else _USAGE)},
        run_id="run-1",
        tenant="acme",
        user="ann",
    )
    return replace(span, **fields)


def captured(span: Span) -> Span:
    """Return the span with content, whose text is the same everywhere."""
    question, answered = [{"role": "user", "content": _SECRET}], _SECRET
    if span.kind == "llm":
        parts = [{"type": "text", "text": _SECRET}]
        return replace(span, input=question, output={"role": "assistant", "parts": parts})
    return replace(
        span, input=question if span.kind == "agent" else {"q": _SECRET}, output=answered
    )


def odd_values() -> dict[str, Any]:
    """Return attributes that no backend would take as they are."""
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    return {
        "": "no name",
        "none": None,
        "surrogate \ud800": "\udfff and \ud800",
        "nul \x00": "a\x00b",
        "nan": math.nan,
        "infinite": [math.inf, 1.0],
        "large": 2**63,
        "small": -(2**70),
        "ratio": 0.5,
        "mixed": [1, "a", None, True, 2.5],
        "empty": [],
        "texts": ["a", "\ud800"],
        "deep": deep,
        "object": {"nested": {"\ud800": [2**70, math.nan, b"bytes", {1}]}},
        "bytes": b"\xff",
        "time": _START,
        "tuple": (1, 2),
        "lib.trace.tags": ["a", 1, None],
        "gen_ai.response.finish_reasons": [],
        "gen_ai.usage.input_tokens": math.nan,
        "gen_ai.usage.output_tokens": 2**70,
        "gen_ai.response.time_to_first_chunk": math.inf,
        "gen_ai.tool.definitions": [1, {"name": "\ud800"}],
        "lib.cost.usd": "free",
        "session.id": 7,
    }


def check_attributes(attributes: Mapping[str, Any]) -> None:
    """Assert that OpenTelemetry can hold these attributes, and any backend read them."""
    assert list(attributes) == sorted(attributes)
    for name, value in attributes.items():
        assert name, "an attribute has a name"
        _check_scalar(name, name)
        items = cast(list[Any], value) if isinstance(value, list) else [value]
        assert len({type(item).__name__ for item in items}) <= 1, (
            f"{name} holds values of several types"
        )
        for item in items:
            _check_scalar(item, name)


def _check_scalar(value: Any, name: str) -> None:
    assert isinstance(value, str | bool | int | float), f"{name} holds a {type(value).__name__}"
    if isinstance(value, str):
        assert "\x00" not in value, f"{name} has a NUL, which PostgreSQL refuses"
        value.encode()
    elif isinstance(value, float):
        assert math.isfinite(value), f"{name} is {value}"
    else:
        assert value in _INT64, f"{name} has more than 64 bits"


class DialectContract:
    """The contract of dialects; the fixture `dialect` is the one to test."""

    @pytest.fixture(params=SPAN_KINDS)
    def kind(self, request: pytest.FixtureRequest) -> SpanKind:
        return request.param

    def test_it_has_a_name(self, dialect: Dialect) -> None:
        assert dialect.name

    def test_every_kind_of_span_has_its_word_and_says_whose_it_is(
        self, dialect: Dialect, kind: SpanKind
    ) -> None:
        attributes = dialect.attributes(make_span(kind, attributes={"session.id": "s1"}))

        check_attributes(attributes)
        assert attributes["lib.run_id"] == "run-1"
        assert attributes["lib.span.kind"] == kind
        assert attributes["lib.tenant"] == "acme"
        assert attributes["session.id"] == attributes["gen_ai.conversation.id"] == "s1"
        assert attributes["user.id"] == "ann"

    def test_a_session_is_known_by_either_name(self, dialect: Dialect, kind: SpanKind) -> None:
        names = "session.id", "gen_ai.conversation.id"
        one, other = [dialect.attributes(make_span(kind, attributes={name: "s"})) for name in names]

        assert one == other

    def test_unknown_attributes_are_not_sent(self, dialect: Dialect, kind: SpanKind) -> None:
        span = make_span(kind, attributes={}, run_id="", tenant=None, user=None)

        attributes = dialect.attributes(span)

        check_attributes(attributes)
        assert attributes["lib.span.kind"] == kind
        assert not attributes.keys() & {"lib.run_id", "lib.tenant", "session.id", "user.id"}

    def test_equal_spans_give_equal_attributes(self, dialect: Dialect, kind: SpanKind) -> None:
        span = captured(make_span(kind))

        one, other = dialect.attributes(span), dialect.attributes(copy.deepcopy(span))

        assert list(one.items()) == list(other.items())

    def test_a_span_is_left_as_it_is(self, dialect: Dialect, kind: SpanKind) -> None:
        span = captured(make_span(kind, attributes=odd_values()))
        before = repr(span)

        dialect.attributes(span)

        assert repr(span) == before

    def test_content_is_sent_only_if_the_span_has_it(
        self, dialect: Dialect, kind: SpanKind
    ) -> None:
        bare, full = make_span(kind), captured(make_span(kind))

        sent = {name: str(value) for name, value in dialect.attributes(full).items()}

        assert sum(_SECRET in value for value in sent.values()) >= 2
        for name, value in dialect.attributes(bare).items():
            assert not _CONTENT.search(name) or value == "{}", f"{name} is sent without content"

    def test_usage_stands_on_leaves_only(self, dialect: Dialect, kind: SpanKind) -> None:
        used = {
            "gen_ai.usage.input_tokens": 98765,
            "lib.cost.usd": 98765.5,
            "lib.usage.input_tokens": 4,
        }

        sent = dialect.attributes(make_span(kind, attributes=used))

        counted = any("98765" in str(value) for value in sent.values())
        assert counted == (kind not in {"agent", "session", "workflow"})
        assert 4 in sent.values()

    def test_odd_values_become_valid_ones(self, dialect: Dialect, kind: SpanKind) -> None:
        odd = odd_values()
        fields: dict[str, Any] = {
            "name": "\ud800",
            "status": "error",
            "status_message": "\x00\ud800",
            "attributes": odd,
            "run_id": "\ud800",
            "tenant": "\ud800",
            "user": "\x00",
        }

        contents: list[Any] = [odd, [odd], "\ud800", 2**70, math.nan, b"", [[]]]
        for content in contents + _odd_messages():
            span = make_span(kind, **fields, input=content, output=content)
            check_attributes(dialect.attributes(span))

    def test_a_long_conversation_stays_within_bounds(
        self, dialect: Dialect, kind: SpanKind
    ) -> None:
        messages = [{"role": "user", "content": f"message {number}"} for number in range(1000)]
        span = make_span(kind, input=messages, output=messages)

        assert len(dialect.attributes(span)) < 1000


def _odd_messages() -> list[Any]:
    """Return messages of which something was cut off, or of which nothing can be made."""
    parts: list[Any] = [
        {},
        {"type": ["list"]},
        {"type": "text"},
        {"type": "text", "text": {"a": "\ud800"}},
        {"type": "thinking"},
        {"type": "tool_call"},
        {"type": "tool_call", "id": 2**70, "name": None, "arguments": "{", "invalid": "{"},
        {"type": "tool_result"},
        {"type": "tool_result", "call_id": {}, "content": [math.nan], "is_error": True},
        {"type": "image", "data": "aGk…"},
        {"type": "image", "data": "aGk=", "media_type": "image/png"},
        {"type": "audio", "blob": {"$blob": "00", "size": 1}},
        {"type": "file", "blob": "…", "url": 7},
        {"type": "of tomorrow", "\ud800": 2**70},
        "no part",
    ]
    return [
        [{"role": "user"}],
        [{"role": "assistant", "parts": parts}],
        [{"role": "tool", "parts": [part]} for part in parts],
        {"role": "user", "content": "x", "parts": parts, "more": 1},
        [{"role": 7, "content": "x"}],
        [{"role": "user", "parts": "…"}],
        [{"role": "user", "content": "x"}, "…"],
        {"query": ["a"], "documents": parts},
        [{"id": 2**70, "score": math.nan, "text": 7, "meta": "\ud800"}],
    ]

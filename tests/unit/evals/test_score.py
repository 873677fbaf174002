"""Scores: what they are, when they pass, and how they get into a log and out of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lib.evals import Score, score_event, score_of
from lib.events import Event, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.events.codec import event_from_json, event_to_json
from lib.testing.logs import make_log, store_log

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)

values = st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
plain = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text())
times = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds have no zone, draws do
scores = st.builds(
    Score,
    name=st.text(min_size=1).filter(lambda name: not name.isspace()),
    value=values,
    comment=st.none() | st.text(),
    source=st.sampled_from(["code", "llm", "human"]),
    at=times,
    meta=plain,
)


def stored(new: NewEvent) -> Event:
    """Return the event as a store gives it back."""
    event = Event("run", 2, new.kind, new.data, new.at, "acme", None)
    return event_from_json(event_to_json(event))


@pytest.mark.parametrize(
    ("value", "numeric", "passed"),
    [
        (0.5, 0.5, True),
        (0.49999999999999994, 0.49999999999999994, False),
        (0, 0.0, False),
        (1, 1.0, True),
        (7.5, 7.5, True),
        (-1.0, -1.0, False),
        (True, 1.0, True),
        (False, 0.0, False),
        ("good", None, None),
        ("", None, None),
        ("0.9", None, None),
        ("true", None, None),
    ],
)
def test_numbers_pass_from_one_half_on_verdicts_say_so_and_labels_do_neither(
    value: Any, numeric: float | None, passed: bool | None
) -> None:
    score = Score(name="quality", value=value)

    assert (score.numeric, score.passed) == (numeric, passed)


@pytest.mark.parametrize(
    ("scored", "kind"), [(True, bool), (False, bool), (1, float), (0.0, float), ("1", str)]
)
def test_a_verdict_stays_a_verdict_and_a_number_a_number(scored: Any, kind: type) -> None:
    value = Score(name="quality", value=scored).value

    assert (type(value), value) == (kind, scored)


@pytest.mark.parametrize(
    "fields",
    [
        {"value": float("nan")},
        {"value": float("inf")},
        {"value": float("-inf")},
        {"value": None},
        {"value": [1]},
        {"name": ""},
        {"name": " \t\n"},
        {"source": "robot"},
        {"at": datetime(2026, 1, 1)},  # noqa: DTZ001 - that is what is refused
        {"score": 1},
    ],
)
def test_what_is_no_score_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Score.model_validate({"name": "quality", "value": 1, **fields})


def test_a_score_has_its_defaults_and_does_not_change() -> None:
    meta = {"judge": "v1"}
    score = Score(name="quality", value=1, meta=meta)

    assert (score.comment, score.source, score.at) == (None, "code", None)
    for name in Score.model_fields:
        with pytest.raises(ValidationError):
            setattr(score, name, None)
    meta["judge"] = "v2"
    assert score.meta == {"judge": "v1"}


@given(scores)
def test_a_score_comes_out_of_a_log_as_it_went_in(score: Score) -> None:
    event = stored(score_event(score, signal_id="s", now=NOW))

    assert event.kind == k.EVAL_SCORE
    assert score_of(event) == score


@given(scores)
def test_a_score_is_json(score: Score) -> None:
    assert Score.model_validate_json(score.model_dump_json()) == score


def test_the_event_of_a_score_omits_defaults() -> None:
    bare = score_event(Score(name="quality", value=True), signal_id="s", now=NOW)
    full = score_event(
        Score(name="quality", value="good", comment="why", source="human", meta={"a": 1}),
        signal_id="s",
        now=NOW,
        span_id="00f067aa0ba902b7",
    )

    assert bare == NewEvent(k.EVAL_SCORE, {"signal_id": "s", "name": "quality", "value": True}, NOW)
    assert full.data == {
        "signal_id": "s",
        "name": "quality",
        "value": "good",
        "comment": "why",
        "source": "human",
        "meta": {"a": 1},
        "span_id": "00f067aa0ba902b7",
    }


def test_a_time_of_its_own_comes_before_the_moment_of_recording() -> None:
    own = datetime(2025, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))

    event = stored(score_event(Score(name="quality", value=1, at=own), signal_id="s", now=NOW))

    score = score_of(event)
    assert event.at == own
    assert score is not None
    assert score.at == own


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"text": "not ours"},
        {"signal_id": "s", "name": "quality"},
        {"signal_id": "s", "value": 1},
        {"signal_id": "s", "name": "quality", "value": None},
        {"signal_id": "s", "name": "", "value": 1},
        {"signal_id": "s", "name": "quality", "value": 1, "source": "of a later release"},
        {"signal_id": "s", "name": "quality", "value": 1, "meta": "text"},
    ],
)
def test_an_unreadable_event_has_no_score(data: dict[str, Any]) -> None:
    assert score_of(Event("run", 2, k.EVAL_SCORE, data, NOW)) is None


def test_fields_of_a_later_release_are_ignored() -> None:
    new = score_event(Score(name="quality", value=1), signal_id="s", now=NOW)
    event = stored(replace(new, data={**new.data, "of a later release": 1}))

    assert score_of(event) == Score(name="quality", value=1, at=NOW)


async def test_a_score_is_appended_to_a_run_that_has_ended_and_does_not_open_it_again() -> None:
    log = make_log(
        (0, k.RUN_STARTED, {"algorithm": "react", "input": []}),
        (1, k.RUN_COMPLETED, {"outcome": "COMPLETED"}),
    )

    store = MemoryEventStore()
    await store.setup()
    await store_log(store, log)
    new = score_event(Score(name="quality", value=0.5), signal_id="s", now=NOW)

    (event,) = await store.append("run", [new], expected=None)

    info = await store.run("run")
    assert info is not None
    assert (event.seq, info.outcome, info.ready) == (3, "COMPLETED", False)
    assert event.tenant == "acme"

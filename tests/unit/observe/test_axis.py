"""Tests the positions of spans in time."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.observe import Span, SpanEvent
from lib.observe.view.axis import Axis, Stretch, Tick, axis_of, label, stretch, ticks
from lib.testing.sink import make_trace

ROOT = make_trace()[0]


def span(start_s: float, end_s: float | None) -> Span:
    end = None if end_s is None else ROOT.start + timedelta(seconds=end_s)
    return replace(ROOT, start=ROOT.start + timedelta(seconds=start_s), end=end)


def test_the_axis_goes_from_the_first_start_to_the_last_thing_that_happened():
    late = replace(span(1, None), events=[SpanEvent("moment", span(7, None).start)])

    assert axis_of([span(0, 4), span(-2, 1), late]) == Axis(span(-2, None).start, 9_000_000)


def test_a_score_that_comes_later_does_not_make_the_axis_longer_and_lies_at_its_end():
    score = replace(span(72_000, 72_000), kind="evaluator")

    axis = axis_of([span(0, 4), score])

    assert axis == Axis(ROOT.start, 4_000_000)
    assert stretch(axis, score, 10) == Stretch(19, 19)
    assert axis.offset_us(span(-1, None).start) == 0
    assert axis_of([score]).length_us == 1


def test_a_trace_that_takes_no_time_has_an_axis_too():
    assert axis_of([span(0, 0)]) == Axis(ROOT.start, 1)
    assert axis_of([span(0, None)]).length_us == 1


@pytest.mark.parametrize(
    ("start", "end", "covered"),
    [
        (0, 10, Stretch(0, 20)),
        (0, 5, Stretch(0, 10)),
        (2.5, 5, Stretch(5, 10)),
        (2.6, 2.7, Stretch(5, 6)),
        (9.999, 10, Stretch(19, 20)),
        (4, 4, Stretch(8, 8)),
        (10, 10, Stretch(19, 19)),
        (6, None, Stretch(12, 20)),
        (10, None, Stretch(19, 19)),
    ],
)
def test_a_bar_covers_the_half_cells_that_its_span_touches(
    start: float, end: float | None, covered: Stretch
):
    axis = Axis(ROOT.start, 10_000_000)

    assert stretch(axis, span(start, end), 10) == covered


@given(st.integers(1, 10**15), st.integers(0, 10**15), st.integers(0, 10**15), st.integers(1, 300))
def test_no_bar_leaves_the_axis_and_none_that_takes_time_is_empty(
    length: int, start: int, end: int, cells: int
):
    start, end = sorted((start % (length + 1), end % (length + 1)))
    place = stretch(Axis(ROOT.start, length), span(start / 1e6, end / 1e6), cells)

    assert 0 <= place.begin <= place.end <= 2 * cells
    assert place.begin < 2 * cells
    began, ended = (round(moment / 1e6, 6) for moment in (start, end))
    assert place.begin < place.end or began == pytest.approx(ended, abs=2e-6, rel=1e-9)


@pytest.mark.parametrize(
    ("length_s", "cells", "labels"),
    [
        (0.0000001, 40, ["0"]),
        (0.000005, 40, ["0", "0.002 ms", "0.004 ms"]),
        (0.022, 50, ["0", "5 ms", "10 ms", "15 ms", "20 ms"]),
        (3, 60, ["0", "500 ms", "1 s", "1.5 s", "2 s", "2.5 s"]),
        (100, 50, ["0", "30 s", "1 m", "1 m 30 s"]),
        (200_000, 60, ["0", "12 h", "1 d", "1 d 12 h", "2 d"]),
        (86_400 * 300, 60, ["0", "50 d", "100 d", "150 d", "200 d", "250 d"]),
    ],
)
def test_ticks_are_at_times_that_people_count_in(length_s: float, cells: int, labels: list[str]):
    axis = Axis(ROOT.start, max(round(length_s * 1e6), 1))

    assert [tick.label for tick in ticks(axis, cells, apart=10)] == labels


@given(st.integers(1, 10**15), st.integers(1, 300), st.integers(1, 40))
def test_ticks_keep_their_distance_and_stay_on_the_axis(length: int, cells: int, apart: int):
    marks = ticks(Axis(ROOT.start, length), cells, apart=apart)

    assert marks[0] == Tick(0, "0")
    assert marks[-1].cell < cells
    assert all(after.cell - mark.cell >= apart - 1 for mark, after in pairwise(marks))


@pytest.mark.parametrize(
    ("time_us", "expected"),
    [
        (0, "0"),
        (1, "0.001 ms"),
        (999_999, "999.999 ms"),
        (1_500_000, "1.5 s"),
        (59_999_999, "59.999999 s"),
        (90_000_001, "1 m 30.000001 s"),
        (3_600_000_000, "1 h"),
        (3_630_000_000, "1 h 30 s"),
        (90_000_000_000, "1 d 1 h"),
    ],
)
def test_a_time_is_written_exactly(time_us: int, expected: str):
    assert label(time_us) == expected

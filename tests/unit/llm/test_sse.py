import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.llm.api.streams import END_OF_STREAM, EventDecoder, ServerEvent

STREAM = (
    "\ufeffdata: one\n\n"
    ": a comment\n\n"
    "event: error\r\ndata: {\r\ndata:}\r\n\r\n"
    "error: {}\nid: 7\n\n"
    "data\n\n"
    "data: ümläut  \n\n"
    "\ufeffdata: no field of ours\n\n"
    "data: without end"
).encode()
EVENTS = [
    ServerEvent("one"),
    ServerEvent("{\n}", "error"),
    ServerEvent("", "", {"error": "{}", "id": "7"}),
    ServerEvent(""),
    ServerEvent("ümläut  "),
    ServerEvent(other={"\ufeffdata": "no field of ours"}),
    ServerEvent("without end"),
]


def decode(chunks: list[bytes]) -> list[ServerEvent]:
    decoder = EventDecoder()
    return [event for chunk in [*chunks, END_OF_STREAM] for event in decoder.feed(chunk)]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12).map(sorted))
def test_events_are_the_same_wherever_the_stream_is_cut(cuts: list[int]):
    ends = [*cuts, len(STREAM)]

    assert decode([STREAM[a:b] for a, b in zip([0, *cuts], ends, strict=True)]) == EVENTS


@pytest.mark.parametrize("stream", [b"", b"\n\n\n", b": ping\n\n:\r\n\r\n"])
def test_a_stream_of_nothing_but_comments_has_no_events(stream: bytes):
    assert decode([stream]) == []


def test_bytes_that_are_no_text_do_not_stop_the_stream():
    assert decode([b"data: a\xffb\n\n"]) == [ServerEvent("a\ufffdb")]


def test_an_event_comes_as_soon_as_its_blank_line():
    decoder = EventDecoder()

    assert [*decoder.feed(b"data: a\n\ndata: b\n")] == [ServerEvent("a")]
    assert [*decoder.feed(b"\n")] == [ServerEvent("b")]

import pytest

from lib._util.trace_context import TraceContext, trace_context, trace_context_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADER = f"00-{TRACE}-{SPAN}-01"


def test_a_header_is_read_and_written_as_it_was():
    read = trace_context(HEADER, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")

    assert read is not None
    assert read == TraceContext(TRACE, SPAN, 1, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")
    assert read.traceparent == HEADER
    assert trace_context_of(read.to_json()) == read


def test_headers_that_the_standard_allows_are_read():
    allowed = {
        f" {HEADER}\t": 1,
        f"00-{TRACE}-{SPAN}-00": 0,
        f"00-{TRACE}-{SPAN}-03": 3,
        f"00-{TRACE}-{SPAN}-ff": 3,  # unknown flags are not sent on
        f"01-{TRACE}-{SPAN}-01": 1,  # a later version
        f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like": 1,
    }

    read = {header: trace_context(header) for header in allowed}

    assert read == {header: TraceContext(TRACE, SPAN, flags) for header, flags in allowed.items()}


def test_a_malformed_header_is_none():
    malformed = [
        "",
        "00",
        "x" * 100_000,
        HEADER[:-1],
        f"{HEADER}-",
        f"{HEADER}-more",
        f"{HEADER}0",
        f"ff-{TRACE}-{SPAN}-01",
        f"0-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0x",
        f"00_{TRACE}_{SPAN}_01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"cc-{TRACE}-{SPAN}-01.more",
        HEADER.replace("0", "\u0660"),
    ]

    assert [header for header in malformed if trace_context(header) is not None] == []


@pytest.mark.parametrize(
    "state",
    [
        "no equals sign",
        "UPPER=1",
        "a=1,a=2",
        "a=b=c",
        "a=\u00e9",
        "a=1\r\nx-evil: 1",
        ",".join(f"k{number}=1" for number in range(33)),
        f"a={'x' * 300}",
        f"a={'x' * 200},b={'x' * 200},c={'x' * 200}",
    ],
)
def test_a_malformed_tracestate_is_left_out(state: str):
    assert trace_context(HEADER, state) == TraceContext(TRACE, SPAN)


def test_empty_members_and_spaces_of_a_tracestate_are_taken_out():
    read = trace_context(HEADER, " a=1 , ,b=2\t,")

    assert read is not None
    assert read.state == "a=1,b=2"


def test_what_is_no_text_in_a_log_is_no_context():
    assert trace_context_of({"traceparent": 7}) is None
    assert trace_context_of({"traceparent": HEADER, "tracestate": 7}) == TraceContext(TRACE, SPAN)

"""Tests requests of the OTLP sender: order, batches, sizes, headers, and fair turns."""

import asyncio
import gzip
import itertools
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fakes.otlp_receiver import OTLPReceiver, attributes_of
from lib import __version__
from lib._util.clock import SYSTEM_CLOCK
from lib.observe import Span, SpanEvent
from lib.observe.dialect import AttributeValue
from lib.observe.otlp.sender import gzipped

from .sender_kit import KEY, START, Plain, make_spans, names, sender_to, sent, sizes

# -- what is sent ------------------------------------------------------------------------------


async def test_spans_arrive_in_order_in_one_compressed_request() -> None:
    receiver = await sent(make_spans(3, text="hello"))

    [request], [export] = receiver.requests, receiver.exports
    assert names(receiver) == ["span-0", "span-1", "span-2"]
    assert [attributes_of(span) for span in receiver.spans] == [{"text": "hello"}] * 3
    assert attributes_of(export.resource_spans[0].resource) == {"service.name": "shop"}
    assert request.encoding == "gzip"
    assert request.headers["authorization"] == KEY
    assert request.headers["user-agent"] == f"lib-agents/{__version__}"


async def test_nothing_to_send_sends_nothing() -> None:
    assert (await sent([])).requests == []


async def test_the_same_spans_are_the_same_bytes_again() -> None:
    bodies = [(await sent(make_spans(100))).requests[0].content for _ in range(2)]

    assert bodies[0] == bodies[1]


async def test_the_callers_headers_win_in_any_case() -> None:
    receiver = await sent(make_spans(1), headers={"User-Agent": "shop/1", "X-Scope-OrgID": "a"})

    assert receiver.requests[0].headers["user-agent"] == "shop/1"
    assert receiver.requests[0].headers["x-scope-orgid"] == "a"


async def test_a_request_has_at_most_so_many_spans_and_one_connection_takes_all() -> None:
    receiver = await sent(make_spans(1_100), batch_size=512)

    assert sizes(receiver) == [512, 512, 76]
    assert names(receiver) == [f"span-{n}" for n in range(1_100)]
    assert receiver.connections == 1


@pytest.mark.parametrize("max_bytes", [1, 1_000, 5_000, 5_321, 20_000])
async def test_a_request_is_no_larger_than_allowed_unless_one_span_is(max_bytes: int) -> None:
    spans = make_spans(40, text="x" * 500)

    receiver = await sent(spans, max_bytes=max_bytes)

    assert names(receiver) == [span.name for span in spans]
    for request, count in zip(receiver.requests, sizes(receiver), strict=True):
        assert count == 1 or len(request.body) <= max_bytes
    lengths = [len(request.body) for request in receiver.requests]
    fits = [a + b > max_bytes for a, b in itertools.pairwise(lengths)]
    assert all(fits)  # none could have taken the next one as well


async def test_a_span_larger_than_a_request_travels_alone_between_the_others() -> None:
    small = make_spans(5)
    spans = [*small[:2], replace(small[2], attributes={"text": "x" * 30_000}), *small[3:]]

    receiver = await sent(spans, max_bytes=10_000)

    assert sizes(receiver) == [2, 1, 2]
    assert names(receiver) == [span.name for span in spans]


async def test_text_that_is_no_unicode_and_numbers_beyond_json_arrive() -> None:
    odd: dict[str, Any] = {"lone": "a \ud800", "big": 2**70, "nan": float("nan")}
    [span] = make_spans(1)

    receiver = await sent([replace(span, name="\ud800", attributes=odd)])

    expected = {"lone": "a \ufffd", "big": str(2**70), "nan": "NaN"}
    assert attributes_of(receiver.spans[0]) == expected


# -- the event loop ----------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "most"), [("", 64), ("x" * 50_000, 3), ("é" * 100_000, 1)])
async def test_others_get_their_turn_while_spans_are_encoded(text: str, most: int) -> None:
    spans, dialect = make_spans(200, text=text), Plain()
    seen: list[int] = []

    async def watch() -> None:
        while True:
            seen.append(dialect.calls)
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop

    async with OTLPReceiver() as receiver:
        sender = sender_to(receiver.url)
        watching = asyncio.create_task(watch())
        await sender.send(spans, dialect=dialect, resource={})
        watching.cancel()
        await sender.aclose()

    assert dialect.calls == 200
    steps = [after - before for before, after in itertools.pairwise(seen)]
    assert max(steps) <= most


async def test_others_get_their_turn_while_a_request_is_compressed() -> None:
    turns = 0

    async def watch() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop

    watching = asyncio.create_task(watch())
    packed = await gzipped(bytes(4 << 20), SYSTEM_CLOCK)
    assert gzip.decompress(packed) == bytes(4 << 20)
    watching.cancel()
    assert turns >= 32


def huge_values() -> list[Any]:
    """Return what is too large to be encoded at once: one text, many texts, many numbers."""
    return ["x" * 300_000, {"a": [["x" * 3_000] * 100]}, [list(range(10_000))]]


@pytest.mark.parametrize("value", huge_values(), ids=["text", "texts", "numbers"])
@pytest.mark.parametrize("place", ["attributes", "input", "output", "events", "status_message"])
async def test_a_huge_span_is_encoded_in_a_thread(value: Any, place: str) -> None:
    threads = list[threading.Thread]()

    class Watching(Plain):
        def attributes(self, span: Span) -> Mapping[str, AttributeValue]:
            threads.append(threading.current_thread())
            return {}

    holding: Any = {
        "attributes": {"a": value},
        "events": [SpanEvent("moment", START, {"a": value})],
        "status_message": value if isinstance(value, str) else "x" * 300_000,
    }
    small, other = make_spans(2, text="x" * 50_000)
    spans = [small, replace(other, **{place: holding.get(place, value)})]

    async with OTLPReceiver() as receiver:
        sender = sender_to(receiver.url)
        await sender.send(spans, dialect=Watching(), resource={})
        await sender.aclose()
        assert names(receiver) == ["span-0", "span-1"]

    assert [thread is threading.main_thread() for thread in threads] == [True, False]


async def test_spans_are_left_as_they_are() -> None:
    spans = [replace(span, end=START + timedelta(seconds=1)) for span in make_spans(2, text="x")]
    before = [replace(span) for span in spans]

    await sent(spans)

    assert spans == before

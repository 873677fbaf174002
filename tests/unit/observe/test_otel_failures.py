"""Exporters that fail, hang or are closed."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
from opentelemetry.sdk.trace.export import SpanExportResult

from lib._util.clock import SYSTEM_CLOCK
from lib.errors import ExportError
from lib.observe import OTelSink
from lib.testing.aio import run
from lib.testing.sink import make_trace

from .otel_kit import Exporter, Sending, exported

# -- failures ----------------------------------------------------------------------------------


async def test_a_failure_of_the_exporter_reports_the_spans_taken_before():
    exporter = Exporter(SpanExportResult.SUCCESS, SpanExportResult.FAILURE)

    with pytest.raises(ExportError, match="Exporter did not deliver 1 spans") as raised:
        await OTelSink(exporter, batch_size=1).export(make_trace())

    assert raised.value.taken == {make_trace()[0].span_id}
    assert not raised.value.permanent


async def test_a_cancelled_export_reports_the_batches_taken():
    exporter, taken = Exporter(), list[str]()
    sink, spans = OTelSink(exporter, batch_size=2), [*make_trace(1), *make_trace(2)]

    def hang_then(span_ids: Sequence[str]) -> None:
        taken.extend(span_ids)
        exporter.go_on.clear()

    exporting = asyncio.create_task(sink.export(spans, on_taken=hang_then))
    while not taken:
        await SYSTEM_CLOCK.sleep(0.001)
    exporting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exporting
    exporter.go_on.set()

    assert taken == [span.span_id for span in spans[:2]]


async def test_a_sender_reports_the_spans_that_were_taken():
    taken, spans = list[str](), make_trace(end=False)

    await OTelSink(Sending()).export(spans, on_taken=taken.extend)
    with pytest.raises(ExportError):
        await OTelSink(Sending(ExportError("no"))).export(spans, on_taken=taken.extend)

    assert taken == [span.span_id for span in spans[1:]]  # the root has not ended


async def test_whatever_an_exporter_raises_is_the_cause_of_an_export_error():
    exporter = Exporter(RuntimeError("token=secret"))

    with pytest.raises(ExportError, match=r"^Exporter raised RuntimeError$") as raised:
        await OTelSink(exporter).export(make_trace())

    assert isinstance(raised.value.__cause__, RuntimeError)


async def test_a_span_that_has_no_id_fails_as_an_export_error():
    with pytest.raises(ExportError, match="raised ValueError"):
        await exported([replace(make_trace()[0], trace_id="no hex")])


async def test_a_hanging_exporter_whose_caller_gave_up_refuses_the_next_call_and_then_recovers():
    exporter = Exporter()
    exporter.go_on.clear()
    sink = OTelSink(exporter)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await sink.export(make_trace(1))
    with pytest.raises(ExportError, match="has not returned"):
        await sink.export(make_trace(2))
    exporter.go_on.set()
    await asyncio.to_thread(exporter.threads.pop().join, 10)
    await sink.export(make_trace(3))

    assert len(exporter.batches) == 2


def test_an_exporter_may_be_used_from_several_event_loops_and_is_called_by_one_at_a_time():
    exporter = Exporter()
    exporter.go_on.clear()
    sink = OTelSink(exporter)
    most = 0

    async def exports(first: int) -> None:
        await asyncio.gather(*[sink.export(make_trace(first + n)) for n in range(3)])

    async def main() -> None:
        others = [asyncio.to_thread(asyncio.run, exports(10 * n)) for n in (1, 2)]
        working = asyncio.gather(exports(0), *others)
        await asyncio.to_thread(exporter.go_on.wait, 0.1)
        nonlocal most
        most = sum(thread.name == "Exporter" for thread in threading.enumerate())
        exporter.go_on.set()
        await working

    run(main())

    assert most == 1
    assert len(exporter.batches) == 9


async def test_a_cancelled_waiter_passes_its_turn_on_but_no_earlier():
    exporter = Exporter()
    exporter.go_on.clear()
    sink = OTelSink(exporter)

    first = asyncio.create_task(sink.export(make_trace(1)))
    await asyncio.to_thread(exporter.go_on.wait, 0.05)
    second = asyncio.create_task(sink.export(make_trace(2)))
    third = asyncio.create_task(sink.export(make_trace(3)))
    await asyncio.to_thread(exporter.go_on.wait, 0.05)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert not third.done()
    exporter.go_on.set()
    await asyncio.gather(first, third)

    assert [batch[0].name for batch in exporter.batches] == [
        f"invoke_agent agent-{n}" for n in (1, 3)
    ]


# -- closing -----------------------------------------------------------------------------------


async def test_closing_flushes_and_shuts_down_once_and_then_nothing_is_taken():
    exporter = Exporter()
    sink = OTelSink(exporter)

    await sink.aclose()
    await sink.aclose()
    with pytest.raises(ExportError, match="Exporter is closed") as raised:
        await sink.export(make_trace())
    assert raised.value.permanent

    assert exporter.calls == ["flush", "shutdown"]


async def test_an_exporter_that_cannot_flush_is_shut_down_all_the_same_and_says_so():
    exporter = Exporter(flushes=False)
    sink = OTelSink(exporter)

    with pytest.raises(ExportError, match="could not deliver all spans before it closed"):
        await sink.aclose()
    await sink.aclose()

    assert exporter.calls == ["flush", "shutdown"]


async def test_closing_closes_the_sender():
    sending = Sending()

    await OTelSink(sending).aclose()

    assert sending.closed == 1

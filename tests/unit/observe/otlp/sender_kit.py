"""Shared by tests of the OTLP sender: spans to send, and a receiver on a real socket."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from fakes.otlp_receiver import Answer, OTLPReceiver
from lib.errors import ExportError
from lib.observe import Span, span_id_of, trace_id_of
from lib.observe.dialect import AttributeValue
from lib.observe.otlp import OTLPSender

KEY = "pk-secret-0123456789"
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
PROTOBUF = {"content-type": "application/x-protobuf"}


class Plain:
    """Gives a span's attributes as they are, and counts."""

    name = "plain"

    def __init__(self) -> None:
        self.calls = 0

    def attributes(self, span: Span) -> Mapping[str, AttributeValue]:
        self.calls += 1
        return span.attributes


def make_spans(count: int, *, text: str = "") -> list[Span]:
    root = trace_id_of("run")
    attributes = {"text": text} if text else {}
    return [
        Span(
            root,
            span_id_of("run", "tool", str(n)),
            None,
            f"span-{n}",
            "tool",
            START,
            START,
            attributes=attributes,
        )
        for n in range(count)
    ]


def sender_to(url: str, **options: Any) -> OTLPSender:
    headers = options.pop("headers", {"Authorization": KEY})
    return OTLPSender(url, headers=headers, **options)


async def send(sender: OTLPSender, spans: list[Span]) -> None:
    await sender.send(spans, dialect=Plain(), resource={"service.name": "shop"})


async def sent(spans: list[Span], *script: Answer, **options: Any) -> OTLPReceiver:
    """Send the spans to a receiver that answers so, and return it."""

    async def main() -> OTLPReceiver:
        async with OTLPReceiver(script=script) as receiver:
            sender = sender_to(receiver.url, **options)
            await send(sender, spans)
            await sender.aclose()
            return receiver

    return await main()


async def failure(
    spans: list[Span], *script: Answer, **options: Any
) -> tuple[ExportError, OTLPReceiver]:
    """Send the spans to a receiver that answers so, and return the error as well."""

    async def main() -> tuple[ExportError, OTLPReceiver]:
        async with OTLPReceiver(script=script, on_repeat="append") as receiver:
            sender = sender_to(receiver.url, **options)
            with pytest.raises(ExportError) as raised:
                await send(sender, spans)
            await sender.aclose()
            return raised.value, receiver

    return await main()


def names(receiver: OTLPReceiver) -> list[str]:
    return [span.name for span in receiver.spans]


def sizes(receiver: OTLPReceiver) -> list[int]:
    """Return how many spans each request had."""
    return [len(export.resource_spans[0].scope_spans[0].spans) for export in receiver.exports]

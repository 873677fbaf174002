"""The sink for OpenTelemetry, and the base of those for backends that speak it.

Source of the environment variables: OpenTelemetry specification, protocol/exporter.md,
configuration/sdk-environment-variables.md and resource/sdk.md, as of November 2026.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from itertools import takewhile
from typing import Any, ClassVar, Final, Literal, Protocol, get_args, overload
from urllib.parse import unquote, urlsplit

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib._util.contexts import AsyncClosable
from lib.errors import ExportError, MissingDriver
from lib.evals import Score
from lib.observe import attributes as a
from lib.observe.dialect import AttributeValue, Dialect
from lib.observe.dialects import GENAI
from lib.observe.dialects.values import clean
from lib.observe.otlp.sender import OTLPSender
from lib.observe.sink import OnTaken, SinkTraits
from lib.observe.sinks.scores import score_span, timed
from lib.observe.span import Span, SpanLink

_TRACES_PER_EXPORT: Final = 32
"""Small traces go together, since each request takes its time."""

_NAMELESS: Final = "lib"
"""The service whose name was not configured."""

_EXPORTER: Final = ("export", "force_flush", "shutdown")
"""The methods of an exporter of OpenTelemetry."""


RemoteParentAs = Literal["parent", "link"]
"""How a run refers to the application's span within which it was started.

parent       the parent of the run's span, which so is in the application's trace.
link         a link of the run's span, which begins a trace of its own.
"""


class Sender(Protocol):
    """Sends spans to a backend, as `OTLPSender` does."""

    async def send(
        self,
        spans: Sequence[Span],
        *,
        dialect: Dialect,
        resource: Mapping[str, AttributeValue],
        on_taken: OnTaken | None = None,
    ) -> None:
        """Deliver spans that have ended.

        Args:
            spans: parents before children.
            dialect: translates their attributes.
            resource: attributes of the service that they come from.
            on_taken: called with the ids of spans as soon as they are delivered.

        Raises:
            ExportError: they were not delivered, or not all of them.
        """
        ...

    async def aclose(self) -> None:
        """Deliver what is being sent and close; safe to repeat."""
        ...


class OTelSink(AsyncClosable):
    """Exports through any OpenTelemetry span exporter, or over OTLP/HTTP without one.

    A span is sent once, when it has ended: most backends keep the first of two spans of one id, or
    both.

    A subclass for one backend hands its own `Sender` to `__init__` as the exporter, with the
    backend's dialect, and may

    - replace `traits` after `__init__`: `updates` if its backend replaces spans, so that open spans
      are sent too; `destination` if the URL does not tell two of them apart; `scores_as_spans` if
      it overrides `score`;
    - override `_outgoing`, to change spans before they are sent;
    - override `score`, if its backend has scores of its own.

    Attributes:
        traits: by default spans are sent once, scores as spans, 32 traces per export; the
            destination names the type, the service and the endpoint, without anything secret.
    """

    traits: SinkTraits
    _max_roots: ClassVar[int] = 10_000
    """How many traces to know the root of, for scores that are in no log."""

    def __init__(
        self,
        exporter: Any = None,
        *,
        dialect: Dialect | None = None,
        service_name: str = _NAMELESS,
        resource_attributes: dict[str, Any] | None = None,
        batch_size: int = 512,
        clock: Clock = SYSTEM_CLOCK,
        remote_parent: RemoteParentAs = "parent",
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            exporter: an OpenTelemetry `SpanExporter`, which belongs to the sink from now on and
                runs in a thread of its own; or a `Sender`. None for OTLP over HTTP to where
                OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT say, with the
                HEADERS and the TIMEOUT (milliseconds) of the same names; OTEL_RESOURCE_ATTRIBUTES
                and OTEL_SERVICE_NAME count where the arguments leave something open.
            dialect: what attributes are called, None for OpenTelemetry's GenAI conventions.
            service_name: the `service.name` of the resource; "lib" leaves it open.
            resource_attributes: more of the resource; they win over `service_name`.
            batch_size: how many spans to hand over at once, at most.
            clock: the time of scores that have none of their own.
            remote_parent: "parent", to show a run that was started within a span of the application
                below that, in the application's trace; "link", to show it as a trace of its own
                with a link to that span: for runs that go on long after the request, and for
                backends that do not get what the application records.

        Raises:
            ValueError: the batch size is not positive, `remote_parent` is neither of both, or an
                environment variable is malformed.
            TypeError: `exporter` is neither.
            MissingDriver: an exporter is given, and opentelemetry-sdk is not installed.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size!r} must be positive")
        if remote_parent not in get_args(RemoteParentAs):
            raise ValueError(f"remote_parent is 'parent' or 'link', got {remote_parent!r}")
        self._links = remote_parent == "link"
        self._dialect = GENAI if dialect is None else dialect
        settings = resource_of(os.environ) if exporter is None else {}
        if service_name == _NAMELESS:
            service_name = settings.get("service.name") or _NAMELESS
        self._resource = clean(
            {**settings, "service.name": service_name, **(resource_attributes or {})}
        )
        self._sender, where = _sender(exporter, batch_size)
        self.traits = SinkTraits(
            destination=f"{type(self).__name__} {service_name} {where}",
            updates="first",
            reports_taken=True,
            traces_per_export=_TRACES_PER_EXPORT,
            scores_as_spans=True,
            trace_id_of=self.trace_id_of,
        )
        self._clock = clock
        self._roots: OrderedDict[str, Span] = OrderedDict()

    async def export(self, spans: Sequence[Span], *, on_taken: OnTaken | None = None) -> None:
        """Send the spans; open ones only if `traits.updates` is "replace".

        Args:
            spans: parents before children.
            on_taken: called after each request with the ids of the spans that were taken by it, and
                so are not to be sent again, whatever becomes of the others.

        Raises:
            ExportError: they were not delivered, or not all of them.
        """
        self._note_roots(spans)
        sent = [span for span in spans if span.end is not None or self.traits.updates == "replace"]
        await self._send(LazySpans(sent, self._changed), on_taken)

    async def score(
        self, trace_id: str, scores: Sequence[Score], *, span_id: str | None = None
    ) -> None:
        """Send each score as a span `evaluate <name>` without length, below what was judged.

        This is for scores that are in no log: those that are have a span of their own, which an
        observer exports with the others. A score has the same span id each time; a backend that
        keeps the first of two spans ignores a second score of the same name, and one that keeps
        both shows both. Comment and meta of a score go along: leave out what is not to leave the
        process.

        Args:
            trace_id: of the trace.
            scores: one without a time has the present.
            span_id: of the span that was judged, None for the trace's root.

        Raises:
            ExportError: they were not delivered.
        """
        root = self._roots.get(trace_id)
        if root is not None:
            trace_id = root.trace_id
        spans = [score_span(timed(one, self._clock), trace_id, span_id, root) for one in scores]
        try:
            await self._send(LazySpans(spans, lambda span: self._outgoing(self._placed(span))))
        except ExportError as error:
            taken = error.taken
            error.taken_scores = len([*takewhile(lambda span: span.span_id in taken, spans)])
            raise

    async def aclose(self) -> None:
        """Flush and close what the sink sends through; safe to repeat.

        Raises:
            ExportError: it could not flush.
        """
        await self._sender.aclose()

    def trace_id_of(self, span: Span) -> str:
        """Return the trace id under which the sink sends a span; see `RemoteParentAs`."""
        remote = span.remote_parent
        return remote.own_trace_id if remote is not None and self._links else span.trace_id

    def _sent_trace_id(self, trace_id: str) -> str:
        """Return the trace id under which the sink has sent a trace, if it knows of any other."""
        root = self._roots.get(trace_id)
        return trace_id if root is None else self.trace_id_of(root)

    def _placed(self, span: Span) -> Span:
        """Return the span where it belongs in respect of the application's trace."""
        remote, is_root = span.remote_parent, span.parent_id is None
        if remote is None:
            return span
        if not self._links:
            return replace(span, parent_id=remote.span_id) if is_root else span
        link = SpanLink(remote.trace_id, remote.span_id, remote.trace_state)
        links = (*span.links, link) if is_root else span.links
        return replace(span, trace_id=remote.own_trace_id, links=links)

    def _outgoing(self, span: Span) -> Span:
        """Return a span as it is to be sent, before the dialect looks at it."""
        return span

    async def _send(self, spans: Sequence[Span], on_taken: OnTaken | None = None) -> None:
        if not spans:
            return
        await self._sender.send(
            spans, dialect=self._dialect, resource=self._resource, on_taken=on_taken
        )

    def _changed(self, span: Span) -> Span:
        return self._outgoing(_traced(self._placed(span)))

    def _note_roots(self, spans: Sequence[Span]) -> None:
        for span in spans:
            if span.parent_id is None:
                attributes = {a.TRACE_NAME: span.name, **span.trace}
                root = replace(span, attributes=attributes, events=[], input=None, output=None)
                for trace_id in {span.trace_id, self.trace_id_of(span)}:
                    self._roots[trace_id] = root
                    self._roots.move_to_end(trace_id)
        while len(self._roots) > self._max_roots:
            self._roots.popitem(last=False)


class LazySpans(Sequence[Span]):
    """Spans that are changed one by one as they are read, so that the event loop is not blocked."""

    def __init__(self, spans: Sequence[Span], change: Callable[[Span], Span]) -> None:
        """Take the spans, and the function that changes each."""
        self._spans, self._change = spans, change

    @overload
    def __getitem__(self, index: int) -> Span: ...

    @overload
    def __getitem__(self, index: slice) -> LazySpans: ...

    def __getitem__(self, index: int | slice) -> Span | LazySpans:
        """Return one changed span, or a lazy slice."""
        if isinstance(index, slice):
            return LazySpans(self._spans[index], self._change)
        return self._change(self._spans[index])

    def __iter__(self) -> Iterator[Span]:
        """Yield changed spans."""
        return map(self._change, self._spans)

    def __len__(self) -> int:
        """Return the number of spans."""
        return len(self._spans)


def _traced(span: Span) -> Span:
    """Return the span with what holds for its whole trace among its attributes."""
    if not span.trace:
        return span
    return replace(span, attributes={**span.trace, **span.attributes})


def _sender(exporter: Any, batch_size: int) -> tuple[Sender, str]:
    """Return what to send through, and where that goes."""
    if exporter is None:
        check_protocol(os.environ)
        url = traces_url(os.environ)
        sender = OTLPSender(
            url,
            headers=traces_headers(os.environ),
            batch_size=batch_size,
            timeout_s=traces_timeout_s(os.environ),
        )
        return sender, public_url(url)
    if callable(getattr(exporter, "send", None)):
        return exporter, public_url(getattr(exporter, "url", "")) or type(exporter).__name__
    if not all(callable(getattr(exporter, name, None)) for name in _EXPORTER):
        kind = type(exporter).__qualname__
        raise TypeError(f"exporter is of {kind}: give a SpanExporter of OpenTelemetry, or a Sender")
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        raise MissingDriver("OTelSink(exporter)", driver="opentelemetry-sdk", extra="otel")
    driver = import_module("lib.observe.sinks.exporter")
    where = f"{type(exporter).__name__} {public_url(getattr(exporter, '_endpoint', ''))}"
    return driver.ExporterSender(exporter, batch_size=batch_size), where.rstrip()


def public_url(url: Any) -> str:
    """Return scheme, host, port and path of a URL; the rest of it may be secret."""
    if not isinstance(url, str):
        return ""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


_DEFAULT: Final = "http://localhost:4318"
_TIMEOUT_S: Final = 10.0
_PROTOCOL: Final = "http/protobuf"
_PATH: Final = "/v1/traces"


def traces_url(environment: Mapping[str, str]) -> str:
    """Return the URL for traces: an endpoint for all signals gets their path, one of theirs not."""
    own = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if own:
        return own
    return (environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or _DEFAULT).rstrip("/") + _PATH


def traces_headers(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the headers for traces, by lower-case name.

    Raises:
        ValueError: they are not of the form `name=value,name=value`.
    """
    name, value = _of_traces(environment, "HEADERS")
    return {key.lower(): value for key, value in _pairs(name, value).items()}


def traces_timeout_s(environment: Mapping[str, str]) -> float:
    """Return the time-out of a request in seconds; the variables hold milliseconds.

    Raises:
        ValueError: it is no number above zero.
    """
    name, value = _of_traces(environment, "TIMEOUT")
    if not value:
        return _TIMEOUT_S
    if not (value.isascii() and value.isdigit() and int(value)):
        raise ValueError(f"{name}={value!r} is not a number of milliseconds above zero")
    return int(value) / 1000


def check_protocol(environment: Mapping[str, str]) -> None:
    """Refuse to send what a backend does not expect.

    Raises:
        ValueError: another protocol is configured than OTLP over HTTP with protobuf.
    """
    name, value = _of_traces(environment, "PROTOCOL")
    if value not in {"", _PROTOCOL}:
        raise ValueError(
            f"{name}={value!r} is not spoken here: give OTelSink an exporter of OpenTelemetry that "
            f"speaks it, or set {_PROTOCOL!r}"
        )


def resource_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of the resource, with `service.name` if there is one.

    Raises:
        ValueError: they are not of the form `name=value,name=value`.
    """
    name = "OTEL_RESOURCE_ATTRIBUTES"
    attributes = _pairs(name, environment.get(name, ""))
    service = environment.get("OTEL_SERVICE_NAME")
    return {**attributes, "service.name": service} if service else attributes


def _of_traces(environment: Mapping[str, str], what: str) -> tuple[str, str]:
    """Return name and value of the variable for traces, or else of the one for all signals."""
    own = f"OTEL_EXPORTER_OTLP_TRACES_{what}"
    name = own if environment.get(own) else f"OTEL_EXPORTER_OTLP_{what}"
    return name, environment.get(name, "").strip()


def _pairs(name: str, text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for pair in filter(str.strip, text.split(",")):
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"{name} is not of the form name=value,name=value")
        pairs[unquote(key.strip())] = unquote(value.strip())
    return pairs

"""The receiver of spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from lib.testing.http import (
    Drop,
    Handler,
    Hang,
    HTTPServer,
    Reaction,
    Request,
    Response,
)

OnRepeat = Literal["first", "append", "replace"]
"""What becomes of a span that comes again: see `lib.observe.span.Updates`; "append" keeps both."""

Answer: TypeAlias = Response | Hang | Drop | int
"""What a script holds; a bare number is a status, 200 to answer as usual."""

PROTOBUF: Final = "application/x-protobuf"
_TRACE_ID_BYTES: Final = 16
_SPAN_ID_BYTES: Final = 8


class OTLPReceiver(HTTPServer):
    """Takes spans over OTLP/HTTP with protobuf, and refuses what a strict backend refuses.

    A whole request is refused if one of its spans has an id of a wrong length or of zeros only.

    Attributes:
        spans: what is held now, in the order of first arrival.
        exports: the requests that could be read, whatever became of them.
        script: answers for the next exports, first to last; may be added to at any time.
    """

    def __init__(
        self,
        *,
        path: str = "/v1/traces",
        on_repeat: OnRepeat = "replace",
        script: Iterable[Answer] = (),
        check: Callable[[Request], Response | None] | None = None,
        accepted: Response | None = None,
        max_bytes: int = 64 << 20,
        routes: Mapping[tuple[str, str], Handler] | None = None,
        port: int = 0,
    ) -> None:
        """Take what it does.

        Args:
            path: where spans are posted, exactly.
            on_repeat: what becomes of a span that comes again.
            script: answers for the first exports; after them all is well.
            check: returns the refusal of a request, such as one without a key; None lets it pass.
            accepted: the answer when all is well; an empty protobuf message by default.
            max_bytes: of a decompressed body, above which the answer is 413.
            routes: further handlers, by method and the beginning of a path.
            port: to come back on after a restart; 0 takes a free one.
        """
        super().__init__({("POST", path): self._export, **(routes or {})}, port=port)
        self.script: list[Answer] = list(script)
        self.exports: list[ExportTraceServiceRequest] = []
        self._path, self._on_repeat, self._check = path, on_repeat, check
        self._accepted = accepted or _protobuf(200, ExportTraceServiceResponse())
        self._max_bytes = max_bytes
        self._held: dict[tuple[bytes, bytes], list[Span]] = {}

    @property
    def url(self) -> str:
        """The address for an exporter."""
        return self.base_url + self._path

    @property
    def spans(self) -> list[Span]:
        return [span for versions in self._held.values() for span in versions]

    def forget(self) -> None:
        """Drop all spans, as a backend does that has lost its disk."""
        self._held.clear()

    # -- an export -----------------------------------------------------------------------------

    def _export(self, request: Request) -> Reaction:
        if request.path != self._path:
            return _text(404, "Not Found")
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        try:
            export = ExportTraceServiceRequest.FromString(request.body)
        except (DecodeError, ValueError):
            return _text(400, "the body could not be decoded")
        self.exports.append(export)
        answer = self.script.pop(0) if self.script else 200
        spans = spans_of(export)
        if isinstance(answer, int):
            answer = self._judged(spans) if answer == 200 else _text(answer, "as the script says")
        if answer.keep:
            self._keep(spans)
        return answer

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to what is refused before it is decoded."""
        refusal = self._check(request) if self._check else None
        if refusal is not None:
            return refusal
        if request.headers.get("content-type", "") != PROTOBUF:
            return _text(415, "Unsupported content type")
        try:
            size = len(request.body)
        except ValueError as error:
            return _text(400, str(error))
        return _text(413, "Request Entity Too Large") if size > self._max_bytes else None

    def _judged(self, spans: Sequence[Span]) -> Response:
        if not all(map(_has_ids, spans)):
            return _text(400, "invalid trace or span id: the entire export was rejected")
        self._keep(spans)
        return self._accepted

    def _keep(self, spans: Sequence[Span]) -> None:
        for span in spans:
            versions = self._held.setdefault((span.trace_id, span.span_id), [])
            if self._on_repeat == "append" or not versions:
                versions.append(span)
            elif self._on_repeat == "replace":
                versions[:] = [span]


def spans_of(export: ExportTraceServiceRequest) -> list[Span]:
    """Return the spans of a request, whatever they are grouped by."""
    return [
        span
        for resource in export.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def attributes_of(of: Span | Span.Event | Any) -> dict[str, Any]:
    """Return the attributes of a span, an event or a resource as plain values.

    A value of no type is None. Of a name that comes twice, the last counts.
    """
    return _plain_pairs(of.attributes)


def partial_success(rejected: int, message: str = "", *, keep: bool = True) -> Response:
    """Return the answer of a backend that takes a request and drops some spans of it.

    Args:
        rejected: how many; 0 with a message is a warning.
        message: why.
        keep: whether the spans are held, without naming the dropped ones.
    """
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = rejected
    answer.partial_success.error_message = message
    whole = _protobuf(200, answer)
    return Response(headers=whole.headers, body=whole.body, keep=keep)


def redirect(url: str, status: int = 307) -> Response:
    """Return the answer of a server that has moved, such as from http to https."""
    return Response(status=status, headers={"location": url}, body=b"moved")


def _protobuf(status: int, message: ExportTraceServiceResponse) -> Response:
    body = message.SerializeToString()
    return Response(status=status, headers={"content-type": PROTOBUF}, body=body)


def _text(status: int, text: str) -> Response:
    return Response(status=status, headers={"content-type": "text/plain"}, body=text.encode())


def _has_ids(span: Span) -> bool:
    parent = not span.parent_span_id or _is_id(span.parent_span_id, _SPAN_ID_BYTES)
    own = _is_id(span.trace_id, _TRACE_ID_BYTES) and _is_id(span.span_id, _SPAN_ID_BYTES)
    return own and parent


def _is_id(value: bytes, size: int) -> bool:
    return len(value) == size and any(value)


def _plain_pairs(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _plain(pair.value) for pair in pairs}


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return _plain_pairs(value.kvlist_value.values)
    return getattr(value, kind)

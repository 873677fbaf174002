"""Spans as OTLP's protobuf messages, written byte by byte.

A message is a row of fields: a tag (the field's number and how its value is laid out), then the
value. What has no fixed size (text, messages in messages) is preceded by its length, which is a
varint: seven bits a byte, the lowest first, the top bit set on all but the last. So the bytes of an
attribute are five pieces, three of which are looked up: by its length, by its key, and by the
length of its text. Fields come in the order of their numbers, and equal spans give equal bytes.

Source: opentelemetry-proto 1.10, trace/v1/trace.proto and common/v1/common.proto; the encoding of
protobuf, https://protobuf.dev/programming-guides/encoding (2026-11).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite, isnan
from struct import Struct
from typing import Any, Final

from lib._util.version import __version__
from lib.observe.attributes import SCHEMA_URL
from lib.observe.dialect import AttributeValue
from lib.observe.span import Span, SpanEvent, SpanKind, SpanLink, has_remote_parent

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_REMOTE: Final[frozenset[SpanKind]] = frozenset({"llm", "embedding", "retriever", "reranker"})
_LAST_MOMENT: Final = 2**64 - 1
_ONE_BYTE: Final = 0x80
_TWO_BYTES: Final = 0x4000
_KEYS: Final = 4096

_INTERNAL: Final = b"\x30\x01"  # Span.kind
_CLIENT: Final = b"\x30\x03"
_OK: Final = b"\x7a\x02\x18\x01"  # Span.status
_SAMPLED: Final = b"\x85\x01\x01\x00\x00\x00"  # Span.flags
_REMOTE_PARENT: Final = b"\x85\x01\x01\x03\x00\x00"  # likewise; bits 8 and 9 say so
_NOTHING: Final = b"\x00"  # an AnyValue that holds nothing, and its length

_times = Struct("<BQBQ").pack  # Span.start_time_unix_nano and end_time_unix_nano
_time = Struct("<BQ").pack  # Event.time_unix_nano
_double = Struct("<BBd").pack  # an AnyValue's length and double_value
_to_json = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def encode_span(span: Span, attributes: Mapping[str, AttributeValue]) -> bytes:
    """Return an `opentelemetry.proto.trace.v1.Span`.

    Calls of something remote (llm, embedding, retriever, reranker) are of kind CLIENT, all others
    INTERNAL. An open span ends when it starts and has no status. Moments outside 1970 to 2554,
    which the format cannot hold, become the nearest one that it can.

    Values are written as they are, except: an integer beyond 64 bits as its decimal digits, NaN
    and infinities as "NaN", "Infinity" and "-Infinity" (a backend that keeps JSON loses the whole
    span for them), a lone surrogate as U+FFFD. None is left out. What only an event's attributes
    can hold, nested objects and lists, becomes JSON text.

    Args:
        span: what it is; its own attributes are not looked at.
        attributes: what a dialect has made of them, written in their order.

    Raises:
        ValueError: an id is not hexadecimal.
        TypeError: a value is not plain data.
    """
    start = _nanoseconds(span.start)
    end = start if span.end is None else _nanoseconds(span.end)
    trace_id, span_id = bytes.fromhex(span.trace_id), bytes.fromhex(span.span_id)
    pieces = [_SPAN_FIRST[len(trace_id)], trace_id, _SPAN_SECOND[len(span_id)], span_id]
    remote = span.remote_parent
    if remote is not None and remote.trace_state and remote.trace_id == span.trace_id:
        pieces.append(_framed(0x1A, _text(remote.trace_state)))
    if span.parent_id is not None:
        pieces.append(_framed(0x22, bytes.fromhex(span.parent_id)))
    pieces.append(_framed(0x2A, _text(span.name)))
    pieces.append(_CLIENT if span.kind in _REMOTE else _INTERNAL)
    pieces.append(_times(0x39, start, 0x41, end))
    _write_attributes(pieces, _SPAN_ATTRIBUTE, attributes)
    pieces += [_framed(0x5A, _event(event)) for event in span.events]
    pieces += [_framed(0x6A, _link(link)) for link in span.links]
    if span.status == "error":
        message = _framed(0x12, _text(span.status_message)) if span.status_message else b""
        pieces.append(_framed(0x7A, message + b"\x18\x02"))
    elif span.end is not None:
        pieces.append(_OK)
    pieces.append(_REMOTE_PARENT if has_remote_parent(span) else _SAMPLED)
    return b"".join(pieces)


def encode_request(spans: Sequence[bytes], *, resource: Mapping[str, AttributeValue]) -> bytes:
    """Return an `ExportTraceServiceRequest` with one resource and one scope, "lib.observe".

    Args:
        spans: encoded spans, in the order in which they are to arrive.
        resource: attributes of what they come from, such as `service.name`.
    """
    described: list[bytes] = []
    _write_attributes(described, _RESOURCE_ATTRIBUTE, resource)
    head = _framed(0x0A, b"".join(described))
    pieces = [_SCOPE]
    for span in spans:
        size = len(span)
        pieces += (_REQUEST_SPAN[size] if size < _TABLED else _lead(0x12, size), span)
    pieces.append(_SCHEMA)
    size = sum(map(len, pieces))
    scope = _lead(0x12, size)
    return b"".join([_lead(0x0A, len(head) + len(scope) + size), head, scope, *pieces])


# -- attributes --------------------------------------------------------------------------------


def _write_attributes(
    pieces: list[bytes], leads: Sequence[bytes], attributes: Mapping[str, Any]
) -> None:
    """Append a KeyValue for each attribute; `leads` holds tag and length by length."""
    for key, value in attributes.items():
        name = _keys.get(key) or _key(key)
        kind = value.__class__
        if kind is str:
            raw = _text(value)
            size = len(raw)
            before = _TEXT[size] if size < _TABLED else _text_lead(size)
        elif value is None:
            continue
        else:
            before, raw = _VALUES.get(kind, _other)(value), b""
        size = len(name) + len(before) + len(raw)
        lead = leads[size] if size < _TABLED else _lead(leads[0][0], size)
        pieces += (lead, name, before, raw)


def _key(key: str) -> bytes:
    """Return the key with its tag and length, and the tag of the value that follows.

    There are few keys and many spans, so they are remembered.
    """
    if len(_keys) >= _KEYS:
        _keys.clear()
    _keys[key] = encoded = _framed(0x0A, _text(key)) + b"\x12"
    return encoded


_keys: dict[str, bytes] = {}


def _value(value: Any) -> bytes:
    """Return an AnyValue, its length before it."""
    kind = value.__class__
    return _VALUES.get(kind, _other)(value)


def _string(value: str) -> bytes:
    raw = _text(value)
    return _text_lead(len(raw)) + raw


def _bool(value: bool) -> bytes:
    return b"\x02\x10\x01" if value else b"\x02\x10\x00"


def _int(value: int) -> bytes:
    if 0 <= value < _ONE_BYTE:
        return b"\x02\x18%c" % value
    if 0 < value < _TWO_BYTES:
        return b"\x03\x18%c%c" % (value & 0x7F | _ONE_BYTE, value >> 7)
    if not -(2**63) <= value < 2**63:
        return _string(str(value))
    raw = _varint(value & _LAST_MOMENT)  # two's complement
    return b"%c\x18%b" % (len(raw) + 1, raw)


def _float(value: float) -> bytes:
    if isfinite(value):
        return _double(9, 0x21, value)
    return _string("NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity")


def _list(value: Sequence[Any]) -> bytes:
    values = b"".join([b"\x0a" + _item(item) for item in value])
    return _sized(_framed(0x2A, values))


def _item(item: Any) -> bytes:
    return _json(item) if isinstance(item, list | tuple) else _value(item)


def _json(value: Any) -> bytes:
    return _string(_to_json(value))


def _none(_: None) -> bytes:
    return _NOTHING


def _other(value: Any) -> bytes:
    """Return what a subclass of a plain type stands for."""
    for kind, write in _VALUES.items():
        if isinstance(value, kind):
            return write(value)
    raise TypeError(f"an attribute is {type(value).__name__}, which is not plain data")


_VALUES: Final[Mapping[type, Callable[[Any], bytes]]] = {
    str: _string,
    bool: _bool,
    int: _int,
    float: _float,
    list: _list,
    tuple: _list,
    dict: _json,
    type(None): _none,
}


# -- smaller things ----------------------------------------------------------------------------


def _event(event: SpanEvent) -> bytes:
    pieces = [_time(0x09, _nanoseconds(event.at)), _framed(0x12, _text(event.name))]
    _write_attributes(pieces, _EVENT_ATTRIBUTE, event.attributes)
    return b"".join(pieces)


def _link(link: SpanLink) -> bytes:
    state = _framed(0x1A, _text(link.trace_state)) if link.trace_state else b""
    trace_id, span_id = bytes.fromhex(link.trace_id), bytes.fromhex(link.span_id)
    return _framed(0x0A, trace_id) + _framed(0x12, span_id) + state


def _nanoseconds(moment: datetime) -> int:
    """Return the nanoseconds since 1970, exactly: no float is between."""
    since = moment - _EPOCH
    seconds = since.days * 86_400 + since.seconds
    return min(max(seconds * 1_000_000_000 + since.microseconds * 1_000, 0), _LAST_MOMENT)


def _text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Two surrogates that belong together are one character, lone ones are none.
        pairs = text.encode("utf-16-le", "surrogatepass")
        return pairs.decode("utf-16-le", "replace").encode()


def _varint(number: int) -> bytes:
    low = b""
    while number >= _ONE_BYTE:
        low += b"%c" % (number & 0x7F | _ONE_BYTE)
        number >>= 7
    return low + b"%c" % number


def _lead(tag: int, size: int) -> bytes:
    return b"%c%b" % (tag, _varint(size))


def _framed(tag: int, content: bytes) -> bytes:
    return _lead(tag, len(content)) + content


def _sized(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _text_lead(size: int) -> bytes:
    """Return what comes before the text in an AnyValue: that one's length, its tag, its length."""
    inner = _lead(0x0A, size)
    return _varint(len(inner) + size) + inner


_TABLED: Final = 1024  # most texts and attributes are shorter


def _table(tag: int) -> Sequence[bytes]:
    return [_lead(tag, size) for size in range(_TABLED)]


_TEXT: Final = [_text_lead(size) for size in range(_TABLED)]
_RESOURCE_ATTRIBUTE: Final = _table(0x0A)
_REQUEST_SPAN: Final = _table(0x12)
_EVENT_ATTRIBUTE: Final = _table(0x1A)
_SPAN_ATTRIBUTE: Final = _table(0x4A)
_SPAN_FIRST: Final = _table(0x0A)
_SPAN_SECOND: Final = _table(0x12)
_SCHEMA: Final = _framed(0x1A, SCHEMA_URL.encode())  # ScopeSpans.schema_url
_SCOPE: Final = _framed(0x0A, _framed(0x0A, b"lib.observe") + _framed(0x12, __version__.encode()))

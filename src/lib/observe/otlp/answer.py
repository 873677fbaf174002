"""Partial success: how many spans a backend has dropped of a request that it accepted.

Source: OTLP 1.10, "Partial Success"; collector/trace/v1/trace_service.proto; in JSON its names are
in lowerCamelCase and integers of 64 bits may be strings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

from lib._util.json import parse

_PROTOBUF: Final = frozenset({"application/x-protobuf", "application/protobuf"})
_FIXED_SIZE: Final = {1: 8, 5: 4}
_MOST_VARINT_BYTES: Final = 10


def rejected_spans(media_type: str, body: bytes) -> int:
    """Return how many spans of a request that was answered with success were not taken.

    An answer of neither protobuf nor a JSON object cannot tell, and counts as 0.

    Args:
        media_type: of the answer, in lower case and without parameters.
        body: its content.

    Raises:
        ValueError: this is no OTLP backend: the content is not what its type says, or a web page.
    """
    if media_type == "text/html":
        raise ValueError("a web page")
    if not body:
        return 0
    if media_type in _PROTOBUF:
        return max(0, _in_protobuf(body))
    if media_type == "application/json":
        return max(0, _in_json(_parsed(body)))
    return 0


def _parsed(body: bytes) -> Any:
    try:
        return parse(body)
    except RecursionError:
        raise ValueError("too deep") from None


def _in_protobuf(body: bytes) -> int:
    rejected = 0
    for number, value in _fields(body):
        if number == 1 and isinstance(value, bytes):  # partial_success
            counts = [count for name, count in _fields(value) if name == 1]  # rejected_spans
            rejected = counts[-1] if counts and isinstance(counts[-1], int) else rejected
    return rejected if rejected < 2**63 else 0  # a negative number


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a protobuf message: a varint, or bytes."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == 0:
            value, position = _varint(message, position)
            yield tag >> 3, value
            continue
        if kind == 2:  # noqa: PLR2004 - what is preceded by its length
            size, position = _varint(message, position)
        elif kind in _FIXED_SIZE:
            size = _FIXED_SIZE[kind]
        else:
            raise ValueError("a field of no known layout")
        if position + size > len(message):
            raise ValueError("a field beyond the end")
        yield tag >> 3, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return the number that begins there, and where it ends."""
    number = 0
    for shift, byte in enumerate(message[position : position + _MOST_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:  # noqa: PLR2004 - the top bit says that there is more
            return number, position + shift + 1
    raise ValueError("a number without an end")


def _in_json(answer: Any) -> int:
    if not isinstance(answer, dict):
        return 0  # "ok", null: answers of some backends that keep everything
    partial = _member(cast(Any, answer), "partialSuccess", "partial_success")
    rejected = _member({} if partial is None else partial, "rejectedSpans", "rejected_spans")
    return int(str(rejected or 0))


def _member(value: Any, *names: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004 - the content is wrong, not the call
    fields = cast(dict[str, Any], value)
    return next((fields[name] for name in names if name in fields), None)

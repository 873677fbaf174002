"""Canonical JSON: one value, one sequence of bytes.

Keys are sorted, there is no white space, text is UTF-8 and not escaped (lone surrogates are, since
UTF-8 cannot hold them), numbers are finite. Two processes that hold equal values write equal
bytes, so a digest of them can be compared.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any, Final

from pydantic_core import PydanticSerializationError, from_json, to_json

_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
)
_make: Any = getattr(json.encoder, "c_make_encoder", None)
# What `JSONEncoder.encode` makes anew for each value. It does not look for circles: the table for
# that could not be shared by threads.
_chunks: Callable[[Any, int], Iterable[str]] | None = _make and _make(
    markers=None,
    default=_ENCODER.default,
    encoder=json.encoder.encode_basestring,
    indent=None,
    key_separator=":",
    item_separator=",",
    sort_keys=True,
    skipkeys=False,
    allow_nan=False,
)
compact: Final[Callable[[object], str]] = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode
"""Returns the JSON text of plain data, whose keys keep their order; see `canonical` for errors."""

_UNCHANGEABLE: Final = frozenset({type(None), bool, int, float, str})
_SURROGATE = re.compile("[\ud800-\udfff]")


def canonical(value: Any) -> str:
    """Return the canonical JSON text of plain data; it can always be encoded as UTF-8.

    Raises:
        ValueError: a number is NaN or infinite.
        TypeError: something is not None, bool, int, float, str, list, tuple or a dict of them.
    """
    try:
        text = "".join(_chunks(value, 0)) if _chunks else _ENCODER.encode(value)
    except RecursionError:  # a circle, or too deep: the next line finds out which
        text = _ENCODER.encode(value)
    if text.isascii():
        return text
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def quoted(text: str) -> str:
    """Return the canonical JSON of a text: what `canonical` returns, in a third of the time."""
    try:
        return to_json(text).decode()
    except PydanticSerializationError:  # lone surrogates
        return canonical([text])[1:-1]


def parse(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: the text is not JSON.
    """
    try:
        # Keys repeat from text to text, values do not: looking for them costs more than it saves.
        return from_json(text, allow_inf_nan=False, cache_strings="keys")
    # Lone surrogates, which make a text a TypeError, and numbers beyond int64 are JSON, too.
    except (TypeError, ValueError):
        return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def copied(value: Any) -> Any:
    """Return a copy of plain data that shares nothing that can be changed with it."""
    kind: Any = value.__class__
    if kind in _UNCHANGEABLE:
        return value
    if kind is dict:
        return {key: copied(item) for key, item in value.items()}
    if kind is list:
        return [copied(item) for item in value]
    return deepcopy(value)


def digest(*parts: str) -> str:
    """Return the SHA-256 of the parts as hex; the boundary between two parts counts."""
    hashed: list[bytes] = []
    for part in parts:
        raw = part.encode()
        hashed += (b"%d:" % len(raw), raw)
    return hashlib.sha256(b"".join(hashed)).hexdigest()


def digests(parts: Iterable[str]) -> Iterator[str]:
    """Yield the digest of the first part, of the first two, and so on."""
    state = hashlib.sha256()
    for part in parts:
        raw = part.encode()
        state.update(b"%d:" % len(raw))
        state.update(raw)
        yield state.hexdigest()

"""Canonical JSON: one value, one sequence of bytes.

Keys are sorted, there is no white space, text is UTF-8 and not escaped (lone surrogates are, since
UTF-8 cannot hold them), numbers are finite. Two processes that hold equal values write equal
bytes, so a digest of them can be compared.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

from pydantic_core import from_json

_encode: Callable[[Any], str] = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode
_SURROGATE = re.compile("[\ud800-\udfff]")


def canonical(value: Any) -> str:
    """Return the canonical JSON text of plain data; it can always be encoded as UTF-8.

    Raises:
        ValueError: a number is NaN or infinite.
        TypeError: something is not None, bool, int, float, str, list, tuple or a dict of them.
    """
    text = _encode(value)
    if text.isascii():
        return text
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def parse(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: the text is not JSON.
    """
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:  # lone surrogates and numbers beyond int64 are JSON, too
        return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def digest(*parts: str) -> str:
    """Return the SHA-256 of the parts as hex; the boundary between two parts counts."""
    state = hashlib.sha256()
    for part in parts:
        raw = part.encode()
        state.update(b"%d:" % len(raw))
        state.update(raw)
    return state.hexdigest()

"""Values that every backend takes: valid text, finite numbers, no None, the same every time."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date
from typing import Any, Final, cast

from lib._util.json import canonical
from lib.observe.dialect import AttributeValue

_LEAST, _MOST = -(2**63), 2**63 - 1
_MAX_DEPTH: Final = 64
_MANY: Final = 32
_SCALARS: Final = frozenset({type(None), bool, int, float, str})
_ESCAPE: Final = re.compile(r"\\u(?:d[89a-f]|0000)")
_TO_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_LARGE: Final = b"0" * 19
_MOST_NAMES: Final = 4096
_FIT_NAMES: Final = set[str]()
"""Names of attributes that need no change; there are few, and each comes with every span."""

_UNFIT: Final = re.compile("[\ud800-\udfff\x00]")
"""Surrogates are no Unicode, and PostgreSQL, which some backends keep spans in, has no NUL."""


def clean_text(value: str) -> str:
    """Return the text with U+FFFD for each character that a backend may refuse."""
    if "\x00" not in value and _is_unicode(value):
        return value  # most are, and a pattern takes five times as long to see it
    return _UNFIT.sub("\ufffd", value)


def _is_unicode(value: str) -> bool:
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean(attributes: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Return the attributes as a backend takes them, sorted by name.

    None and numbers that are not finite are left out. Integers beyond 64 bits become text; so do
    objects, nested lists and lists of more than one type, as JSON.
    """
    cleaned: dict[str, AttributeValue] = {}
    for name in sorted(attributes):
        value = attributes[name]
        if type(value) is str:
            cleaned[name] = value if value.isascii() and "\x00" not in value else clean_text(value)
        elif value is not None and (fit := attribute(value)) is not None:
            cleaned[name] = fit
    if cleaned.keys() <= _FIT_NAMES:
        return cleaned
    renamed = {_fit_name(name): value for name, value in cleaned.items() if name}
    return {name: renamed[name] for name in sorted(renamed)}


def _fit_name(name: str) -> str:
    """Return a name that a backend takes, and remember it if it is one already."""
    fit = clean_text(name)
    if fit == name and len(_FIT_NAMES) < _MOST_NAMES:
        _FIT_NAMES.add(name)
    return fit


def attribute(value: Any) -> AttributeValue | None:
    """Return one value as a backend takes it, or None if it is to be left out."""
    kind = value.__class__
    if kind is bool or (kind is int and _LEAST <= value <= _MOST):
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if kind is list and len(value) == 1 and type(value[0]) is str:
        return [clean_text(value[0])]
    plain = plain_json(value)
    if isinstance(plain, list):
        items = cast(list[Any], plain)
        return (
            items
            if any(_all(items, kind) for kind in (str, bool, int, float))
            else canonical(plain)
        )
    return canonical(plain) if isinstance(plain, dict) else plain


def _all(items: list[Any], kind: type) -> bool:
    return all(type(item) is kind for item in items)


def json_text(value: Any) -> str:
    """Return a value as JSON text, without any number or character that a reader may refuse."""
    if type(value) is list and len(cast(list[Any], value)) > _MANY:
        # No other thread runs while JSON is written, so a long conversation is written in pieces.
        return f"[{','.join([json_text(item) for item in cast(list[Any], value)])}]"
    try:
        written = canonical(value)
    except (TypeError, ValueError, RecursionError):  # it is no JSON, or too deep
        return canonical(plain_json(value))
    # To look for what is odd in the text is faster than to look at each value.
    return canonical(plain_json(value)) if _may_be_odd(written) else written


def _may_be_odd(written: str) -> bool:
    """Return True if JSON has an escape or a large integer that some readers refuse."""
    if _ESCAPE.search(written):
        return True
    return _LARGE in written.encode().translate(_TO_ZEROS)  # a pattern takes thirty times as long


def text(value: Any) -> str:
    """Return a text as it is, and everything else as JSON."""
    return clean_text(value) if isinstance(value, str) else json_text(value)


def plain_json(value: Any, depth: int = 0) -> Any:
    """Return the value as JSON that can be written, and read, everywhere.

    What is no JSON, or too deep, leaves the name of its type: what it holds is not ours to show.
    """
    if type(value) in _SCALARS:
        return _plain_scalar(value)
    if depth < _MAX_DEPTH:
        if isinstance(value, Mapping):
            items = cast(Mapping[Any, Any], value).items()
            return {clean_text(str(name)): plain_json(item, depth + 1) for name, item in items}
        if isinstance(value, list | tuple):
            return [plain_json(item, depth + 1) for item in cast(list[Any], value)]
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> str | bool | int | float | None:
    match value:
        case None | bool():
            return value
        case str():
            return clean_text(value)
        case int():
            return int(value) if _LEAST <= value <= _MOST else str(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case date():
            return value.isoformat()
        case _:
            return f"<{type(value).__name__}>"

"""Values of metadata and filters: JSON's scalars, with the limits of every store."""

from __future__ import annotations

import math
import operator
import sys
from types import NoneType
from typing import Any, TypeAlias, cast

Scalar: TypeAlias = bool | int | float | str

_INT64_END = 2**63


def plain_scalar(value: object) -> Scalar | None:
    """Return the value as exactly None, bool, int, float or str; subclasses lose their class.

    A scalar of numpy is the Python value that it stands for.

    Raises:
        ValueError: the number is NaN, infinite or outside 64 bits, or the text has NUL characters
            or lone surrogates, or the value is of another type. The message says which.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, int):
        return _plain_int(value)
    if isinstance(value, float):
        return _plain_float(value)
    plain = python_value(value)
    if type(plain) is not type(value):
        return plain_scalar(plain)
    raise ValueError(f"{_article(type(value).__name__)} is not JSON{_advice(value)}")


def python_value(value: object) -> object:
    """Return a scalar of numpy as the Python value that it stands for, anything else as it is."""
    numpy: Any = sys.modules.get("numpy")  # a scalar of it exists only where it has been loaded
    if numpy is None or not isinstance(value, numpy.generic):
        return value
    return cast(Any, value).item()


def whole_number(value: object) -> int | None:
    """Return an int, or what numpy has for one, as an int; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(cast(Any, value))
    except TypeError:
        return None


def plain_text(value: str) -> str:
    """Return the text as exactly a `str`.

    Raises:
        ValueError: it holds a NUL character or a lone surrogate, which no database keeps.
    """
    text = str.__str__(value)
    if "\0" in text:
        raise ValueError("a NUL character cannot be stored")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("a lone surrogate cannot be stored") from None
    return text


_SCALARS = frozenset({NoneType, bool, int, float, str})


def copied(value: Any) -> Any:
    """Return a copy of JSON data that shares nothing with it that could change."""
    kind: object = value.__class__  # not `isinstance`: with its casts it takes longer than the rest
    if kind is dict:
        if _SCALARS.issuperset(map(type, value.values())):
            return value.copy()
        return {key: copied(item) for key, item in value.items()}
    if kind is list:
        return [copied(item) for item in value]
    return value


def _plain_int(value: int) -> int:
    if not -_INT64_END <= value < _INT64_END:
        raise ValueError("an int outside 64 bits cannot be stored")
    return int(value)


def _plain_float(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("NaN and infinity are not JSON")
    return float(value)


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _advice(value: object) -> str:
    if hasattr(value, "isoformat"):
        return ": store epoch seconds or an ISO 8601 string"
    return ""

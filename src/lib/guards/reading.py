"""A text as a model may read it that is given it as JSON. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from lib._util.json import parse
from lib.privacy.detect.escapes import levels

_MAX_PACKED: Final = 3
"""How deep JSON in a string of JSON is read."""
_BETWEEN: Final = "\n" * 6  # what introduces a quotation is not that far from it
_VALUE: Final = re.compile(r"(\\{0,8})\"\s{0,4}:\s{0,4}\1\"")


def readings(text: str) -> Iterator[str]:
    """Yield the text, or the texts in it where it is JSON, and the same with its escapes read."""
    # What stands in quotation marks as a value of JSON is no quotation.
    said = _BETWEEN.join(_texts(text)) if _is_packed(text) else text
    said = _VALUE.sub(f'":{_BETWEEN}', said)
    yield said
    for each in levels(said):
        yield each.text


def _is_packed(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[", '"')


def _texts(text: str) -> Iterator[str]:
    """Yield the keys and values of JSON that are texts, in order; the text if it is not JSON."""
    waiting: list[tuple[Any, int]] = [(text, 0)]
    while waiting:
        value, packed = waiting.pop()
        if isinstance(value, str):
            inner = _parsed(value) if packed < _MAX_PACKED else None
            if inner is None or inner == value:
                yield value
            else:
                waiting.append((inner, packed + 1))
        elif isinstance(value, Mapping):
            items = [*cast("Mapping[str, Any]", value).items()]
            for key, item in reversed(items):
                waiting += ((item, packed), (key, packed))
        elif isinstance(value, list):
            waiting.extend((item, packed) for item in reversed(cast("list[Any]", value)))


def _parsed(text: str) -> Any:
    """Return the value of a JSON object, list or string, None for another text."""
    if not _is_packed(text):
        return None
    try:
        return parse(text)
    except (RecursionError, ValueError):
        return None

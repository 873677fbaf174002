"""Lengths of CSS in pixels, as on a screen of usual size."""

from __future__ import annotations

import re
from typing import Final

WIDTH_PX: Final = 1280.0
HEIGHT_PX: Final = 800.0
MAX_CHARS: Final = 300

_UNITS: Final = {
    "px": 1.0,
    "pt": 4 / 3,
    "pc": 16.0,
    "in": 96.0,
    "cm": 37.8,
    "mm": 3.78,
    "q": 0.945,
    **dict.fromkeys(("vw", "svw", "lvw", "dvw", "vi", "vmax", "cqw", "cqi"), WIDTH_PX / 100),
    **dict.fromkeys(("vh", "svh", "lvh", "dvh", "vb", "vmin", "cqh", "cqb"), HEIGHT_PX / 100),
    **dict.fromkeys(("rem", "rlh"), 16.0),
}
_OF_FONT: Final = {"em": 1.0, "ex": 0.5, "ch": 0.5, "lh": 1.2, "ic": 1.0, "cap": 0.7}
_TOKEN: Final = re.compile(
    r"\s*((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)([a-z]+|%)?"
    r"|\s*(calc|min|max|clamp|-webkit-calc)?(\()|\s*([-+*/),])"
)


def pixels(value: str, *, font_px: float = 16.0, whole_px: float = 1000.0) -> float | None:
    """Return a length in pixels, None where the value is none.

    Args:
        value: in lower case; `calc` and the like are worked out.
        font_px: the size of the font, for `em`.
        whole_px: what 100 % are.
    """
    if len(value) > MAX_CHARS:
        return None
    reader = _Reader(value, font_px, whole_px)
    try:
        found = reader.sum()
    except (ValueError, ZeroDivisionError, IndexError, OverflowError, RecursionError):
        return None
    return found if reader.at_end() else None


class _Reader:
    """Works out an expression."""

    def __init__(self, value: str, font_px: float, whole_px: float) -> None:
        self._tokens: list[tuple[str, ...]] = []
        self._font_px, self._whole_px = font_px, whole_px
        self._place = 0
        at = 0
        while at < len(value) and (found := _TOKEN.match(value, at)):
            self._tokens.append(found.groups(""))
            at = found.end()
        if value[at:].strip():
            self._tokens.append(("", "", "", "", "?"))

    def at_end(self) -> bool:
        return self._place == len(self._tokens)

    def sum(self) -> float:
        total = self._product()
        while self._next() in {"+", "-"}:
            sign = self._taken()[4]
            part = self._product()
            total = total + part if sign == "+" else total - part
        return total

    def _product(self) -> float:
        total = self._part()
        while self._next() in {"*", "/"}:
            sign = self._taken()[4]
            part = self._part()
            total = total * part if sign == "*" else total / part
        return total

    def _part(self) -> float:
        number, unit, name, opens, sign = self._taken()
        if sign in {"+", "-"}:
            return self._part() * (-1 if sign == "-" else 1)
        if number:
            return self._length(float(number), unit)
        if not opens:
            raise ValueError(sign)
        values = [self.sum()]
        while self._next() == ",":
            self._taken()
            values.append(self.sum())
        if self._taken()[4] != ")":
            raise ValueError(name)
        return _called(name, values)

    def _length(self, number: float, unit: str) -> float:
        if not unit:
            return number
        if unit == "%":
            return number * self._whole_px / 100
        if unit in _OF_FONT:
            return number * _OF_FONT[unit] * self._font_px
        if unit not in _UNITS:
            raise ValueError(unit)
        return number * _UNITS[unit]

    def _next(self) -> str:
        return self._tokens[self._place][4] if self._place < len(self._tokens) else ""

    def _taken(self) -> tuple[str, ...]:
        self._place += 1
        return self._tokens[self._place - 1]


def _called(name: str, values: list[float]) -> float:
    if name == "min":
        return min(values)
    if name == "max":
        return max(values)
    if name == "clamp":
        return max(values[0], min(values[1], values[2]))
    if len(values) > 1:
        raise ValueError(name)
    return values[0]

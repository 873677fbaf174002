"""What a style attribute hides: its own rules only, since no page's style sheets are read."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

_Color: TypeAlias = tuple[int, ...] | str

_END: Final = r"\s*(?:!|;|$)"
_ZERO: Final = rf"0(?:\.0*)?(?:px|em|rem|pt|%|vw|vh)?{_END}"
_FAINT: Final = r"(?:-[\d.]+|0*(?:\.0\d*)?|\d(?:\.\d*)?%|[\d.]+e-\d+)"
_TINY: Final = (
    r"(?:0+|0*[0-3]?(?:\.\d*)?(?:px|pt)|0*(?:\.[0-2]\d*)?r?em|0*[12]?\d(?:\.\d*)?%|0+(?:vw|vh))"
)
_CLEAR: Final = (
    r"(?:transparent|#(?:[\da-f]{3}0|[\da-f]{6}0[\da-f])(?![\da-f])"
    rf"|(?:rgb|hsl)a?\((?:(?:[^,;)/]{{1,20}},){{3}}|[^,;)/]{{1,60}}/)\s*{_FAINT}\s*\))"
)
_hiding: Final = re.compile(
    r"(?:^|[;\s])(?:"
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|content-visibility\s*:\s*hidden"
    rf"|opacity\s*:\s*{_FAINT}{_END}|font-size\s*:\s*{_TINY}{_END}"
    rf"|font\s*:\s*(?:[^;]{{0,60}}\s)?{_TINY}[\s/]"
    rf"|(?:max-)?(?:width|height)\s*:\s*{_ZERO}"
    r"|(?:left|right|top|bottom|text-indent)\s*:\s*-\s*\d{3,}|clip\s*:\s*rect\(\s*[01](?:px)?[\s,]"
    r"|clip-path\s*:\s*inset\(\s*(?:50|100)%|transform\s*:\s*scale\(\s*0\s*[,)]"
    rf"|color\s*:\s*{_CLEAR}"
    r")"
).search
_remark: Final = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL).sub
# Source: CSS Syntax Module Level 3, 4.3.7 (consume an escaped code point).
_escape: Final = re.compile(r"\\(?:([0-9a-fA-F]{1,6})(?:\r\n|\s)?|([^\n]))").sub

_colors: Final = re.compile(r"#[\da-f]{3,8}|rgba?\([^)]{0,60}\)|[a-z-]+").findall
_number: Final = re.compile(r"\d{1,3}").findall
_NO_COLORS: Final = frozenset({"inherit", "initial", "unset", "revert", "revert-layer", "var"})
_NAMED: Final[dict[str, _Color]] = {"white": (255, 255, 255), "black": (0, 0, 0)}
_HEX_CHARS: Final = 6
_ALIKE: Final = 8
"""Parts of 255 by which colours differ that nobody tells apart."""


def hides(style: str) -> bool:
    """Say whether the rules keep an element from being seen. Linear.

    Source: CSS; what is nearly transparent, too small to read, or of the colour of its own ground
    is hidden, too.

    Args:
        style: the attribute's value.
    """
    rules = " ".join(_escape(_unescaped, _remark("", style)).lower().split())
    if "background-clip" in rules:  # text that is painted by its background
        return bool(_hiding(rules.replace("transparent", "")))
    return bool(_hiding(rules)) or ("background" in rules and _is_like_its_ground(rules))


def _unescaped(found: re.Match[str]) -> str:
    if found[1] is None:
        return found[2]
    code = int(found[1], 16)
    return chr(code) if 0 < code < 0xD800 else "\ufffd"  # noqa: PLR2004 - no property holds more


def _is_like_its_ground(rules: str) -> bool:
    text: list[_Color] = []
    ground: list[_Color] = []
    for rule in sorted(rules.split(";"), key=lambda rule: "!" in rule):  # the last one counts
        name, _, value = rule.partition(":")
        name, value = name.strip(), value.partition("!")[0]
        if name == "color":
            text = _colors_in(value)
        elif name in {"background", "background-color"}:
            ground = [] if "url(" in value or "gradient(" in value else _colors_in(value)
    return any(_alike(one, other) for one in text[:1] for other in ground)


def _colors_in(value: str) -> list[_Color]:
    return [_color(found) for found in _colors(value) if found not in _NO_COLORS]


def _color(written: str) -> _Color:
    if written.startswith("#"):
        digits = written[1:]
        if len(digits) < _HEX_CHARS:
            digits = "".join(digit * 2 for digit in digits)
        return tuple(int(digits[at : at + 2], 16) for at in (0, 2, 4))
    if written.startswith("rgb"):
        return tuple(int(number) for number in _number(written)[:3])
    return _NAMED.get(written, written)


def _alike(one: _Color, other: _Color) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return len(one) == len(other) == 3 and all(  # noqa: PLR2004 - red, green, blue
        abs(a - b) <= _ALIKE for a, b in zip(one, other, strict=True)
    )

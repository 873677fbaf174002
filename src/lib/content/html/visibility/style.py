"""True if the text of an element can be seen, by what style sheets and attributes say of it.

What is nearly transparent, too small to read, clipped to nothing, far outside of the page, behind
another thing or of the colour of its ground is not seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from lib.content.html.visibility import colors
from lib.content.html.visibility.colors import Color
from lib.content.html.visibility.lengths import pixels

FAINT: Final = 0.1
"""Alpha below this is not seen."""

SMALL_PX: Final = 4.0
"""Letters of less are not read, and neither is what stands in a box of so little."""

ALIKE: Final = 1.4
"""Colours with less contrast look the same."""

FAR_PX: Final = 100.0
"""What begins so far to the left of, or above, the place where it would stand is outside."""

VERY_FAR_PX: Final = 2_500.0
"""What begins so far to the right of, or below, that place is outside, too."""

PUSHED_PX: Final = 500.0
"""Margins and shifts of less are a matter of layout."""

_EDGE: Final = 3.0
_BLURRED_PX: Final = 8.0
_BLEACHED: Final = 10.0
_VAR: Final = re.compile(r"var\(\s*(--[^\s,()]+)\s*(?:,((?:[^()]|\([^()]*\))*))?\)")
_CALL: Final = re.compile(r"([a-z0-9-]+)\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")
_FONT: Final = re.compile(
    r"(?:^|.*?\s)(xx-small|x-small|small|medium|large|x-large|xx-large|xxx-large|smaller|larger"
    r"|[\d.][\w.%]*|calc\([^()]*\))(?:\s*/\s*\S+)?\s+\S.*"
)
_NUMBERS: Final = re.compile(r"-?[\d.]+").findall
_negatives: Final = re.compile(r"-[\d.]+").findall
_url: Final = re.compile(r"url\(\s*[\"']?[^\s\"')#]").search
_SIZES: Final = {
    "xx-small": 9.0,
    "x-small": 10.0,
    "small": 13.0,
    "medium": 16.0,
    "large": 18.0,
    "x-large": 24.0,
    "xx-large": 32.0,
    "xxx-large": 48.0,
}
_GLOBAL: Final = frozenset({"inherit", "initial", "unset", "revert", "revert-layer"})
_DISPLAYS: Final = frozenset(
    {
        *("none", "block", "inline", "inline-block", "flex", "inline-flex", "grid", "contents"),
        *("inline-grid", "table", "inline-table", "table-row", "table-cell", "table-column"),
        *("table-row-group", "table-header-group", "table-footer-group", "table-caption"),
        *("table-column-group", "list-item", "flow-root", "run-in", "ruby", "-webkit-box"),
        *("-webkit-flex", "-ms-flexbox", "-webkit-inline-box", "-moz-box", "inline flow-root"),
    }
)
_COLORS: Final = frozenset({"color", "background-color", "-webkit-text-fill-color"})
_LENGTHS: Final = frozenset(
    {
        *("left", "right", "top", "bottom", "width", "height", "max-width", "max-height"),
        *("min-width", "min-height", "margin-left", "margin-top", "text-indent"),
        *("padding-top", "padding-left"),
        *("letter-spacing",),
    }
)
_LOGICAL: Final = {
    "inset-inline-start": "left",
    "inset-inline-end": "right",
    "inset-block-start": "top",
    "inset-block-end": "bottom",
    "inline-size": "width",
    "block-size": "height",
    "max-inline-size": "max-width",
    "max-block-size": "max-height",
    "margin-inline-start": "margin-left",
    "margin-block-start": "margin-top",
    "margin-inline": "margin-left",
    "margin-block": "margin-top",
    "-webkit-clip-path": "clip-path",
    "-webkit-transform": "transform",
    "word-wrap": "",
    "-webkit-filter": "filter",
    "-webkit-opacity": "opacity",
    "-moz-opacity": "opacity",
    "-webkit-background-clip": "background-clip",
    "-webkit-mask": "mask",
    "-webkit-mask-image": "mask",
    "mask-image": "mask",
    "-webkit-animation": "animation",
    "animation-name": "animation",
    "-webkit-animation-name": "animation",
    "overflow-x": "overflow",
    "overflow-y": "overflow",
    "overflow-block": "overflow",
    "overflow-inline": "overflow",
    "text-fill-color": "-webkit-text-fill-color",
    "-webkit-mask-size": "mask-size",
    "padding-inline-start": "padding-left",
    "-ms-transform": "transform",
    "-moz-transform": "transform",
}
_WORDS: Final = {
    "display": _DISPLAYS,
    "visibility": frozenset({"visible", "hidden", "collapse"}),
    "position": frozenset({"static", "relative", "absolute", "fixed", "sticky", "-webkit-sticky"}),
}
_LENGTH_WORDS: Final = frozenset(
    {"auto", "none", "normal", "min-content", "max-content", "fit-content", "stretch"}
)


@dataclass(frozen=True, slots=True)
class Look:
    """The computed style of an element, as far as the elements in it have it, too.

    Attributes:
        gone: whether nothing in it can be seen, whatever is said of that.
        visible: what `visibility` says.
        color: of its text, None where it is not known.
        fill: what paints the text instead of `color`, or None.
        ground: what lies behind it, None where it is not known.
        own: whether a ground was named on the way here.
        alpha: what the opacities around leave.
        font_px: the size of its letters.
        indent_px: where the first line begins.
        spacing_px: between letters.
        masked: whether dots stand for letters, or the font has none.
        clipped: whether what lies behind is painted in the shape of the letters.
        room_px: width and height of the box around that cuts off what does not fit in.
        variables: custom properties.
    """

    gone: bool = False
    visible: bool = True
    color: Color | None = colors.BLACK
    fill: Color | None = None
    ground: tuple[Color, ...] | None = (colors.WHITE,)
    own: bool = False
    alpha: float = 1.0
    font_px: float = 16.0
    indent_px: float = 0.0
    spacing_px: float = 0.0
    masked: bool = False
    clipped: bool = False
    room_px: tuple[float, float] = (1e9, 1e9)
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


def shows_text(look: Look, *, canvas_known: bool) -> bool:
    """Return True if text that stands in an element of this look can be seen.

    Args:
        look: the element's.
        canvas_known: whether no sheet that was not read could give the page another ground.
    """
    if look.gone or not look.visible or look.masked or look.font_px < SMALL_PX:
        return False
    if look.indent_px <= -FAR_PX or look.indent_px >= VERY_FAR_PX:
        return False
    if look.spacing_px < -look.font_px / 2:
        return False
    return _stands_out(look, canvas_known=canvas_known)


def _stands_out(look: Look, *, canvas_known: bool) -> bool:
    color = look.color if look.fill is None else look.fill
    if color is None:
        return True
    if color[3] < FAINT:
        return look.clipped
    if look.ground is None or not (look.own or canvas_known):
        return True
    return any(
        colors.contrast(colors.over(color, ground), ground) >= ALIKE for ground in look.ground
    )


def cascaded(declared: list[tuple[str, str]], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the value of each property; of those that mean nothing, the one before counts.

    Args:
        declared: in the order in which they count.
        variables: custom properties of the element.
    """
    values: dict[str, str] = {}
    for name, value in declared:
        if not name.startswith("--"):
            resolved = _resolved(value, variables) if "var(" in value else value
            found = _longhands(_LOGICAL.get(name, name), resolved)
            values.update((longhand, one) for longhand, one in found if _is_valid(longhand, one))
    return values


def _resolved(value: str, variables: Mapping[str, str]) -> str:
    for _ in range(8):
        found = _VAR.search(value)
        if found is None or len(value) > 1_000:  # noqa: PLR2004 - no honest value is longer
            break
        named = variables.get(found[1], found[2] or "")
        value = f"{value[: found.start()]}{named.strip()}{value[found.end() :]}".strip()
    return value


def _longhands(name: str, value: str) -> list[tuple[str, str]]:
    """Return what a shorthand stands for, as far as it can hide something."""
    if name == "background":
        return [("background", value), ("background-color", _ground_color(value))]
    if name == "background-image":
        return [("background", value)]
    if name == "font":
        found = _FONT.fullmatch(value)
        return [("font-size", found[1])] if found else []
    if name == "inset":
        parts = _four(value)
        return list(zip(("top", "right", "bottom", "left"), parts, strict=True)) if parts else []
    if name in {"margin", "padding"}:
        parts = _four(value)
        return [(f"{name}-top", parts[0]), (f"{name}-left", parts[3])] if parts else []
    return [(name, value)]


def _ground_color(value: str) -> str:
    if value in _GLOBAL or "currentcolor" in value:
        return "currentcolor" if "currentcolor" in value else value
    bare = _CALL.sub(
        lambda found: "" if "gradient" in found[1] or found[1] == "url" else found[0], value
    )
    found = colors.colors_in(bare)
    if not found:
        return "transparent"
    red, green, blue, alpha = found[-1]
    return f"rgba({red} {green} {blue} / {alpha})"


def _four(value: str) -> list[str]:
    parts = re.findall(r"[a-z-]*\([^()]*\)|[^\s()]+", value)
    if not 1 <= len(parts) <= 4:  # noqa: PLR2004 - what such shorthands have
        return []
    return [
        parts[0],
        parts[1 % len(parts)],
        parts[2 % len(parts)],
        parts[-1 if len(parts) in {2, 4} else 1 % len(parts)],
    ]


def _is_valid(name: str, value: str) -> bool:
    """Return True if a browser takes the value; one that it does not take changes nothing."""
    if value in _GLOBAL or value in _WORDS.get(name, ()):
        return True
    if name in _WORDS:
        return False
    if name in _COLORS:
        return value == "currentcolor" or colors.color_of(value) is not None
    if name in _LENGTHS or name in {"font-size", "opacity"}:
        words = {*_SIZES, "smaller", "larger"} if name == "font-size" else _LENGTH_WORDS
        return value in words or pixels(value) is not None
    return bool(value)


def look_of(values: Mapping[str, str], around: Look, variables: Mapping[str, str]) -> Look:
    """Return how an element looks.

    Args:
        values: of its properties.
        around: the look of the element around.
        variables: custom properties of the element.
    """
    if not values:
        return around if variables is around.variables else replace(around, variables=variables)
    font_px = _font_px(values.get("font-size", ""), around.font_px) * _zoom(values)
    color = _color(values.get("color", ""), around)
    look = replace(
        around,
        visible=_visible(values.get("visibility", ""), around),
        color=color,
        fill=_fill(values.get("-webkit-text-fill-color", ""), color, around),
        font_px=font_px,
        indent_px=_inherited(values, "text-indent", font_px, around.indent_px),
        spacing_px=_inherited(values, "letter-spacing", font_px, around.spacing_px),
        alpha=around.alpha * _alpha(values),
        masked=around.masked or _masked(values),
        variables=variables,
    )
    look = _on_its_ground(values, look, around)
    gone = around.gone or look.alpha < FAINT or _gone(values, font_px, look)
    return replace(look, gone=gone, room_px=_room(values, font_px, around))


def _font_px(value: str, around: float) -> float:
    if not value or value in _GLOBAL:
        return 16.0 if value == "initial" else around
    if value in _SIZES:
        return _SIZES[value]
    if value in {"smaller", "larger"}:
        return around * (0.83 if value == "smaller" else 1.2)
    found = pixels(value, font_px=around, whole_px=around)
    return around if found is None else max(found, 0.0)


def _zoom(values: Mapping[str, str]) -> float:
    found = pixels(values.get("zoom", ""), whole_px=1.0)
    return found if found is not None and found > 0 else 1.0


def _room(values: Mapping[str, str], font_px: float, around: Look) -> tuple[float, float]:
    """Return the size of the innermost box that cuts off what stands outside of it."""
    if not _cuts(values):
        return around.room_px
    sizes: list[float] = []
    for side, room in zip(("width", "height"), around.room_px, strict=True):
        value = values.get(f"max-{side}") or values.get(side) or ""
        size = None if "%" in value else pixels(value, font_px=font_px)
        sizes.append(room if size is None else size)
    return sizes[0], sizes[1]


def _cuts(values: Mapping[str, str]) -> bool:
    overflow = values.get("overflow", "")
    return any(word in overflow for word in ("hidden", "clip", "auto", "scroll"))


def _color(value: str, around: Look) -> Color | None:
    if value in {"", "currentcolor", "inherit", "unset", "revert"}:
        return around.color
    return colors.color_of(value) or colors.BLACK


def _fill(value: str, color: Color | None, around: Look) -> Color | None:
    if not value or value in {"inherit", "unset"}:
        return around.fill
    return color if value == "currentcolor" else colors.color_of(value)


def _visible(value: str, around: Look) -> bool:
    if not value or value in {"inherit", "unset", "revert"}:
        return around.visible
    return value in {"visible", "initial"}


def _inherited(values: Mapping[str, str], name: str, font_px: float, around: float) -> float:
    value = values.get(name, "")
    if not value or value in {"inherit", "unset"}:
        return around
    found = pixels(value.split(" ")[0], font_px=font_px)
    return 0.0 if found is None else found


def _alpha(values: Mapping[str, str]) -> float:
    alpha = 1.0
    if (value := values.get("opacity", "")) and value not in _GLOBAL:
        alpha = min(max(pixels(value, whole_px=1.0) or 0.0, 0.0), 1.0)
    for name, inside in _CALL.findall(values.get("filter", "")):
        number = pixels(inside or "1", whole_px=1.0)
        if number is None:
            continue
        if name == "opacity":
            alpha *= min(max(number, 0.0), 1.0)
        elif (
            (name == "blur" and number >= _BLURRED_PX)
            or (name == "brightness" and number >= _BLEACHED)
            or (name == "contrast" and number < FAINT)
        ):
            alpha = 0.0
    return alpha


def _masked(values: Mapping[str, str]) -> bool:
    if values.get("-webkit-text-security", "none") not in {"none", *_GLOBAL}:
        return True
    if values.get("font-size-adjust", "").startswith("0") and not float_of(
        values["font-size-adjust"]
    ):
        return True
    family = values.get("font-family", "") or values.get("font", "")
    return "adobe blank" in family or "adobeblank" in family


def float_of(value: str) -> float:
    """Return a number, 0 for what is none."""
    return pixels(value) or 0.0


def _on_its_ground(values: Mapping[str, str], look: Look, around: Look) -> Look:
    """Return the look with what lies behind the element's text."""
    background = values.get("background", "")
    clipped = around.clipped or (
        "text" in values.get("background-clip", "") or background.endswith(" text")
    )
    look = replace(look, clipped=clipped)
    if clipped:
        return replace(look, ground=None)
    color_value = values.get("background-color", "")
    if not color_value and look.color is not None and "filter" in values:
        look = replace(look, color=_filtered(look.color, values["filter"]))
    color = look.color if color_value == "currentcolor" else colors.color_of(color_value)
    grounds = around.ground
    if color is not None and color[3] > 0:
        base = (grounds or (colors.WHITE,)) if color[3] < 1 else (colors.WHITE,)
        opaque = grounds is not None or color[3] > 1 - FAINT
        grounds = tuple(colors.over(color, one) for one in base) if opaque else None
        look = replace(look, own=opaque or look.own)
    if "gradient(" in background:
        stops = colors.colors_in(background)
        base = (grounds or (colors.WHITE,))[0]
        grounds = tuple(colors.over(stop, base) for stop in stops) or None
        look = replace(look, own=True)
    elif _url(background) or "image-set(" in background or "element(" in background:
        grounds = None
    return replace(look, ground=grounds)


def _filtered(color: Color, filters: str) -> Color:
    """Return a colour as it looks through filters."""
    parts = list(color[:3])
    for name, inside in _CALL.findall(filters):
        share = pixels(inside or "1", whole_px=1.0) or 0.0
        if name == "brightness":
            parts = [min(part * share, 255.0) for part in parts]
        elif name == "invert":
            parts = [part * (1 - share) + (255.0 - part) * share for part in parts]
    return parts[0], parts[1], parts[2], color[3]


def _gone(values: Mapping[str, str], font_px: float, look: Look) -> bool:
    """Return True if the element, with all that is in it, cannot be seen."""
    return (
        values.get("display") == "none"
        or values.get("content-visibility") == "hidden"
        or "url(" in values.get("content", "")
        or _boxed_in(values, font_px)
        or _outside(values, font_px)
        or _pushed_out(values, font_px, look)
        or _clipped(values, font_px)
        or _moved(values, font_px)
        or _behind(values)
        or _blended(values, look)
        or _masked_out(values)
    )


def _length(values: Mapping[str, str], name: str, font_px: float) -> float | None:
    value = values.get(name)
    return None if value is None else pixels(value, font_px=font_px)


def _boxed_in(values: Mapping[str, str], font_px: float) -> bool:
    """Return True if its box has no room for a letter."""
    cuts = _cuts(values)
    for side in ("width", "height"):
        least = _length(values, f"min-{side}", font_px)
        if least is not None and least >= SMALL_PX:
            continue
        for name in (side, f"max-{side}"):
            room = _length(values, name, font_px)
            if room is not None and (room <= 0 or (room < SMALL_PX and cuts)):
                return True
    line = values.get("line-height", "")
    spread = pixels(line, font_px=font_px, whole_px=font_px) if line else None
    if cuts and spread is not None and 0 <= spread < 0.25:  # noqa: PLR2004 - of a line
        return True
    indents = [values.get("text-indent", ""), values.get("padding-left", "")]
    pushed = any(value.endswith("%") and float_of(value[:-1]) >= 100 for value in indents)  # noqa: PLR2004 - the whole box
    flat = re.fullmatch(r"0(?:px)?(?:fr)?", values.get("grid-template-rows", "")) is not None
    contain = values.get("contain", "")
    alone = "strict" in contain and "height" not in values
    return (cuts and (pushed or flat)) or alone


def _pushed_out(values: Mapping[str, str], font_px: float, look: Look) -> bool:
    """Return True if it begins outside of the box around, or of its own, that cuts it off."""
    placed = values.get("position", "static") != "static"
    own = _room(values, font_px, look)
    outer = (("left", "margin-left"), ("top", "margin-top"))
    inner = (("padding-left", "text-indent"), ("padding-top",))
    for room, names in zip((*look.room_px, *own), (*outer, *inner), strict=True):
        for name in names:
            place = _length(values, name, font_px)
            counts = placed or "-" in name  # as left and top do only where it is placed
            if place is not None and place >= max(room, 1.0) and counts:
                return True
    line = values.get("line-height", "")
    lines = pixels(line, font_px=font_px, whole_px=font_px) if line[-1:].isalpha() else None
    return look.indent_px >= own[0] or (lines or 0.0) / 2 >= own[1] + font_px


def _outside(values: Mapping[str, str], font_px: float) -> bool:
    """Return True if it is put far outside of the page."""
    for name in ("left", "right", "top", "bottom"):
        place = _length(values, name, font_px)
        if place is not None and (place <= -FAR_PX or place >= VERY_FAR_PX):
            return True
        if values.get("position") in {"absolute", "fixed"} and _past_the_edge(values.get(name, "")):
            return True
    if (_length(values, "word-spacing", font_px) or 0.0) <= -FAR_PX / 2:
        return True
    if any(float_of(f"0{n[1:]}") >= PUSHED_PX for n in _negatives(values.get("offset-path", ""))):
        return True
    for name in ("margin-left", "margin-top"):
        place = _length(values, name, font_px)
        if place is not None and (place <= -PUSHED_PX or place >= VERY_FAR_PX):
            return True
    return False


def _past_the_edge(value: str) -> bool:
    found = re.fullmatch(r"(-?[\d.]+)(%|vw|vh)", value)
    if found is None:
        return False
    share = float_of(found[1])
    return share >= 100 or share <= -100  # noqa: PLR2004 - the whole page


def _clipped(values: Mapping[str, str], font_px: float) -> bool:
    """Return True if nothing is left of it after clipping."""
    for name, inside in _CALL.findall(values.get("clip", "")):
        parts = [pixels(part, font_px=font_px) for part in re.split(r"[\s,]+", inside.strip())]
        if name == "rect" and len(parts) == 4 and _is_thin(*parts):  # noqa: PLR2004 - its sides
            return True
    path = values.get("clip-path", "")
    return any(_shape_is_empty(name, inside, font_px) for name, inside in _CALL.findall(path))


def _is_thin(
    top: float | None, right: float | None, bottom: float | None, left: float | None
) -> bool:
    tall = None if bottom is None else bottom - (top or 0.0)
    wide = None if right is None else right - (left or 0.0)
    return (tall is not None and tall < SMALL_PX) or (wide is not None and wide < SMALL_PX)


def _shape_is_empty(name: str, inside: str, font_px: float) -> bool:
    shape = inside.split(" round ", maxsplit=1)[0].split(" at ", maxsplit=1)[0].strip().strip("\"'")
    parts = [pixels(p, font_px=font_px, whole_px=300.0) for p in re.findall(r"[^\s,()]+", shape)]
    sizes = [part for part in parts if part is not None]
    if name == "inset":
        top, right, bottom, left = (float_of(p) for p in _four(_in_pixels(shape)) or ["0"] * 4)
        return top + bottom >= 300 - SMALL_PX or left + right >= 300 - SMALL_PX
    if name == "rect":
        return len(parts) == 4 and _is_thin(*parts)  # noqa: PLR2004 - its sides
    if name in {"polygon", "path"}:
        points = sizes if name == "polygon" else [float_of(n) for n in _NUMBERS(shape)]
        spans = [max(axis) - min(axis) for axis in (points[::2], points[1::2]) if axis]
        return not spans or min(spans) < SMALL_PX
    across = {"circle": sizes[:1], "ellipse": sizes[:2], "xywh": sizes[2:4]}.get(name, [])
    return any(size < SMALL_PX for size in across)


def _in_pixels(shape: str) -> str:
    found = [pixels(part, whole_px=300.0) for part in shape.split()]
    return " ".join(f"{part or 0:g}px" if part is None or part >= 0 else "0px" for part in found)


def _moved(values: Mapping[str, str], font_px: float) -> bool:
    """Return True if it is scaled to nothing, turned on its edge or away, or shifted outside."""
    transform = values.get("transform", "")
    for name in ("scale", "translate", "rotate"):
        if (value := values.get(name, "")) and value not in {"none", *_GLOBAL}:
            transform += f" {_as_call(name, value)}"
    away = values.get("backface-visibility") == "hidden"
    return any(
        _hides_by(name, inside, font_px, away=away) for name, inside in _CALL.findall(transform)
    )


def _as_call(name: str, value: str) -> str:
    parts = value.split()
    if name == "rotate" and len(parts) == 2:  # noqa: PLR2004 - an axis and an angle
        return f"rotate{min(parts, key=len)}({max(parts, key=len)})"
    if name == "rotate" and len(parts) == 4:  # noqa: PLR2004 - three parts of an axis and an angle
        angle = max(parts, key=len)
        parts.remove(angle)
        return f"rotate3d({','.join([*parts, angle])})"
    return f"{name}({','.join(parts)})"


def _hides_by(name: str, inside: str, font_px: float, *, away: bool) -> bool:
    values = [part.strip() for part in inside.split(",")]
    numbers = [pixels(value, font_px=font_px, whole_px=150.0) for value in values]
    if name.startswith("scale"):
        factors = [pixels(value, whole_px=1.0) for value in values]
        return any(factor is not None and abs(factor) < FAINT for factor in factors[:2])
    if name.startswith("matrix"):
        return _flattens([number or 0.0 for number in numbers])
    if name.startswith("translate") and name != "translatez":
        return any(number is not None and _far(number) for number in numbers[:2])
    return _turns_away(name, values, away=away)


def _flattens(matrix: list[float]) -> bool:
    """Return True if a matrix of two or three dimensions leaves no area, or shifts all outside."""
    if len(matrix) == 6:  # noqa: PLR2004 - of two dimensions
        a, b, c, d, x, y = matrix
        return abs(a * d - b * c) < FAINT / 10 or _far(x) or _far(y)
    if len(matrix) == 16:  # noqa: PLR2004 - of three dimensions
        a, b, c, d = matrix[0], matrix[1], matrix[4], matrix[5]
        return abs(a * d - b * c) < FAINT / 10 or _far(matrix[12]) or _far(matrix[13])
    return False


def _turns_away(name: str, values: list[str], *, away: bool) -> bool:
    """Return True if it is skewed to a line, turned on its edge, or to its unseen back."""
    if name.startswith("skew"):
        return any(abs(abs(_degrees(value)) % 180 - 90) < _EDGE for value in values)
    flat = name == "rotate3d" and not float_of("".join(values[2:3]))
    if not (flat or name in {"rotatex", "rotatey"}):
        return False
    turned = abs(_degrees(values[-1])) % 360
    return min(abs(turned - 90), abs(turned - 270)) < _EDGE or (away and 90 < turned < 270)  # noqa: PLR2004 - degrees


def _far(shift_px: float) -> bool:
    return shift_px <= -PUSHED_PX or shift_px >= VERY_FAR_PX / 2


def _degrees(value: str) -> float:
    found = re.fullmatch(r"(-?[\d.]+)(deg|turn|rad|grad)?", value)
    if found is None:
        return 0.0
    scale = {"turn": 360.0, "rad": 57.29578, "grad": 0.9}.get(found[2] or "deg", 1.0)
    return float_of(found[1].lstrip("-")) * scale


def _behind(values: Mapping[str, str]) -> bool:
    """Return True if it lies below what lies behind it."""
    depth = values.get("z-index", "")
    return depth.startswith("-") and values.get("position", "static") != "static"


def _blended(values: Mapping[str, str], look: Look) -> bool:
    mode = values.get("mix-blend-mode", "")
    light = look.ground is not None and all(min(ground[:3]) > 240 for ground in look.ground)  # noqa: PLR2004 - nearly white
    return light and mode in {"screen", "lighten", "color-dodge", "plus-lighter"}


def _masked_out(values: Mapping[str, str]) -> bool:
    """Return True if a mask leaves nothing."""
    mask = values.get("mask", "")
    if "url(" in mask or (mask and values.get("mask-size", "").startswith("0")):
        return True  # an image that does not come leaves nothing, either
    found = colors.colors_in(mask) if "gradient(" in mask else []
    return bool(found) and all(color[3] < FAINT for color in found)


def covers(values: Mapping[str, str]) -> bool:
    """Return True if an element is an opaque box that lies on all of the element around."""
    ground = colors.color_of(values.get("background-color", ""))
    if values.get("position") != "absolute" or ground is None or ground[3] < 1 - FAINT:
        return False
    unseen = values.get("display") == "none" or values.get("visibility") in {"hidden", "collapse"}
    if unseen or _alpha(values) < 1 - FAINT or _behind(values):
        return False
    sides = (("left", "right", "width"), ("top", "bottom", "height"))
    return all(_spans(values, *side) for side in sides)


def _spans(values: Mapping[str, str], start: str, end: str, size: str) -> bool:
    begins, ends = (_length(values, name, 16.0) for name in (start, end))
    if any(place is not None and place > 0 for place in (begins, ends)):
        return False
    wide = pixels(values.get(size, ""))  # 1,000 are all of it
    return (begins is not None and ends is not None) or (wide is not None and wide >= 1_000)  # noqa: PLR2004 - see above

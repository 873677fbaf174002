"""Colours of CSS as red, green, blue and alpha."""

from __future__ import annotations

import colorsys
import re
from typing import Final, TypeAlias

Color: TypeAlias = tuple[float, float, float, float]
"""Red, green and blue from 0 to 255, alpha from 0 to 1."""

WHITE: Final[Color] = (255.0, 255.0, 255.0, 1.0)
BLACK: Final[Color] = (0.0, 0.0, 0.0, 1.0)
CLEAR: Final[Color] = (0.0, 0.0, 0.0, 0.0)

# Source: CSS Color Module Level 4, 6.1 (named colors) and 6.2 (system colors), as browsers show
# them on a light page.
_NAMES: Final = re.compile(r"\S+").findall("""
aliceblue f0f8ff antiquewhite faebd7 aqua 00ffff aquamarine 7fffd4 azure f0ffff beige f5f5dc
bisque ffe4c4 black 000000 blanchedalmond ffebcd blue 0000ff blueviolet 8a2be2 brown a52a2a
burlywood deb887 cadetblue 5f9ea0 chartreuse 7fff00 chocolate d2691e coral ff7f50
cornflowerblue 6495ed cornsilk fff8dc crimson dc143c cyan 00ffff darkblue 00008b darkcyan 008b8b
darkgoldenrod b8860b darkgray a9a9a9 darkgreen 006400 darkgrey a9a9a9 darkkhaki bdb76b
darkmagenta 8b008b darkolivegreen 556b2f darkorange ff8c00 darkorchid 9932cc darkred 8b0000
darksalmon e9967a darkseagreen 8fbc8f darkslateblue 483d8b darkslategray 2f4f4f
darkslategrey 2f4f4f darkturquoise 00ced1 darkviolet 9400d3 deeppink ff1493 deepskyblue 00bfff
dimgray 696969 dimgrey 696969 dodgerblue 1e90ff firebrick b22222 floralwhite fffaf0
forestgreen 228b22 fuchsia ff00ff gainsboro dcdcdc ghostwhite f8f8ff gold ffd700 goldenrod daa520
gray 808080 green 008000 greenyellow adff2f grey 808080 honeydew f0fff0 hotpink ff69b4
indianred cd5c5c indigo 4b0082 ivory fffff0 khaki f0e68c lavender e6e6fa lavenderblush fff0f5
lawngreen 7cfc00 lemonchiffon fffacd lightblue add8e6 lightcoral f08080 lightcyan e0ffff
lightgoldenrodyellow fafad2 lightgray d3d3d3 lightgreen 90ee90 lightgrey d3d3d3 lightpink ffb6c1
lightsalmon ffa07a lightseagreen 20b2aa lightskyblue 87cefa lightslategray 778899
lightslategrey 778899 lightsteelblue b0c4de lightyellow ffffe0 lime 00ff00 limegreen 32cd32
linen faf0e6 magenta ff00ff maroon 800000 mediumaquamarine 66cdaa mediumblue 0000cd
mediumorchid ba55d3 mediumpurple 9370db mediumseagreen 3cb371 mediumslateblue 7b68ee
mediumspringgreen 00fa9a mediumturquoise 48d1cc mediumvioletred c71585 midnightblue 191970
mintcream f5fffa mistyrose ffe4e1 moccasin ffe4b5 navajowhite ffdead navy 000080 oldlace fdf5e6
olive 808000 olivedrab 6b8e23 orange ffa500 orangered ff4500 orchid da70d6 palegoldenrod eee8aa
palegreen 98fb98 paleturquoise afeeee palevioletred db7093 papayawhip ffefd5 peachpuff ffdab9
peru cd853f pink ffc0cb plum dda0dd powderblue b0e0e6 purple 800080 rebeccapurple 663399
red ff0000 rosybrown bc8f8f royalblue 4169e1 saddlebrown 8b4513 salmon fa8072 sandybrown f4a460
seagreen 2e8b57 seashell fff5ee sienna a0522d silver c0c0c0 skyblue 87ceeb slateblue 6a5acd
slategray 708090 slategrey 708090 snow fffafa springgreen 00ff7f steelblue 4682b4 tan d2b48c
teal 008080 thistle d8bfd8 tomato ff6347 turquoise 40e0d0 violet ee82ee wheat f5deb3 white ffffff
whitesmoke f5f5f5 yellow ffff00 yellowgreen 9acd32 canvas ffffff canvastext 000000 field ffffff
fieldtext 000000 linktext 0000ee buttonface f0f0f0 buttontext 000000 window ffffff
windowtext 000000 background ffffff
""")
NAMED: Final = dict(zip(_NAMES[::2], _NAMES[1::2], strict=True))

_KNEE: Final = 0.03928
_HEX: Final = re.compile(r"#?([0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})")
_FUNCTION: Final = re.compile(r"(rgba?|hsla?|hwb|oklch|oklab|lch|lab|color)\(\s*([^()]*)\)")
_RELATIVE: Final = re.compile(r"from\s+(#\w+|[a-z]+)\s")
_MIX: Final = re.compile(r"(light-dark|color-mix)\((.*)\)")
_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?)%")
_PART: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)(%|deg|turn|rad|grad)?|none")
_ANY: Final = re.compile(
    r"#[0-9a-f]{3,8}(?![\w-])|(?:rgba?|hsla?|hwb|oklch|oklab|lch|lab|color)\([^()]*\)|[a-z]+"
)
_TURNS: Final = {"": 1 / 360, "deg": 1 / 360, "turn": 1.0, "rad": 1 / 6.283185, "grad": 1 / 400}


def color_of(value: str) -> Color | None:
    """Return what a value in lower case stands for, None where it is no colour known here."""
    value = value.strip()
    if value == "transparent":
        return CLEAR
    digits = NAMED.get(value) or (value[1:] if value.startswith("#") else "")
    if digits:
        return _from_hex(digits)
    if found := _FUNCTION.fullmatch(value):
        relative = _RELATIVE.match(found[2])
        return color_of(relative[1]) if relative else _from_function(found[1], found[2])
    return _mixed(value)


def _mixed(value: str) -> Color | None:
    """Return the colour of `light-dark()` on a light page, and of `color-mix()`."""
    found = _MIX.fullmatch(value)
    listed = colors_in(found[2]) if found else []
    if found is None or len(listed) < 2:  # noqa: PLR2004 - of two
        return None
    one, other = listed[-2:]
    if found[1] == "light-dark":
        return one
    shares = [float(share) / 100 for share in _SHARE.findall(found[2])]
    share = shares[0] if shares else 0.5
    red, green, blue, alpha = (a * share + b * (1 - share) for a, b in zip(one, other, strict=True))
    return red, green, blue, alpha


def legacy_color_of(value: str) -> Color | None:
    """Return what an attribute such as `bgcolor` stands for; "#" may be missing there."""
    value = value.strip().lower()
    return color_of(value) or (_from_hex(value) if _HEX.fullmatch(value) else None)


def colors_in(value: str) -> list[Color]:
    """Return the colours in a value that holds other words, too, such as one of `background`."""
    return [color for found in _ANY.findall(value) if (color := color_of(found)) is not None]


def over(color: Color, ground: Color) -> Color:
    """Return what is seen of a colour that lies on an opaque one."""
    alpha = color[3]
    red, green, blue = (color[n] * alpha + ground[n] * (1 - alpha) for n in range(3))
    return red, green, blue, 1.0


def contrast(one: Color, other: Color) -> float:
    """Return how far two opaque colours are apart, from 1 to 21.

    Source: Web Content Accessibility Guidelines 2.2, "contrast ratio".
    """
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: Color) -> float:
    parts = [min(max(part, 0.0), 255.0) / 255 for part in color[:3]]
    linear = [part / 12.92 if part <= _KNEE else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _from_hex(digits: str) -> Color | None:
    if not _HEX.fullmatch(digits):
        return None
    if len(digits) <= 4:  # noqa: PLR2004 - one digit a part
        digits = "".join(digit * 2 for digit in digits)
    red, green, blue, alpha = (int((digits + "ff")[at : at + 2], 16) for at in (0, 2, 4, 6))
    return float(red), float(green), float(blue), alpha / 255


def _from_function(name: str, inside: str) -> Color | None:
    parts = [(float(found[1] or 0), found[2] or "") for found in _PART.finditer(inside)]
    if len(parts) not in {3, 4}:
        return None
    (*_, last), alpha = parts[:3], 1.0
    if len(parts) == 4:  # noqa: PLR2004 - with alpha
        alpha = parts[3][0] / (100 if parts[3][1] else 1)
    alpha = min(max(alpha, 0.0), 1.0)
    if name.startswith("rgb"):
        red, green, blue = (v * 2.55 if unit else v for v, unit in parts[:3])
        return red, green, blue, alpha
    if name == "color":
        red, green, blue = (v * 2.55 if unit else v * 255 for v, unit in parts[:3])
        return red, green, blue, alpha
    turn = parts[0][0] * _TURNS.get(parts[0][1], 1 / 360)
    if name.startswith("hsl"):
        rgb = colorsys.hls_to_rgb(turn % 1, min(last[0], 100) / 100, min(parts[1][0], 100) / 100)
        return rgb[0] * 255, rgb[1] * 255, rgb[2] * 255, alpha
    if name == "hwb":
        white, black = parts[1][0] / 100, last[0] / 100
        rgb = colorsys.hls_to_rgb(turn % 1, 0.5, 1.0)
        scale = max(1 - white - black, 0)
        return *((part * scale + white) * 255 for part in rgb), alpha  # type: ignore[return-value] - of three parts
    light = parts[0][0] / (100 if parts[0][1] or not name.startswith("ok") else 1)
    grey = 255 * min(max(light, 0.0), 1.0)  # near enough, as what hides is white or black
    return grey, grey, grey, alpha

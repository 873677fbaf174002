"""Style sheets as a flat list of rules, in linear time.

Source: CSS Syntax Module Level 3, CSS Nesting Module Level 1, Media Queries Level 4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from lib.content.html.visibility.lengths import HEIGHT_PX, WIDTH_PX, pixels

Declarations: TypeAlias = list[tuple[str, str, bool]]
"""Property and value in lower case, and whether it is important."""

MAX_RULES: Final = 20_000
MAX_DEPTH: Final = 12
MAX_SELECTOR_CHARS: Final = 4_000
MAX_VALUE_CHARS: Final = 1_000

_REMARK: Final = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_STRING: Final = r'"(?:[^"\\\n]|\\.)*"?|\'(?:[^\'\\\n]|\\.)*\'?'
_STOP: Final = re.compile(
    rf"{_STRING}|\\.|url\([^)\"']*\)|[{{}};()\[\]]", re.DOTALL | re.IGNORECASE
)
_ESCAPE: Final = re.compile(r"\\(?:([0-9a-fA-F]{1,6})(?:\r\n|\s)?|([^\n]))")
_IMPORTANT: Final = re.compile(r"!\s*important\s*\Z", re.IGNORECASE)
_MEDIA_PART: Final = re.compile(r"\(([^()]*)\)")
_RANGE: Final = re.compile(
    r"(?:([^<>=]+?)\s*(<=?|>=?|=)\s*)?(width|height)\s*(?:(<=?|>=?|=)\s*(.+))?"
)


@dataclass(slots=True)
class Rule:
    """Declarations, and the text of the selectors that they are for."""

    selector: str
    declarations: Declarations


@dataclass(slots=True)
class Sheet:
    """The rules of style sheets, in their order.

    Attributes:
        rules: those that hold on a screen.
        frames: for each animation the declarations of its last frame.
        imports: True if the page also imports a sheet, which is not read here.
        cut: whether there was too much to read.
    """

    rules: list[Rule] = field(default_factory=list[Rule])
    frames: dict[str, Declarations] = field(default_factory=dict[str, Declarations])
    imports: bool = False
    cut: bool = False

    def add(self, css: str) -> None:
        """Read another sheet."""
        css = _REMARK.sub(" ", css.replace("<!--", " ").replace("-->", " "))
        _Reader(css, self).blocks("", 0)


def unescaped(text: str) -> str:
    """Return an identifier or a value with its escapes resolved."""
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def declarations(text: str) -> Declarations:
    """Return what a style attribute, or the inside of a rule without others, declares."""
    return list(_declared(_REMARK.sub(" ", text)))


def applies(query: str) -> bool:
    """Return True if a media query holds on a screen of usual size; an empty one does."""
    return any(_holds(part) for part in query.lower().split(",")) if query.strip() else True


def _character(found: re.Match[str]) -> str:
    if found[1] is None:
        return found[2]
    code = int(found[1], 16)
    return chr(code) if 0 < code < 0xD800 else "\ufffd"  # noqa: PLR2004 - no name holds more


def _declared(text: str) -> Iterator[tuple[str, str, bool]]:
    for part in _parts(text):
        name, colon, value = part.partition(":")
        if not colon:
            continue
        name, value = unescaped(name).strip().lower(), unescaped(value).strip()
        important = _IMPORTANT.search(value)
        value = value[: important.start()].strip() if important else value
        if len(value) <= MAX_VALUE_CHARS:
            yield name, " ".join(value.lower().split()), bool(important)


def _parts(text: str) -> Iterator[str]:
    """Yield what stands between semicolons outside of strings and brackets."""
    start, open_ = 0, 0
    for found in _STOP.finditer(text):
        stop = found[0]
        if stop == ";" and not open_:
            yield text[start : found.start()]
            start = found.end()
        elif stop in "([":
            open_ += 1
        elif stop in ")]":
            open_ = max(open_ - 1, 0)
    yield text[start:]


class _Reader:
    """Goes through a sheet once; blocks in blocks are read where they stand."""

    def __init__(self, css: str, sheet: Sheet) -> None:
        self._css, self._sheet = css, sheet
        self._place = 0

    def blocks(self, within: str, depth: int) -> str:
        """Read to the end of the block, and return what stands between the blocks in it.

        Args:
            within: the selector around, "" outside of rules.
            depth: how many blocks are around.
        """
        plain: list[str] = []
        while True:
            head, stop = self._head()
            if stop == "{":
                self._block(head.strip(), within, depth)
            else:
                plain.append(head)
                if stop == ";":
                    self._statement(head)
                    plain.append(";")
                elif stop in {"}", ""} and (stop == "" or depth):
                    return "".join(plain)

    def _statement(self, head: str) -> None:
        if head.lstrip()[:7].lower() == "@import":
            self._sheet.imports = True

    def _head(self) -> tuple[str, str]:
        """Return the text up to the next brace or semicolon, and what that is; "" at the end."""
        start, open_ = self._place, 0
        for found in _STOP.finditer(self._css, start):
            stop = found[0]
            if stop in "([":
                open_ += 1
            elif stop in ")]":
                open_ = max(open_ - 1, 0)
            elif stop in "{}" or (stop == ";" and not open_):
                self._place = found.end()
                return self._css[start : found.start()], stop
        self._place = len(self._css)
        return self._css[start:], ""

    def _block(self, head: str, within: str, depth: int) -> None:
        name, _, rest = head.partition(" ") if head.startswith("@") else ("", "", head)
        name, _, more = name.partition("(")
        rest = f"({more} {rest}" if more else rest
        name = name.lower()
        if depth >= MAX_DEPTH or len(self._sheet.rules) >= MAX_RULES:
            self._sheet.cut = True
            self._skip()
        elif not name:
            self._rule(_nested(rest, within), depth)
        elif name in {"@keyframes", "@-webkit-keyframes"}:
            self._frames(rest.strip().strip("\"'").lower())
        elif _conditional(name, rest):
            plain = self.blocks(within, depth + 1)
            if within:
                self._add(within, plain)
        else:
            self._skip()

    def _rule(self, selector: str, depth: int) -> None:
        place = len(self._sheet.rules)
        plain = self.blocks(selector, depth + 1)
        self._add(selector, plain, place)

    def _add(self, selector: str, plain: str, place: int | None = None) -> None:
        found = list(_declared(plain))
        if found and len(selector) <= MAX_SELECTOR_CHARS:
            rules = self._sheet.rules
            rules.insert(len(rules) if place is None else place, Rule(selector, found))
        elif found:
            self._sheet.cut = True

    def _frames(self, name: str) -> None:
        inner = Sheet()
        start = self._place
        self._skip()
        _Reader(self._css[start : self._place], inner).blocks("", 0)
        for rule in inner.rules:
            if rule.selector.replace(" ", "").lower().split(",")[-1] in {"to", "100%"}:
                self._sheet.frames[name] = rule.declarations

    def _skip(self) -> None:
        depth = 1
        while depth:
            _, stop = self._head()
            depth += {"{": 1, "}": -1, "": -depth}.get(stop, 0)


def _nested(selector: str, within: str) -> str:
    """Return the selector of a rule that stands in another one."""
    if not within:
        return selector
    if "&" in selector:
        return selector.replace("&", f":is({within})")
    return ", ".join(f":is({within}) {part.strip()}" for part in selector.split(","))


def _conditional(name: str, rest: str) -> bool:
    """Return True if the rules in such a block hold."""
    if name == "@media":
        return applies(rest)
    if name == "@supports":
        return not rest.lower().lstrip().startswith("not")
    return name in {"@layer", "@container", "@scope", "@starting-style", "@document"} and (
        name != "@starting-style"
    )


def _holds(query: str) -> bool:
    query = query.strip()
    refused = query.startswith("not")
    query = query.removeprefix("not").removeprefix("only").strip()
    kind = query.split("(")[0].split()
    holds = not kind or kind[0] in {"all", "screen", "and", "not", "or"}
    found = [_feature(part) for part in _MEDIA_PART.findall(query)]
    holds = holds and (any(found) if ") or (" in query else all(found))
    return holds != refused


def _feature(text: str) -> bool:
    name, colon, value = (part.strip() for part in text.partition(":"))
    if not colon:
        return _in_range(name)
    bound, _, side = name.rpartition("-")
    if side in {"width", "height"} and bound in {"", "min", "max", "min-device", "max-device"}:
        have = WIDTH_PX if side == "width" else HEIGHT_PX
        want = pixels(value)
        if want is None:
            return False
        return have >= want if "min" in bound else have <= want if "max" in bound else have == want
    return value in _USUAL.get(name, ())


_USUAL: Final = {
    "orientation": ("landscape",),
    "hover": ("hover",),
    "any-hover": ("hover",),
    "pointer": ("fine",),
    "any-pointer": ("fine",),
    "prefers-color-scheme": ("light",),
    "prefers-reduced-motion": ("no-preference",),
    "prefers-contrast": ("no-preference",),
    "prefers-reduced-transparency": ("no-preference",),
    "forced-colors": ("none",),
    "inverted-colors": ("none",),
    "scripting": ("enabled",),
    "update": ("fast",),
    "display-mode": ("browser",),
    "color-gamut": ("srgb",),
}


def _in_range(text: str) -> bool:
    """Return True if a feature without a value, or a range such as `400px <= width`, holds."""
    found = _RANGE.fullmatch(text)
    if found is None:
        return text in {"color", "hover", "any-hover", "pointer", "width", "height", "scripting"}
    left, before, side, after, right = found.groups()
    have = WIDTH_PX if side == "width" else HEIGHT_PX
    holds = True
    if left:
        holds = _compares(pixels(left.strip()), before, have)
    if right:
        holds = holds and _compares(have, after, pixels(right.strip()))
    return holds


def _compares(one: float | None, sign: str, other: float | None) -> bool:
    if one is None or other is None:
        return False
    if sign == "=":
        return one == other
    less = one < other if sign[0] == "<" else one > other
    return less or (len(sign) > 1 and one == other)

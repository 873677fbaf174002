"""Finds the texts of a page that cannot be seen, by its elements, attributes and own style sheets.

A tree of the elements is built as browsers build it, as far as that decides what stands in what.
Sheets of other addresses are not read.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from lib._util.effort import check
from lib.content.html.visibility.colors import legacy_color_of
from lib.content.html.visibility.selectors import (
    Complex,
    Element,
    Matcher,
    TooComplexError,
    read_selectors,
)
from lib.content.html.visibility.style import Look, cascaded, covers, look_of, shows_text
from lib.content.html.visibility.stylesheet import Declarations, Sheet, applies, declarations
from lib.content.markup import STEPS_PER_CHECK, attributes, tokens

MAX_TOKENS: Final = 400_000
MAX_ELEMENTS: Final = 120_000
MAX_STEPS: Final = 600_000
"""How often an element is held against a part of a selector."""

MAX_ATTRIBUTES: Final = 256
MAX_SHADOWS: Final = 200
MAX_SHADOW_CHARS: Final = 20_000
"""In how much of a shadow root its slots are looked for."""

_telling: Final = re.compile(
    r"<style|<details|<dialog|<progress|<meter|<font|<template|<body|style\s*=|hidden|popover"
    r"|bgcolor",
    re.IGNORECASE,
).search
_shadow: Final = re.compile(r"shadowrootmode|shadowroot", re.IGNORECASE).search
_slot: Final = re.compile(r"<slot", re.IGNORECASE).search
_SKIPPED: Final = frozenset({"iframe", "noembed", "noframes", "noscript", "script"})
_RAW: Final = frozenset({"style", "textarea", "title", "xmp"})
_VOID: Final = frozenset({
    "area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "img", "input",
    "keygen", "link", "meta", "param", "source", "track", "wbr",
})  # fmt: skip
_BLOCKS: Final = frozenset({
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details",
    "dialog", "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1",
    "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "html", "legend", "li", "main", "menu", "nav",
    "ol", "p", "pre", "search", "section", "summary", "table", "tbody", "td", "template", "tfoot",
    "th", "thead", "tr", "ul",
})  # fmt: skip
_FORMATTING: Final = frozenset({
    "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
})  # fmt: skip
_SCOPES: Final = frozenset({"caption", "html", "table", "td", "template", "th"})
_TABLE: Final = frozenset(
    {"caption", "table", "tbody", "td", "template", "tfoot", "th", "thead", "tr"}
)
_CELL_ENDS: Final = frozenset({"td", "th", "tr", "tbody", "tfoot", "thead"})
_ENDED_BY: Final = {
    "p": _BLOCKS
    - {
        "body",
        "caption",
        "html",
        "legend",
        "tbody",
        "td",
        "template",
        "tfoot",
        "th",
        "thead",
        "tr",
    },
    "li": frozenset({"li"}),
    "dt": frozenset({"dt", "dd"}),
    "dd": frozenset({"dt", "dd"}),
    "td": _CELL_ENDS,
    "th": _CELL_ENDS,
    "tr": frozenset({"tr", "tbody", "tfoot", "thead"}),
    "thead": frozenset({"tbody", "tfoot"}),
    "tbody": frozenset({"tbody", "tfoot"}),
    "option": frozenset({"option", "optgroup"}),
}
_IN_HEAD: Final = frozenset({"base", "link", "meta", "script", "style", "title"})
_UNSHOWN: Final = frozenset({"datalist", "meter", "progress", "template"})
_ROOT, _BODY, _HEAD = 0, 1, 2
_MAX_REOPENED: Final = 8
_MAX_IMPLIED: Final = 20
_NO_ATTRIBUTES: Final[dict[str, str]] = {}
_SMALLER: Final = frozenset({"small", "sub", "sup"})


@dataclass(slots=True)
class Sight:
    """The invisible texts of a page.

    Attributes:
        unseen: where texts start that cannot be seen.
        end: where the page was too complex to go on, None where it was not.
    """

    unseen: set[int] = field(default_factory=set[int])
    end: int | None = None


def find_hidden_text(source: str) -> Sight:
    """Return which texts of a page cannot be seen. Linear, up to a number of steps.

    Args:
        source: HTML.
    """
    if not _telling(source):
        return Sight()
    tree = _Tree(source)
    tree.build()
    return _Judge(tree).sight()


class _Tree:
    """The elements of a page, its texts, and its own sheets."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.elements = [
            Element("html", {}, -1),
            Element("body", {}, _ROOT, place=2, before=_HEAD),
            Element("head", {}, _ROOT),
        ]
        self.elements[_ROOT].children = 2
        self.elements[_ROOT].names = {"head": 1, "body": 1}
        self.elements[_ROOT].last = _BODY
        self.starts = [0, 0, 0]
        self.texts: list[tuple[int, int]] = []
        self.sheet = Sheet()
        self.shadowed: set[int] = set()
        self.end: int | None = None
        self._stack = [_ROOT, _BODY]
        self._counts: dict[str, int] = {}
        self._begun = False
        self._shadows = 0

    def build(self) -> None:
        style = False
        found = tokens(self._source, skipped=_SKIPPED, raw=_RAW)
        for number, (kind, value, start, end) in enumerate(found):
            if number >= MAX_TOKENS or len(self.elements) > MAX_ELEMENTS:
                self.end = start
                break
            if kind == "text":
                if style:
                    self.sheet.add(value)
                else:
                    self._text(value, start)
            elif kind == "close":
                self._close(value)
            else:
                style = self._open(value, start, end)
                continue
            style = False
        while len(self._stack) > 1:
            self._pop()
        self.elements[_ROOT].end = len(self.elements)

    def _text(self, text: str, start: int) -> None:
        if text.strip():
            self._begun = True
            top = self._stack[-1]
            self.elements[top].texts = True
            self.texts.append((start, top))

    def _open(self, name: str, start: int, end: int) -> bool:
        """Take a start tag; tell whether it begins a sheet that holds."""
        found: dict[str, str] | None = _NO_ATTRIBUTES
        if end - start > len(name) + 2:
            found = attributes(self._source[start:end], limit=MAX_ATTRIBUTES)
        own_attributes = {"hidden": ""} if found is None else found
        if name in {"html", "body", "head"}:
            self._merge({"html": _ROOT, "body": _BODY, "head": _HEAD}[name], own_attributes)
            return False
        if name == "template" and _shadow(self._source, start, end):
            self._shadow(end)
        self._imply(name)
        number = self._add(name, own_attributes, start)
        self.sheet.imports |= (
            name == "link" and "stylesheet" in own_attributes.get("rel", "").lower()
        )
        if name not in _VOID and not (name in {"svg", "math"} and self._source[end - 2] == "/"):
            self._push(number)
        if name != "style":
            return False
        kind = own_attributes.get("type", "").strip().lower()
        in_template = bool(self._counts.get("template"))
        return (
            kind in {"", "text/css"}
            and applies(own_attributes.get("media", ""))
            and not in_template
        )

    def _merge(self, number: int, own_attributes: dict[str, str]) -> None:
        element = self.elements[number]
        element.attributes = {**own_attributes, **element.attributes}
        element.classes = frozenset(element.attributes.get("class", "").split())

    def _shadow(self, end: int) -> None:
        """Note that what stands beside a shadow root is shown only in its slots."""
        self._shadows += 1
        close = self._source.find("</template", end, end + MAX_SHADOW_CHARS)
        close = end + MAX_SHADOW_CHARS if close < 0 else close
        if self._shadows > MAX_SHADOWS or not _slot(self._source, end, close):
            self.shadowed.add(self._stack[-1])

    def _add(self, name: str, own_attributes: dict[str, str], start: int) -> int:
        self._begun = self._begun or name not in _IN_HEAD
        in_head = not self._begun and len(self._stack) == 2  # noqa: PLR2004 - root and body
        above = _HEAD if in_head else self._stack[-1]
        parent, number = self.elements[above], len(self.elements)
        parent.children += 1
        parent.names[name] = parent.names.get(name, 0) + 1
        element = Element(
            name,
            own_attributes,
            above,
            parent.children,
            parent.names[name],
            parent.last,
            end=number + 1,
        )
        if "class" in own_attributes:
            element.classes = frozenset(own_attributes["class"].split())
        parent.last = number
        self.elements.append(element)
        self.starts.append(start)
        return number

    def _push(self, number: int) -> None:
        self._stack.append(number)
        name = self.elements[number].name
        self._counts[name] = self._counts.get(name, 0) + 1

    def _pop(self) -> int:
        number = self._stack.pop()
        element = self.elements[number]
        element.end = len(self.elements)
        if number > _HEAD:
            self._counts[element.name] -= 1
        return number

    def _imply(self, name: str) -> None:
        """End the elements that end where such a one starts."""
        for back in range(1, min(_MAX_IMPLIED, len(self._stack) - 2) + 1):
            open_ = self.elements[self._stack[-back]].name
            if name in _ENDED_BY.get(open_, ()):
                self._end(len(self._stack) - back)
                return self._imply(name)
            if open_ in _BLOCKS:
                return None
        return None

    def _close(self, name: str) -> None:
        if not self._counts.get(name):
            return
        inline = name not in _BLOCKS
        for at in range(len(self._stack) - 1, 1, -1):
            open_ = self.elements[self._stack[at]].name
            if open_ == name:
                self._end(at)
                return
            if open_ in _SCOPES and name not in _TABLE:
                return
            if inline and open_ in _BLOCKS and name not in _FORMATTING:
                return

    def _end(self, at: int) -> None:
        """End an element; what formats text goes on after it, and so do blocks after such."""
        ended = self.elements[self._stack[at]].name
        reopened: list[int] = []
        while len(self._stack) > at:
            number = self._pop()
            name = self.elements[number].name
            goes_on = name in _FORMATTING or (ended in _FORMATTING and name in _BLOCKS)
            if len(self._stack) > at and goes_on:
                reopened.append(number)
        for number in reversed(reopened[:_MAX_REOPENED]):
            old = self.elements[number]
            self._push(self._add(old.name, dict(old.attributes), self.starts[number]))


class _Judge:
    """Works out how each element looks."""

    def __init__(self, tree: _Tree) -> None:
        self._tree, self._elements = tree, tree.elements
        self._matcher = Matcher(tree.elements, MAX_STEPS)
        self._by_id: dict[str, list[int]] = {}
        self._by_class: dict[str, list[int]] = {}
        self._by_tag: dict[str, list[int]] = {}
        self._rules: list[tuple[Complex, Declarations]] = []
        self._covers: list[tuple[int, int]] = []
        self._styles: dict[str, Declarations] = {}
        for rule in tree.sheet.rules:
            for selector in read_selectors(rule.selector):
                self._file(selector, rule.declarations)

    def _file(self, selector: Complex, declared: Declarations) -> None:
        last = selector.parts[0][1]
        kept, key = self._by_tag, last.tag
        if last.id:
            kept, key = self._by_id, last.id
        elif last.classes:
            kept, key = self._by_class, last.classes[0]
        kept.setdefault(key, []).append(len(self._rules))
        self._rules.append((selector, declared))

    def sight(self) -> Sight:
        looks: list[Look] = []
        end = 0 if self._tree.sheet.cut else self._tree.end
        canvas_known = not self._tree.sheet.imports
        order = [_ROOT, _BODY, _HEAD, *range(3, len(self._elements))]
        try:
            for number in order:
                if number % STEPS_PER_CHECK == 0:
                    check()
                looks.append(self._look(number, looks))
        except TooComplexError:
            end = self._tree.starts[len(looks)] if len(looks) > _HEAD else 0
        shown = [
            self._shows_text(number, look, canvas_known=canvas_known)
            for number, look in enumerate(looks)
        ]
        texts = self._tree.texts
        unseen = {start for start, number in texts if not any(shown[number : number + 1])}
        return Sight(unseen | self._covered(), end)

    def _note_cover(self, number: int, element: Element, values: Mapping[str, str]) -> None:
        """Note an element that lies on all that stands before it in the element around."""
        if element.parent > _HEAD and covers(values):
            self._covers.append((self._tree.starts[element.parent], self._tree.starts[number]))

    def _covered(self) -> set[int]:
        """Return where the texts start that lie below an opaque box."""
        texts = [start for start, _ in self._tree.texts]
        covered: set[int] = set()
        until = -1
        for first, last in sorted(self._covers):
            begin = bisect_left(texts, max(first, until))
            covered.update(texts[begin : bisect_left(texts, last)])
            until = max(until, last)
        return covered

    def _shows_text(self, number: int, look: Look, *, canvas_known: bool) -> bool:
        element = self._elements[number]
        if element.name == "title":
            return True
        if element.name == "details" and "open" not in element.attributes:
            return False
        return shows_text(look, canvas_known=canvas_known)

    def _look(self, number: int, looks: list[Look]) -> Look:
        element = self._elements[number]
        around = Look() if element.parent < 0 else looks[element.parent]
        declared = self._declared(element, number)
        variables = around.variables
        own = {name: value for name, value in declared if name.startswith("--")}
        if own:
            variables = {**variables, **dict(list(own.items())[:50])}
        values = cascaded(declared, variables) if declared else {}
        self._note_cover(number, element, values)
        if number <= _HEAD:  # scripts show what is hidden as a whole
            values = {name: values[name] for name in values if name in _OF_THE_PAGE}
        look = look_of(values, around, variables)
        if number > _HEAD and not look.gone and self._is_unshown(element, number):
            look = look_of({"display": "none"}, look, variables)
        return look

    def _declared(self, element: Element, number: int) -> list[tuple[str, str]]:
        """Return what is declared for an element, in the order in which it counts."""
        weighed = sorted(self._weighed(element, number), key=lambda one: one[0])
        plain = [(name, value) for _, rule in weighed for name, value, high in rule if not high]
        high = [(name, value) for _, rule in weighed for name, value, high in rule if high]
        found = [*_presented(element), *plain, *high]
        return [*found, *self._animated(found)]

    def _weighed(
        self, element: Element, number: int
    ) -> Iterator[tuple[tuple[int, tuple[int, int, int], int], Declarations]]:
        for place in self._candidates(element):
            selector, declared = self._rules[place]
            if self._matcher.matches(selector, number):
                yield (0, selector.specificity, place), declared
        if style := element.attributes.get("style", ""):
            if style not in self._styles:
                self._styles[style] = declarations(style)
            yield (1, (0, 0, 0), 0), self._styles[style]

    def _candidates(self, element: Element) -> Iterator[int]:
        if self._rules:
            yield from self._by_tag.get("", ())
            yield from self._by_tag.get(element.name, ())
            for name in element.classes:
                yield from self._by_class.get(name, ())
            yield from self._by_id.get(element.attributes.get("id", ""), ())

    def _animated(self, found: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return what holds when an animation of the element has ended."""
        frames = self._tree.sheet.frames
        if not frames:
            return []
        named = " ".join(
            value for name, value in found if name.endswith(("animation", "animation-name"))
        )
        return [
            (name, value)
            for word in named.replace(",", " ").split()
            for name, value, _ in frames.get(word, ())
        ]

    def _is_unshown(self, element: Element, number: int) -> bool:
        """Return True if the element's name and attributes keep it from being shown."""
        own_attributes = element.attributes
        if element.name in _UNSHOWN or "hidden" in own_attributes or "popover" in own_attributes:
            return element.name not in _VOID
        if own_attributes.get("aria-hidden", "").strip().lower() == "true":
            return True
        if element.name == "dialog":
            return "open" not in own_attributes
        if number in self._tree.shadowed:
            return True
        parent = self._elements[element.parent]
        closed = parent.name == "details" and "open" not in parent.attributes
        return closed and not (element.name == "summary" and element.typed == 1)


_OF_THE_PAGE: Final = frozenset(
    {"color", "background", "background-color", "font-size", "text-indent", "letter-spacing"}
)


def _presented(element: Element) -> Iterator[tuple[str, str]]:
    """Yield what an element's name and attributes of its look declare."""
    own_attributes = element.attributes
    if element.name in _SMALLER:
        yield "font-size", "smaller"
    elif element.name == "mark":
        yield "background-color", "yellow"
        yield "color", "black"
    elif element.name == "a" and "href" in own_attributes:
        yield "color", "linktext"
    for name, kinds, written in _LEGACY:
        if (
            written in own_attributes
            and element.name in kinds
            and (color := legacy_color_of(own_attributes[written]))
        ):
            yield name, f"rgba({color[0]} {color[1]} {color[2]} / {color[3]})"
    if "background" in own_attributes:
        yield "background-image", "url()"


_GROUNDED: Final = frozenset(
    {"body", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "marquee"}
)
_LEGACY: Final = (
    ("color", frozenset({"font", "basefont"}), "color"),
    ("color", frozenset({"body"}), "text"),
    ("background-color", _GROUNDED, "bgcolor"),
)

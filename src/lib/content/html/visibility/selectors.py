"""Selectors of CSS: read once, and held against elements from right to left.

Source: Selectors Level 4. What a page shows only on hover or click counts as not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from lib._util.effort import check
from lib.content.html.visibility.stylesheet import unescaped

Selector: TypeAlias = "list[tuple[str, Compound]]"
"""From right to left, each with what stands to its left: " ", ">", "+", "~", or "" for nothing."""

Inside: TypeAlias = "list[Complex] | tuple[int, int] | None"
"""The argument of a pseudo-class: selectors, or a step and a start."""

_STEPS_PER_CHECK: Final = 4_096
MAX_COMPOUNDS: Final = 30
MAX_NESTED: Final = 6

_IDENT: Final = r"(?:\\[0-9a-fA-F]{1,6}\s?|\\[^\n]|[\w-]|[^\x00-\x7f])+"
_SIMPLE: Final = re.compile(
    rf"(?P<tag>(?:[\w*-]*\|)?(?:\*|{_IDENT}))|\#(?P<id>{_IDENT})|\.(?P<class>{_IDENT})"
    rf"|\[\s*(?P<name>(?:[\w*-]*\|)?{_IDENT})\s*(?:(?P<op>[~|^$*]?=)\s*"
    rf"(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<bare>{_IDENT}))\s*(?P<case>[is])?\s*)?\]"
    rf"|(?P<element>::{_IDENT}(?:\([^()]*\))?)|:(?P<pseudo>{_IDENT})(?P<opens>\()?"
)
_COMBINATOR: Final = re.compile(r"\s*([>+~]|\s)\s*|\s+\Z")
_NTH: Final = re.compile(r"([+-]?\d*)n(?:\s*([+-])\s*(\d+))?|([+-]?\d+)")
_SPLIT: Final = re.compile(r"\"[^\"]*\"|'[^']*'|\\.|[(),\[\]]")

_OLD_ELEMENTS: Final = frozenset({"before", "after", "first-line", "first-letter"})
_NEVER: Final = frozenset(
    {
        *("hover", "focus", "focus-within", "focus-visible", "active", "visited", "target"),
        *("checked", "indeterminate", "fullscreen", "modal", "popover-open", "playing"),
        *("autofill", "user-invalid", "user-valid", "target-within", "current", "past", "future"),
        *("in-range", "out-of-range", "invalid", "valid", "required", "placeholder-shown"),
    }
)
_ALWAYS: Final = frozenset(
    {"defined", "enabled", "read-only", "scope", "optional", "not-fullscreen"}
)
_SHAPES: Final = frozenset(
    {
        *("first-child", "last-child", "only-child", "first-of-type", "last-of-type"),
        *("only-of-type", "root", "empty", "link", "any-link"),
    }
)
_COUNTED: Final = frozenset({"nth-child", "nth-last-child", "nth-of-type", "nth-last-of-type"})
_LISTS: Final = frozenset({"not", "is", "where", "matches", "-webkit-any", "-moz-any", "has"})


class TooComplexError(Exception):
    """Holding selectors against elements takes more steps than there are."""


@dataclass(slots=True)
class Element:
    """An element of a page, as selectors see it.

    Attributes:
        name: in lower case.
        attributes: names in lower case.
        parent: the number of the element around, -1 for the root.
        place: its number among its siblings, from 1.
        typed: the same among those of its name.
        before: the number of the sibling before, or -1.
        children: how many elements are in it, and how many of each name.
        end: the number after its last descendant's.
        texts: whether it has text.
    """

    name: str
    attributes: Mapping[str, str]
    parent: int
    place: int = 1
    typed: int = 1
    before: int = -1
    children: int = 0
    names: dict[str, int] = field(default_factory=dict[str, int])
    last: int = -1
    end: int = 0
    texts: bool = False
    classes: frozenset[str] = frozenset()


@dataclass(slots=True)
class Compound:
    """Conditions that one element has to meet."""

    tag: str = ""
    id: str = ""
    classes: list[str] = field(default_factory=list[str])
    attributes: list[tuple[str, str, str, bool]] = field(
        default_factory=list[tuple[str, str, str, bool]]
    )
    pseudos: list[tuple[str, Inside]] = field(default_factory=list["tuple[str, Inside]"])


@dataclass(slots=True)
class Complex:
    """A whole selector and how much it counts."""

    parts: Selector
    specificity: tuple[int, int, int]


def read_selectors(text: str, depth: int = 0) -> list[Complex]:
    """Return the selectors of a list; those that are not understood are left out."""
    found: list[Complex] = []
    for part in _separated(text):
        try:
            found.append(_Reader(part.strip(), depth).selector())
        except ValueError:
            continue
    return found


def _separated(text: str) -> Iterator[str]:
    start, open_ = 0, 0
    for found in _SPLIT.finditer(text):
        stop = found[0]
        if stop == "," and not open_:
            yield text[start : found.start()]
            start = found.end()
        elif stop in "([":
            open_ += 1
        elif stop in ")]":
            open_ = max(open_ - 1, 0)
    yield text[start:]


class _Reader:
    """Reads one selector."""

    def __init__(self, text: str, depth: int) -> None:
        self._text, self._depth = text, depth
        self._place = 0
        self._counts = [0, 0, 0]

    def selector(self) -> Complex:
        parts: Selector = []
        left = ""
        found = re.match(r"\s*([>+~])\s*", self._text)
        if found and self._depth:  # of :has()
            left, self._place = found[1], found.end()
        while True:
            parts.append((left, self._compound()))
            if self._place >= len(self._text):
                break
            found = _COMBINATOR.match(self._text, self._place)
            if found is None or len(parts) > MAX_COMPOUNDS:
                raise ValueError(self._text)
            left, self._place = (found[1] or " ").strip() or " ", found.end()
        ids, classes, tags = self._counts
        return Complex(parts[::-1], (ids, classes, tags))

    def _compound(self) -> Compound:
        compound = Compound()
        start = self._place
        while found := _SIMPLE.match(self._text, self._place):
            if found["tag"] and self._place > start:
                raise ValueError(self._text)
            self._place = found.end()
            self._simple(compound, found)
        if self._place == start:
            raise ValueError(self._text)
        return compound

    def _simple(self, compound: Compound, found: re.Match[str]) -> None:
        if found["tag"]:
            compound.tag = unescaped(found["tag"].rpartition("|")[2]).lower().replace("*", "")
            self._counts[2] += bool(compound.tag)
        elif found["id"]:
            compound.id = compound.id or unescaped(found["id"])
            self._counts[0] += 1
        elif found["class"]:
            compound.classes.append(unescaped(found["class"]))
            self._counts[1] += 1
        elif found["name"]:
            compound.attributes.append(_attribute(found))
            self._counts[1] += 1
        elif found["element"]:
            raise ValueError(self._text)
        else:
            self._pseudo(compound, found["pseudo"].lower(), bool(found["opens"]))

    def _pseudo(self, compound: Compound, name: str, opens: bool) -> None:
        inside = self._inside() if opens else ""
        self._counts[1] += name not in {"where", "is", "not", "has"}
        if name in _OLD_ELEMENTS:
            raise ValueError(name)
        if opens and name in _LISTS:
            if self._depth >= MAX_NESTED:
                raise ValueError(name)
            listed = read_selectors(inside, self._depth + 1)
            most = max((one.specificity for one in listed), default=(0, 0, 0))
            if name != "where":
                self._counts = [have + add for have, add in zip(self._counts, most, strict=True)]
            compound.pseudos.append((name, listed))
        elif opens and name in _COUNTED:
            compound.pseudos.append((name, _nth(inside)))
        elif name in _SHAPES or name in _NEVER or name in _ALWAYS or name in {"lang", "dir"}:
            compound.pseudos.append((name, None))
        else:
            raise ValueError(name)

    def _inside(self) -> str:
        start, open_ = self._place, 1
        for found in _SPLIT.finditer(self._text, start):
            open_ += {"(": 1, ")": -1}.get(found[0], 0)
            if not open_:
                self._place = found.end()
                return self._text[start : found.start()]
        raise ValueError(self._text)


def _attribute(found: re.Match[str]) -> tuple[str, str, str, bool]:
    name = unescaped(found["name"].rpartition("|")[2]).lower()
    value = next((found[group] for group in ("double", "single", "bare") if found[group]), "")
    return name, found["op"] or "", unescaped(value), found["case"] == "i"


def _nth(text: str) -> tuple[int, int]:
    """Return the step and the start of `2n + 1`, `odd` and the like."""
    text = text.lower().split(" of ")[0].strip()
    text = {"odd": "2n+1", "even": "2n"}.get(text, text)
    found = _NTH.fullmatch(text)
    if found is None:
        raise ValueError(text)
    step, sign, start, only = found.groups()
    if only is not None:
        return 0, int(only)
    steps = int(f"{step}1") if step in {"", "+", "-"} else int(step)
    return steps, int(f"{sign}{start}") if sign else 0


class Matcher:
    """Holds selectors against the elements of a page, in a limited number of steps."""

    def __init__(self, elements: list[Element], steps: int) -> None:
        self._elements, self._steps = elements, steps
        self._anchor = 0

    def matches(self, selector: Complex, number: int) -> bool:
        """Return True if an element is one that the selector means.

        Raises:
            TooComplexError: no steps are left.
        """
        return self._from(selector.parts, 0, number)

    def _from(self, parts: Selector, at: int, number: int) -> bool:
        """Return True if the part at a place, and what stands to its left, is met."""
        self._spend()
        left, compound = parts[at]
        if not self._meets(compound, number):
            return False
        if at + 1 == len(parts):
            return left == "" or self._is_beside(left, number)
        return any(self._from(parts, at + 1, other) for other in self._left_of(left, number))

    def _is_beside(self, left: str, number: int) -> bool:
        """Return True if an element stands to the one that has `:has()` as its combinator says."""
        element, anchor = self._elements[number], self._anchor
        if left == ">":
            return element.parent == anchor
        if left == "+":
            return element.before == anchor
        return element.parent == self._elements[anchor].parent

    def _left_of(self, combinator: str, number: int) -> Iterator[int]:
        element = self._elements[number]
        if combinator in {">", " "}:
            parent = element.parent
            while parent >= 0:
                yield parent
                if combinator == ">":
                    return
                self._steps -= 1
                parent = self._elements[parent].parent
            return
        before = element.before
        while before >= 0:
            yield before
            if combinator == "+":
                return
            self._steps -= 1
            before = self._elements[before].before

    def _meets(self, compound: Compound, number: int) -> bool:
        element = self._elements[number]
        if compound.tag and compound.tag != element.name:
            return False
        if compound.id and compound.id != element.attributes.get("id"):
            return False
        if not all(name in element.classes for name in compound.classes):
            return False
        if not all(_has(element, *wanted) for wanted in compound.attributes):
            return False
        return all(self._is(element, number, *pseudo) for pseudo in compound.pseudos)

    def _is(self, element: Element, number: int, name: str, inside: Inside) -> bool:
        if name == "has":
            return self._has(number, inside)
        if isinstance(inside, list):
            return any(self.matches(one, number) for one in inside) != (name == "not")
        if isinstance(inside, tuple):
            step, start = inside
            return _counted(self._count(element, name), step, start)
        if name in _SHAPES:
            return self._shaped(element, name)
        return name in _ALWAYS

    def _has(self, number: int, inside: Inside) -> bool:
        listed: list[Complex] = inside if isinstance(inside, list) else []
        element = self._elements[number]
        after = self._elements[element.parent].end if element.parent >= 0 else element.end
        for one in listed:
            beside = one.parts[-1][0] in {"+", "~"}
            for other in range(element.end, after) if beside else range(number + 1, element.end):
                self._spend()
                self._anchor = number
                if self.matches(one, other):
                    return True
        return False

    def _spend(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise TooComplexError
        if self._steps % _STEPS_PER_CHECK == 0:
            check()

    def _count(self, element: Element, name: str) -> int:
        typed, last = name.endswith("type"), "last" in name
        place = element.typed if typed else element.place
        if not last or element.parent < 0:
            return place
        parent = self._elements[element.parent]
        total = parent.names.get(element.name, 0) if typed else parent.children
        return total - place + 1

    def _shaped(self, element: Element, name: str) -> bool:
        if name == "root":
            return element.parent < 0
        if name == "empty":
            return not (element.texts or element.children)
        if name.endswith("link"):
            return element.name in {"a", "area"} and "href" in element.attributes
        typed = "type" in name
        kind = "of-type" if typed else "child"
        firsts = {"first": [f"nth-{kind}"], "last": [f"nth-last-{kind}"]}
        both = firsts["first"] + firsts["last"]
        wanted = firsts.get(name.split("-", maxsplit=1)[0], both)
        return all(self._count(element, one) == 1 for one in wanted)


def _has(element: Element, name: str, sign: str, value: str, any_case: bool) -> bool:
    have = element.attributes.get(name)
    if have is None:
        return False
    if any_case:
        have, value = have.lower(), value.lower()
    if sign in {"", "="}:
        return not sign or have == value
    if sign == "~=":
        return value in have.split()
    if sign == "|=":
        return have == value or have.startswith(f"{value}-")
    test = {"^=": have.startswith, "$=": have.endswith, "*=": have.__contains__}[sign]
    return bool(value) and test(value)


def _counted(count: int, step: int, start: int) -> bool:
    if not step:
        return count == start
    return (count - start) % step == 0 and (count - start) // step >= 0

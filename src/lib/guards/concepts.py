"""Where the concepts of `lib.guards.terms` stand in a text, and how far from each other. Pure.

One pass over the words: each is looked up once, with its beginnings, so the time is linear. A
distance counts the characters of words, whatever stands between them; the end of a sentence and of
a paragraph are further steps.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from lib.guards.terms import TERMS
from lib.guards.unveil import fold

_CJK: Final = "\u3040-\u30ff\u3400-\u9fff"
_FIRST_CJK: Final = "\u3040"
_WORD: Final = rf"[{_CJK}]|[^\W_{_CJK}]+(?:'[^\W_{_CJK}]+)*"
_ANY_END: Final = "\u2022"
_TERM_WORD: Final = re.compile(rf"(?:{_WORD}){_ANY_END}?")
_TOKEN: Final = re.compile(
    rf"(?P<word>{_WORD})"
    r"|(?P<paragraph>\n(?:[ \t]{0,8}\n)+)|(?P<sentence>[.!?;\u3002]+(?=\s|$)|\u3002)|[^\w\s']|\n"
)
_SENTENCE: Final = 30
_PARAGRAPH: Final = 90
_DENSE: Final = 8
_MAX_STEM: Final = 16
_MAX_WORD: Final = 40
_NOTHING: Final = "nothing"
_HAILED: Final = {"robot": "hailed", "ai": "named"}
"""Nouns that are spoken to where they begin a phrase and a comma or colon follows."""

# An order begins a phrase or follows one of these; "they ignore", "to ignore", "an answer" do not.
_BEFORE_ORDERS: Final = frozenset(
    fold(
        "please kindly and or then now must should shall you also just simply always instead first"
        " so never do will can may  always immediately only next again"
        " still hereby bitte und oder dann jetzt et puis ou y e luego despues poi oppure en of dan"
        " и или затем ok okay hey well again simply actually you'd let's lets but"
        " secretly silently quietly either finally subsequently possibly effective"
        " today session chat minutes until"
    ).split()
)
_WANTED: Final = frozenset(("you", "u", "needs", "need", "told", "required", "want", "has", "have"))
# Before "ignore" and its like these make a statement of it; any other word may end a sentence.
_SUBJECTS: Final = frozenset(
    fold(
        "to not i we they he she it who that which can could may might would will did does cannot"
        " don't n't a an the my his her its our their this of for in by with no if when often"
        " people zu wir sie man er il elle on ils nous se che chi que quem wij men"
    ).split()
)
_DENIED: Final = frozenset(("not", "never", "nicht", "kein", "don't", "cannot"))


_SALUTATIONS: Final = frozenset(("hail", "any"))


class Place(NamedTuple):
    """Where a concept stands: its distance from the beginning, and its place in the text."""

    at: int
    start: int


class _Term(NamedTuple):
    words: tuple[str, ...]
    concept: str


class _Terms(NamedTuple):
    """The terms that a word may begin: by the word that follows, and those without one or any."""

    by_second: dict[str, list[_Term]]
    others: list[_Term]


def _terms() -> Iterator[_Term]:
    for concept, columns in TERMS.items():
        for column in columns.values():
            for term in column.split(","):
                words = _TERM_WORD.findall(fold(term.replace("*", _ANY_END)))
                yield _Term(tuple(words), concept)


def _index() -> tuple[dict[str, list[_Term]], dict[str, list[_Term]]]:
    exact: dict[str, list[_Term]] = {}
    stems: dict[str, list[_Term]] = {}
    for term in _terms():
        first = term.words[0]
        chosen, key = (stems, first[:-1]) if first.endswith(_ANY_END) else (exact, first)
        chosen.setdefault(key, []).append(term)
    return exact, stems


_EXACT, _STEMS = _index()


def _candidates(word: str) -> _Terms | None:
    found = list(_EXACT.get(word, ()))
    for size in range(1, min(len(word), _MAX_STEM) + 1):
        found.extend(_STEMS.get(word[:size], ()))
    if not found:
        return None
    terms = _Terms({}, [])
    for term in sorted(found, key=_longest_first):
        if len(term.words) == 1 or term.words[1].endswith(_ANY_END):
            terms.others.append(term)
        else:
            terms.by_second.setdefault(term.words[1], []).append(term)
    return terms


def _longest_first(term: _Term) -> int:
    return -len(term.words)


class Concepts:
    """The concepts of a folded text, each with its places in order."""

    def __init__(self, text: str) -> None:
        """Read a text that has been folded."""
        self.places: dict[str, list[Place]] = {}
        self._words: list[str] = []
        self._at: list[int] = []
        self._starts: list[int] = []
        self._begins: list[bool] = []
        self._ends: list[str] = []
        self._split(text)
        self._find()

    def add(self, concept: str, starts: Iterable[int]) -> None:
        """Note what a pattern has found at these places of the text, in order."""
        found = [Place(self._distance(start), start) for start in starts]
        if found:
            self.places[concept] = found

    def near(self, concepts: str, at: int, within: int) -> bool:
        """Tell whether one of the concepts stands that near.

        They are separated by `|`; a number after `@` is another distance.
        """
        named, _, closer = concepts.partition("@")
        within = int(closer) if closer else within
        for concept in named.split("|"):
            places = self.places.get(concept)
            if places:
                index = bisect_left(places, (at - within,))
                if index < len(places) and places[index].at <= at + within:
                    return True
        return False

    def has(self, concepts: str) -> bool:
        """Tell whether one of the concepts is there at all."""
        return any(concept in self.places for concept in concepts.partition("@")[0].split("|"))

    def _distance(self, start: int) -> int:
        index = bisect_left(self._starts, start)
        return self._at[min(index, len(self._at) - 1)] if self._at else 0

    def _split(self, text: str) -> None:
        at, begins = 0, True
        for token in _TOKEN.finditer(text):
            kind = token.lastgroup
            if kind == "word":
                word = token[0]
                self._words.append(word[:_MAX_WORD])
                self._at.append(at)
                self._starts.append(token.start())
                self._begins.append(begins)
                self._ends.append("")
                at += min(len(word), _MAX_WORD) + 1
                begins = False
                continue
            begins = True
            if self._ends and not self._ends[-1]:
                self._ends[-1] = token[0][0]
            at += _PARAGRAPH if kind == "paragraph" else _SENTENCE if kind == "sentence" else 0

    def _find(self) -> None:
        known: dict[str, _Terms | None] = {}
        read = 0  # what has been found to mean nothing is read as a whole
        following = [*self._words[1:], ""]
        for index, (word, second) in enumerate(zip(self._words, following, strict=False)):
            if index < read:
                continue
            if word not in known:
                known[word] = _candidates(word)
            terms = known[word]
            if terms is not None:
                read = self._note(index, (*terms.by_second.get(second, ()), *terms.others))
        for concept in _SALUTATIONS & self.places.keys():
            self.places[concept].sort()

    def _note(self, index: int, terms: Iterable[_Term]) -> int:
        noted: set[str] = set()
        for term in terms:
            if term.concept in noted or not self._matches(index, term.words):
                continue
            if term.concept == _NOTHING:
                return index + len(term.words)
            noted.add(term.concept)
            if not term.concept.endswith("!") or self._is_order(index, term.concept):
                self._place(index, term)
        return index + 1

    def _place(self, index: int, term: _Term) -> None:
        last = index + len(term.words) - 1
        at = self._at[index]
        if term.concept in _SALUTATIONS:  # it is near what follows it
            at = self._at[last] + len(self._words[last])
        place = Place(at, self._starts[index])
        places = self.places.setdefault(term.concept, [])
        if places and 0 <= at - places[-1].at < _DENSE:  # the same again says nothing more
            return
        places.append(place)
        if term.concept in _HAILED and self._begins[index] and self._ends[last] in (":", ","):
            self.places.setdefault(_HAILED[term.concept], []).append(place)

    def _matches(self, index: int, words: tuple[str, ...]) -> bool:
        if len(words) == 1:  # looked up by it
            return True
        here = self._words[index : index + len(words)]
        return len(here) == len(words) and all(map(_is_form, here, words))

    def _is_order(self, index: int, concept: str) -> bool:
        if concept == "drop!" and _DENIED.intersection(self._words[max(0, index - 5) : index]):
            return False
        if self._begins[index] or self._words[index] >= _FIRST_CJK:
            return True
        before = self._words[index - 1]
        if concept == "drop!" and before not in _SUBJECTS and before[-1] != "s":
            return True  # a text may go on to it without a full stop
        if before in ("to", "not"):
            return before == "to" and any(
                word in _WANTED for word in self._words[max(0, index - 5) : index - 1]
            )
        return before in _BEFORE_ORDERS


def _is_form(word: str, wanted: str) -> bool:
    return word.startswith(wanted[:-1]) if wanted[-1] == _ANY_END else word == wanted

"""The stemmer agrees with Snowball's own on real words, built words and anything else."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import openai
import pytest
import snowballstemmer  # pyright: ignore[reportMissingTypeStubs] - it has no types
from hypothesis import given
from hypothesis import strategies as st

from lib.vector.text.stemmer import stem

snowball: Callable[[str], str] = cast(Any, snowballstemmer).stemmer("english").stemWord
STARTS = (
    "", "y", "'y", "arsen", "commun", "emerg", "gener", "inter", "later", "organ", "past",
    "univers", "succ", "proc", "exc", "even", "cann", "inn", "earr", "herr", "out", "d", "l",
    "t", "ad", "eg", "of", "hop", "past", "beautif", "analog", "consol",
)  # fmt: skip
SUFFIXES = (
    "abli", "aliti", "alism", "alli", "anci", "ation", "ational", "ator", "biliti", "bli",
    "enci", "entli", "fulli", "fulness", "iveness", "iviti", "ization", "izer", "lessli", "li",
    "ogi", "logi", "ogist", "ousli", "ousness", "tional", "alize", "ative", "ful", "ical",
    "icate", "iciti", "ness", "able", "al", "ance", "ant", "ate", "ement", "ence", "ent", "er",
    "ible", "ic", "ion", "sion", "tion", "ism", "iti", "ive", "ize", "ment", "ous", "e", "l",
    "ll", "ed", "eed", "ing", "edly", "eedly", "ingly", "s", "ss", "us", "sses", "ied", "ies",
    "y", "'", "'s", "'s'", "at", "bl", "iz", "bb", "tt",
)  # fmt: skip


def disagreements(words: Iterable[str]) -> dict[str, tuple[str, str]]:
    pairs = ((word, stem(word), snowball(word)) for word in words)
    return {word: (ours, theirs) for word, ours, theirs in pairs if ours != theirs}


def real_words() -> set[str]:
    """Return the words of the documentation and code that stand in the test environment."""
    site = Path(openai.__file__).parent.parent
    files = [
        path for name in ("hypothesis", "numpy", "openai") for path in site.glob(f"{name}/**/*.py")
    ]
    return {
        word
        for file in files
        for word in re.findall("[a-z']+", file.read_text("utf-8", errors="replace").lower())
    }


def test_real_words_have_the_stems_that_snowball_gives() -> None:
    words = real_words()

    assert len(words) > 15_000
    assert disagreements(words) == {}


@given(
    st.sampled_from(STARTS),
    st.text("aeiouybcdghlnstwxz'", max_size=6),
    st.lists(st.sampled_from(SUFFIXES), max_size=3),
)
def test_words_built_from_the_rules_have_the_stems_that_snowball_gives(
    start: str, middle: str, endings: list[str]
) -> None:
    assert disagreements([start + middle + "".join(endings)]) == {}


@given(st.text(st.characters(exclude_categories=("Lu", "Cs")), max_size=12))
def test_what_is_no_english_word_has_the_stem_that_snowball_gives(word: str) -> None:
    assert disagreements([word]) == {}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("", ""),
        ("searches", "search"),
        ("relational", "relat"),
        ("generously", "generous"),
        ("dying", "die"),
        ("skies", "sky"),
        ("hoping", "hope"),
        ("hopping", "hop"),
        ("evenings", "evening"),
        ("proceed", "proceed"),
        ("agreed", "agre"),
        ("news", "news"),
        ("happy", "happi"),
        ("say", "say"),
    ],
)
def test_known_words_have_their_stems(word: str, expected: str) -> None:
    assert stem(word) == expected

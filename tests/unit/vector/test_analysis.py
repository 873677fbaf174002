"""Tests what text becomes when it is indexed: one test per promise of `analyze`."""

import sqlite3
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import effort_below
from lib.vector.text.analysis import (
    FUNCTION_WORDS,
    MAX_TERM_CHARS,
    STOP_WORDS,
    analyze,
    query_words,
)
from lib.vector.text.stemmer import stem


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        ("The quick brown foxes are jumping", ["quick", "brown", "fox", "jump"]),
        ("search, searching: SEARCHED", ["search", "search", "search"]),
        # accents and forms: one word, however it is written
        ("Café CAFE cafe\u0301 \uff23\uff41\uff46\uff45 \ufb01ne", ["cafe"] * 4 + ["fine"]),
        ("İstanbul Straße Ёлка", ["istanbul", "strass", "елка"]),
        ("co\u00adoperate x\u200dy", ["cooper", "xy"]),
        ("שָׁלוֹם", ["שלום"]),
        # vowel signs of Indic scripts are letters
        ("हिन्दी, किताब", ["हिन्दी", "किताब"]),
        # apostrophes
        ("dog's dogs' don't DON\u2019T we've", ["dog", "dog", "don", "don", "we"]),
        ("café's O'Reilly 't' 'tis", ["cafe", "o", "reilli", "t", "tis"]),
        # numbers and symbols
        ("x1.5 3.14 1,000 x² ½", ["x1", "5", "3", "14", "1", "000", "x2", "1", "2"]),
        ("snake_case foo-bar a@b.com", ["snake", "case", "foo", "bar", "b", "com"]),
        ("C++ №5 100%", ["c", "no5", "100"]),
        # emoji and other symbols separate and vanish
        ("hello👋🏽world 👨\u200d👩\u200d👧 1\ufe0f\u20e3 →", ["hello", "world", "1"]),
        ("\ud800 a\x00b", ["b"]),
        # scripts without spaces: characters, then pairs
        ("猫", ["猫"]),
        ("黒猫だ", ["黒", "猫", "だ", "黒猫", "猫だ"]),
        ("python入門", ["python", "入", "門", "入門"]),
        ("ｶﾞｽ", ["ガ", "ス", "ガス"]),
        ("학교에", ["학", "교", "에", "학교", "교에"]),
        ("ไทย", ["ไ", "ท", "ย", "ไท", "ทย"]),
    ],
)
def test_text_becomes_these_terms(text: str, terms: list[str]) -> None:
    assert analyze(text) == terms


@pytest.mark.parametrize("query", ["猫", "黒猫", "학교", "ไทย"])
def test_a_part_of_an_unspaced_text_finds_the_whole(query: str) -> None:
    document = analyze("私の黒猫が好き。 학교에서 ภาษาไทย")

    assert set(analyze(query)) <= set(document)


def test_stop_words_are_lucenes_thirty_three() -> None:
    assert len(STOP_WORDS) == 33
    assert analyze(" ".join(sorted(STOP_WORDS))) == []


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("What is the DON'T of it?", []),
        ("who wrote about vitamin D", ["wrote", "vitamin", "d"]),
        ("how_far were they, which?", ["far"]),
        ("whatever he's overdoing", ["whatev", "overdo"]),
        ("i\u0302le \u00e0s \u00eele", ["ile", "as", "ile"]),
    ],
)
def test_queries_leave_out_function_words(query: str, terms: list[str]) -> None:
    assert len(FUNCTION_WORDS) == 127
    assert FUNCTION_WORDS > STOP_WORDS
    assert analyze(query_words(query)) == [term for term in terms if term not in STOP_WORDS]


def test_documents_keep_the_function_words_that_queries_leave_out() -> None:
    assert analyze("who has been here") == ["who", "has", "been", "here"]


def test_overlong_tokens_are_cut_so_that_memory_stays_bounded() -> None:
    assert analyze(f"x {'9' * 1_000_000} y") == ["x", "9" * MAX_TERM_CHARS, "y"]


@given(st.text())
def test_canonically_equal_texts_have_equal_terms(text: str) -> None:
    terms = analyze(text)

    assert analyze(unicodedata.normalize("NFC", text)) == terms
    assert analyze(unicodedata.normalize("NFD", text)) == terms


@given(st.text(), st.text())
def test_text_is_analysed_word_by_word(left: str, right: str) -> None:
    assert analyze(f"{left} {right}") == analyze(left) + analyze(right)


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_text_has_the_same_terms_among_other_text(text: str) -> None:
    assert analyze(f"{text} ω") == [*analyze(text), "ω"]


LATIN = (
    "abyzABYZ019 .,-_/+#@()\n\t" + "áàâäãåçéèêëíìîïñóòôöõúùûüýÁÇÉÑÖÜčďěňřšťůž" + "абвгд" + "αβγδ"
)


@given(st.text(LATIN, max_size=60))
def test_tokens_are_those_of_sqlite_unicode61(text: str) -> None:
    with sqlite3.connect(":memory:") as database:
        database.execute(
            "CREATE VIRTUAL TABLE t USING fts5(body, tokenize = 'unicode61 remove_diacritics 2')"
        )
        database.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, instance)")
        database.execute("INSERT INTO t VALUES (?)", (text,))
        tokens = [row[0] for row in database.execute("SELECT term FROM v ORDER BY offset")]
    database.close()

    assert analyze(text) == [stem(token) for token in tokens if token not in STOP_WORDS]


def test_a_megabyte_takes_less_than_a_second() -> None:
    words = [
        f"{first}{second}ing" for first in "bcdfghjklm" for second in ("an", "ell", "iz", "ort")
    ]
    text = " ".join(words * (1_000_000 // sum(map(len, words))))

    with effort_below(1.0):
        terms = analyze(text)

    assert len(terms) == len(text.split())

"""Text to index terms: what the lexical half of hybrid search sees of documents and queries.

1. Compatibility forms, case and accents are folded: "Café", "CAFE" and "cafe" are one word. The
   vowel signs of Indic and South-East Asian scripts are letters to their readers and stay.
2. Runs of letters and digits are tokens, as in SQLite's `unicode61`; all else separates, emoji
   and underscores included. English endings after an apostrophe ("don't", "dog's") are dropped.
3. Scripts that write no spaces between words, and Korean, become their characters and pairs of
   neighbours: every part of a text can be found, and pairs, being rarer, rank whole words first.
4. The 33 English stop words of Lucene go, the rest is stemmed. Repeated terms are kept, since both
   the term frequency of a document and the weight of a long query need them.
5. Queries also leave out the other function words of Snowball's list, as PostgreSQL does. Documents
   keep them: what stores have on disk does not depend on the list.

Step 5 is worth 3.1 points of nDCG@10 on CISI (95 % interval 1.2 to 5.1), 0.9 on Cranfield (0.3 to
1.5), 0.2 on NPL (-0.4 to 1.0) and -0.1 on SciFact (-0.9 to 0.7). A list of 287 words gains no more.
Single letters and digits are kept: without them, beyond those on the list, no collection gains or
loses what its interval shows. `benchmarks/retrieval.py --analysis` prints these figures.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Final

from lib.vector.text.stemmer import stem

STOP_WORDS: Final = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it",
    "no", "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they",
    "this", "to", "was", "will", "with",
})  # fmt: skip
FUNCTION_WORDS: Final = STOP_WORDS | frozenset({
    "about", "above", "after", "again", "against", "all", "am", "any", "because", "been", "before",
    "being", "below", "between", "both", "can", "did", "do", "does", "doing", "don", "down",
    "during", "each", "few", "from", "further", "had", "has", "have", "having", "he", "her", "here",
    "hers", "herself", "him", "himself", "his", "how", "i", "its", "itself", "just", "me", "more",
    "most", "my", "myself", "nor", "now", "off", "once", "only", "other", "our", "ours",
    "ourselves", "out", "over", "own", "s", "same", "she", "should", "so", "some", "t", "than",
    "theirs", "them", "themselves", "those", "through", "too", "under", "until", "up", "very", "we",
    "were", "what", "when", "where", "which", "while", "who", "whom", "why", "you", "your", "yours",
    "yourself", "yourselves",
})  # fmt: skip
MAX_TERM_CHARS: Final = 128
"""Longer tokens (encoded data) are cut: a prefix tells them apart, and memory stays bounded."""

_CACHED_WORDS: Final = 1 << 16
_BMP_END: Final = 0x10000

_function_words = re.compile(
    rf"(?<![^\W_]|[\u0300-\u036f])(?:{'|'.join(sorted(FUNCTION_WORDS))})(?![^\W_]|[\u0300-\u036f])",
    re.IGNORECASE,
).sub
# After a letter or its accent, before the end of the word; both the straight and the curly one.
_clitics = re.compile("(?<=[^\\W_]|[\u0300-\u036f])['\u2019](?:d|ll|m|re|s|t|ve)(?![^\\W_])").sub
_DROPPED: Final = (  # accents, Hebrew points, Arabic vowels, soft hyphens, joiners, variants
    range(0x00AD, 0x00AE),
    range(0x0300, 0x0370),
    range(0x0591, 0x05C8),
    range(0x0610, 0x061B),
    range(0x064B, 0x0660),
    range(0x1AB0, 0x1B00),
    range(0x1DC0, 0x1E00),
    range(0x200D, 0x200E),
    range(0x20D0, 0x2100),
    range(0x2060, 0x2061),
    range(0xFE00, 0xFE10),
    range(0xFE20, 0xFE30),
)
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uac00-\ud7a3"  # Kana, Hangul
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
_has_unspaced = re.compile(f"[{_UNSPACED}]").search
_unspaced_runs = re.compile(f"([{_UNSPACED}]+)").split


class _Folding(dict[int, str | None]):
    """The table of `str.translate`, computed for a character when it is first met."""

    def __missing__(self, code: int) -> str | None:
        char = chr(code)
        kept = char.isalnum() or unicodedata.category(char) in {"Mn", "Mc"}
        folded = char if kept else " "
        if any(code in block for block in _DROPPED):
            folded = None
        if code < _BMP_END:
            self[code] = folded
        return folded


_ASCII: Final = "".join(chr(code) if chr(code).isalnum() else " " for code in range(128))
_FOLDING: Final = _Folding()


def analyze(text: str) -> list[str]:
    """Return the index terms of a text in their order, repeated ones as often as they occur.

    The same text gives the same terms whatever else is installed, and a query is analysed like a
    document. Empty where the text holds no word (only emoji, only stop words).

    Source: https://lucene.apache.org/core/10_0_0/analysis/common/ (EnglishAnalyzer's stop words,
    CJKBigramFilter with single characters), https://www.sqlite.org/fts5.html (unicode61).
    """
    tokens = _ascii_tokens(text) if text.isascii() else _unicode_tokens(text)
    if max(map(len, tokens), default=0) > MAX_TERM_CHARS:
        tokens = [token[:MAX_TERM_CHARS] for token in tokens]
    return [term for term in map(_term, tokens) if term]


def query_words(text: str) -> str:
    """Return the text of a query without its function words.

    Source: https://snowballstem.org/algorithms/english/stop.txt, as PostgreSQL's `english.stop`.
    """
    return _function_words(" ", text)


@lru_cache(_CACHED_WORDS)
def _term(token: str) -> str:
    return "" if token in STOP_WORDS else stem(token)


def _ascii_tokens(text: str) -> list[str]:
    return _clitics("", text.lower()).translate(_ASCII).split()


def _unicode_tokens(text: str) -> list[str]:
    # Decomposed, accents can be dropped; what is left (Hangul, Kana) is composed again.
    folded = _clitics("", unicodedata.normalize("NFKD", text).casefold())
    plain = unicodedata.normalize("NFC", folded.translate(_FOLDING))
    tokens = plain.split()
    if not _has_unspaced(plain):
        return tokens
    return [part for token in tokens for part in _parts(token)]


def _parts(token: str) -> Iterator[str]:
    """Yield the spaced and unspaced runs of a token, the latter as characters and pairs."""
    for place, run in enumerate(_unspaced_runs(token)):
        if place % 2:
            yield from run
            yield from map("".join, pairwise(run))
        elif run:
            yield run

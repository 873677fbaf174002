"""Query texts that would break a search engine which takes a text for a query of its own."""

from __future__ import annotations

from random import Random

_SYNTAX = (
    "AND", "OR", "NOT", "NEAR", "NEAR(", "NEAR/2", "TO", "&", "|", "!", "<->", "<2>", ":*", "*",
    "^", "~", "~2",
    "+", "-", "(", ")", "[", "]", "{", "}", ":", "::", ";", "--", "/*", "*/", "'", "''", '"',
    '""', "`", "\\", "\\\\",
    "%", "_", "?", "$1", "%s", "%(x)s", "{0}", "text:", "meta:", "rowid:", "rank", "<", ">", "=",
    "@@", "@", "#",
    "\0", "\n", "\r\n", "\t", "\ud800", "\udfff", "\ufeff", "\u202e", "\u200d", "\ufe0f",
    "\u0301", "\u0345",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U000e0041", "\uffff", "\U0010ffff", "\x1f",
    "\x7f", "\x85",
)  # fmt: skip
_WORDS = (
    "fox", "foxes", "dog", "the", "and", "naïve", "İ", "ß", "ﬁ", "日本語", "บท", "학교", "हिन्दी",
    "שָׁלוֹם", "x1.5",
    "2e308", "1e-400", "http://a.b/c?d=e&f", "a@b.com", "/etc/passwd", "C++", "don't",
    "O'Reilly", "foo_bar",
    "DROP TABLE lib_vectors", "SELECT", "pg_sleep(9)", "null", "true", "a" * 3_000, "é" * 3_000,
    "x" + "\u0301" * 99,
)  # fmt: skip


def hostile_text(random: Random) -> str:
    """Return a text of syntax, words, and characters of any kind, in any order."""
    pieces = [_piece(random) for _ in range(random.randint(1, 9))]
    return random.choice(["", " ", " ", '"']).join(pieces)


def _piece(random: Random) -> str:
    kind = random.random()
    if kind < 0.55:
        return random.choice(_SYNTAX)
    if kind < 0.8:
        return random.choice(_WORDS)
    top = random.choice([0x80, 0x800, 0x10000, 0x110000])
    return "".join(chr(random.randrange(top)) for _ in range(random.randint(1, 12)))

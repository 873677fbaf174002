"""Patterns of words, such as "{api key *}": which data files a name's words tell of.

The words of a name are its runs of letters. A pattern's words match in a row, or written as one,
also at the end of a longer word ("dbpassword"); a singular matches its plural, too. What follows
them in the name says where they are used ("prod", "github"); a pattern that ends in "*" lets
anything follow.
Words such as "example" or "policy" make a name one that is about such things. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

_WORD: Final = re.compile(r"[^\W\d_]+")
_PATTERN: Final = re.compile(r"\{([^{}]+?)( \*)?\}(\.[a-z0-9]*)?")
_MIN_JOINED: Final = 5
"""Characters of what counts at the end of a longer word."""


def _singular(word: str) -> str:
    return word.removesuffix("s") if len(word) > 1 else word


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DATA: Final = _set("""
    txt text json json5 jsonc jsonl yaml yml toml ini cfg cnf conf config properties env plist xml
    csv tsv dat data db sqlite sqlite3 kv bin pickle pkl xlsx xls ods odt numbers doc docx rtf pdf
""")
"""Endings of files that hold values; programs, pages and pictures have others."""
_QUALIFIERS: Final = _set("""
    prod production stage staging stg dev develop development test testing qa uat ci local live real
    sandbox preview private main master root admin default current latest final all file store cache
    export dump backup copy old new personal work home enc encrypted decrypted plain eu u uk db
    database mysql postgre postgresql redi mongo mongodb smtp imap ftp ssh vpn wifi aw gcp gcloud
    azure google github gitlab bitbucket openai anthropic slack stripe twilio sendgrid heroku
    cloudflare digitalocean docker npm pypi huggingface hf kaggle discord telegram
""")
"""Places where credentials are used, in the singular, as what follows."""
_ABOUT: Final = _set("""
    example sample template tmpl demo dummy fake mock stub placeholder spec schema policy policie
    guide guideline readme license makefile dockerfile changelog doc documentation tutorial howto
    faq help reset forgot forgotten forget lost change rotate rotation rule usage count counter
    limit length special added design common weak strength validator validation generator generation
    management type clas model format grammar parser lexer syntax stop max min num unknown mask pad
    vocab embedding santa garden trade cs style color theme error message audit report statistic
    metric review request form page screen translation public box drop random answer sort primary
    foreign piano lookup partition music hot short result performance of the and to
""")
"""Words of files that are about credentials, or share a word with them, but hold none."""
_ABOUT_FOLDERS: Final = _set("""
    locale locales i18n l10n intl lang langs language languages translation translations doc docs
    schema schemas style styles css theme themes design .github
""")


def is_word_pattern(part: str) -> bool:
    """Return True if this component of a pattern is one of words."""
    return _PATTERN.fullmatch(part) is not None


class _Words(NamedTuple):
    words: tuple[str, ...]
    joined: str
    is_open: bool
    """True if anything may follow."""

    def match(self, name: Sequence[str]) -> bool:
        """Return True if the words of a name are these, and it is not about such things."""
        size = len(self.words)
        for index, word in enumerate(name):
            if self.words[0] not in word:
                continue
            if all(map(_is_word, name[index : index + size], self.words)) and (
                index + size <= len(name)
            ):
                before, after = name[:index], name[index + size :]
            elif (around := self._joined_in(word)) is not None:
                before, after = [*name[:index], around[0]], [around[1], *name[index + 1 :]]
            else:
                continue
            if _ABOUT.isdisjoint(map(_singular, before)) and self._may_follow(after):
                return True
        return False

    def _may_follow(self, after: Sequence[str]) -> bool:
        words = {_singular(word) for word in after if word}
        return _ABOUT.isdisjoint(words) if self.is_open else words <= _QUALIFIERS

    def _joined_in(self, word: str) -> tuple[str, str] | None:
        """Return what stands before and after these words written as one."""
        if _is_word(word, self.joined):
            return "", ""
        if len(self.joined) < _MIN_JOINED:
            return None
        for ending in (self.joined, f"{self.joined}s"):
            if word.endswith(ending):
                return word.removesuffix(ending), ""
        rest = word.removeprefix(self.joined).removeprefix("s")
        return ("", rest) if word.startswith(self.joined) and rest in _QUALIFIERS else None


class WordPatterns:
    """Patterns of words for one name."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """Compile patterns that `is_word_pattern` knows."""
        self._by_ending: dict[str | None, list[_Words]] = {}
        hints: set[str] = set()
        for pattern in patterns:
            found = _PATTERN.fullmatch(pattern)
            if found is None:
                raise ValueError(f"pattern {pattern!r} is not one of words")
            words = found[1].split()
            one = _Words(tuple(words), "".join(words), found[2] is not None)
            self._by_ending.setdefault(found[3], []).append(one)
            hints.add(words[0])
        # Nearly every name holds none of the words.
        self._hint = re.compile("|".join(map(re.escape, sorted(hints)))) if hints else None

    def match(self, names: Iterable[str]) -> bool:
        """Return True if one of the patterns matches one of the names that a file goes by."""
        return self._hint is not None and any(
            self._matches(name) for name in names if self._hint.search(name)
        )

    def match_folder(self, names: Iterable[str]) -> bool:
        """Return True if one of these names of a folder is made of a pattern's words."""
        return any(_match(each, name) for name in names for each in self._by_ending.values())

    def _matches(self, name: str) -> bool:
        bare = name.lstrip(".")
        for ending, patterns in self._by_ending.items():
            stem = _stem(bare, ending)
            if stem is not None and _match(patterns, stem):
                return True
        return False


def _is_word(word: str, pattern: str) -> bool:
    return word in (pattern, f"{pattern}s")


def holds_data(names: Iterable[str]) -> bool:
    """Return True if one of the names that a file goes by is that of values, and not about them."""
    stems = (_stem(name.lstrip("."), None) for name in names)
    return any(
        stem is not None and _ABOUT.isdisjoint(map(_singular, _split(stem))) for stem in stems
    )


def is_about(folders: Iterable[str]) -> bool:
    """Return True if one of these folders holds texts about things rather than values."""
    return not _ABOUT_FOLDERS.isdisjoint(folders)


def _match(patterns: Iterable[_Words], stem: str) -> bool:
    likely = [one for one in patterns if one.words[0] in stem]
    if not likely:
        return False
    words = _split(stem)
    return any(one.match(words) for one in likely)


def _split(stem: str) -> list[str]:
    return _WORD.findall(stem)


def _stem(name: str, ending: str | None) -> str | None:
    """Return a name without its ending, None if that is another one.

    Args:
        name: without dots at the start.
        ending: with its dot; "." for none at all; None for any ending of data, or none.
    """
    if ending == ".":
        return None if "." in name else name
    if ending is not None:
        return name.removesuffix(ending) if name.endswith(ending) else None
    parts = name.split(".")
    if len(parts) > 1 and parts[-1] not in _DATA and _singular(parts[-1]) not in _QUALIFIERS:
        return None
    while len(parts) > 1 and parts[-1] in _DATA:
        parts.pop()
    return " ".join(parts)

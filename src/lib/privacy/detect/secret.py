"""Credentials: keys of vendors by their shape, and values that are called a key or a password."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import log2
from typing import Final

from lib.privacy.detect.contexts import placed
from lib.privacy.detect.finding import Finding
from lib.privacy.detect.keys import keys

_L: Final = r"(?<![A-Za-z0-9])"

# Source: RFC 6750, 2.1; RFC 7617; RFC 9110, 11.6.2.
_SCHEME: Final = re.compile(
    r"(?i)(?<!\w)(?:(?:proxy-)?authorization[\"']?[ \t]{0,3}[:=][ \t]{0,3}[\"']?"
    r"(?:(?:bearer|basic|token|apikey|api-key|digest)[ \t]{1,3})?|bearer[ \t]{1,3})"
    r"([A-Za-z0-9._~+/=-]{8,4000})"
)
_SIGN: Final = r"\\{0,2}[\"']?[ \t]{0,4}(?:=>|:=|[:=]|(?<= )is )[ \t]{0,4}"
# "page_token" is a place in a list.
_NAMED: Final = re.compile(
    r"(?i)(api[_ -]?key|access[_ -]?key|private[_ -]?key|secret[_ -]?key|account[_ -]?key|secret"
    r"|subscription[_ -]?key|passw(?:or)?d|passwort|pwd|passphrase|(?<=[_-])pass|(?<![a-z0-9])pw"
    r"|(?<!page)(?<!page_)token|credentials?|auth[_-]?key|connection[_-]?string)"
    r"(?:[_-]?(?:id|value|base))?" + _SIGN + r"\\{0,2}([\"']?)([^\s\"'`,;<>(){}\[\]\\]{8,500})"
)
# After a word for a password anything counts that is in quotation marks, or looks made up.
_PASSWORD: Final = re.compile(
    r"(?i)(?:passw(?:or)?d|passwort|passphrase|(?<![a-z0-9])(?:pwd?|pass))"
    + _SIGN
    + r"(?:([\"'])((?:\\[^\n]|(?!\1)[^\\\n]){4,200})\1|([^\s\"'`,;<>(){}\[\]\\]{5,200}))"
)
_URL_LOGIN: Final = re.compile(r"(?<=://)[^\s/:@\"'<>\[\]]{0,80}:([^\s/@\"'<>\[\]]{3,200})@")
_STAND_IN: Final = re.compile(r"(?i)pass(?:word|wd)?|pwd?|secret|[$%{].*|[*x.]+|your[_-]?\w*")
# What stands where a password would: a hint, a variable, a type, nothing.
_NO_PASSWORD: Final = re.compile(
    r"(?i)\A\D*(?:passw|passphrase)\D*\Z|\A(?:string|null|none|true|false|text|secret|example|required|optional"
    r"|change ?me|hidden|redacted|(?:enter|type|your|the|please|must|should|choose|at least)\b.*"
    r"|[$%{<\[].*|[*x.\u2022_-]+)\Z"
)
_PARAMETERS: Final = re.compile(r"&[\w.\[\]-]{1,60}=")
_MADE_UP: Final = re.compile(
    r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])|(?=.{8})(?=[^A-Za-z]*[A-Za-z]).*[!#%&*+?@^~$](?=\w)"
)
_SOURCE: Final = re.compile(
    r"(?:os|process|env|environ|settings|config|cfg|conf|self|this|ctx|app|secrets|vault|vars?|local"
    r"|module|data|params?|args|req(?:uest)?|opts|options)(?:\.\w+)+|[a-z][\w-]*(?:/[a-z0-9][\w.-]*)+"
    r"|[$%{].*"
)
_AWS_SECRET: Final = re.compile(r"(?<![A-Za-z0-9/+=])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")
_AWS_ID: Final = re.compile(rf"{_L}(?:AKIA|ASIA)[A-Z2-7]{{16}}")
# Source: RFC 7468 and what OpenSSH and PGP write.
_PEM: Final = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BODY: Final = re.compile(r"(?:[A-Za-z0-9+/=\s]|\\[nr])*")

_MIN_ENTROPY: Final = 3.0
"""Bits per character, of a value that has a telling name; of words and dates it is lower."""


class SecretDetector:
    """Finds keys, tokens, private keys, and passwords in assignments, headers and URLs."""

    kinds: frozenset[str] = frozenset({"secret"})

    def find(self, text: str) -> Iterator[Finding]:
        """Yield the credentials themselves, without the names before them."""
        for start, end in _spans(text):
            yield Finding("secret", start, end)


def _spans(text: str) -> Iterator[tuple[int, int]]:
    yield from keys(text)
    yield from placed(text)
    for found in _SCHEME.finditer(text):
        if found[0][0] not in "bB" or _is_random(found[1]):
            yield found.span(1)
    for found in _NAMED.finditer(text):
        value = _PARAMETERS.split(found[3], maxsplit=1)[0]
        if _is_random(value) and (
            found[2] or not _is_code(found[3], text[found.end() : found.end() + 1])
        ):
            yield found.start(3), found.start(3) + len(value)
    yield from _passwords(text)
    for found in _URL_LOGIN.finditer(text):
        if not _STAND_IN.fullmatch(found[1]):
            yield found.span(1)
    if _AWS_ID.search(text):  # forty characters alone could be anything
        yield from (f.span() for f in _AWS_SECRET.finditer(text) if _is_random(f[0]))
    yield from _private_keys(text)


def _passwords(text: str) -> Iterator[tuple[int, int]]:
    for found in _PASSWORD.finditer(text):
        quoted, bare = found[2], found[3]
        if quoted is not None:
            if not _NO_PASSWORD.search(quoted):
                yield found.span(2)
        elif _MADE_UP.match(bare) and not _is_code(bare, text[found.end() : found.end() + 1]):
            yield found.start(3), found.start(3) + len(_PARAMETERS.split(bare, maxsplit=1)[0])


def _is_code(value: str, after: str) -> bool:
    """Return True if a value without quotation marks is where a program gets it from."""
    return after in ("(", "[") or _SOURCE.fullmatch(value) is not None


def _private_keys(text: str) -> Iterator[tuple[int, int]]:
    """Yield each key from its first line to its last, or as far as it goes."""
    began: int | None = None
    for mark in _PEM.finditer(text):
        if mark[1] == "END" and began is not None:
            yield began, mark.end()
            began = None
        elif mark[1] == "BEGIN":
            began = mark.start()
            body = _PEM_BODY.match(text, mark.end())
            yield began, mark.end() if body is None else body.end()


def _is_random(value: str) -> bool:
    """Return True if a value looks made by chance: letters and digits, and few of them repeated."""
    head = value[:200]
    if not any(char.isdigit() for char in head) or not any(char.isalpha() for char in head):
        return False
    counts = [head.count(char) for char in set(head)]
    return -sum(n / len(head) * log2(n / len(head)) for n in counts) >= _min_entropy(len(head))


def _min_entropy(length: int) -> float:
    """Return the least entropy; a short value cannot have much, even if all of it differs."""
    return min(_MIN_ENTROPY, 0.85 * log2(length))

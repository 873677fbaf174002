"""E-mail addresses, of any script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from lib.privacy.detect.finding import Finding

# Source: RFC 5321, 4.5.3.1 (64 octets, 255 octets), RFC 5322, 3.4.1 (atext; without "=", "/" and
# "?", which in practice stand before an address in a URL), RFC 6531 (other scripts).
_LOCAL: Final = r"[\w.!#$%&'*+^`{|}~-]"
_AT: Final = re.compile(rf"(?<={_LOCAL})(?:@|%40)(?=\w)")
_BEFORE: Final = re.compile(rf"{_LOCAL}+\Z")
_LABEL: Final = r"[^\W_](?:[\w-]{0,61}[^\W_])?"
_DOMAIN: Final = re.compile(
    rf"(?:{_LABEL}\.)+(?:xn--[a-z0-9-]{{1,59}}|[^\W\d_]{{2,63}})(?![^\W\d_])"
)
# What stands before "@" there is a password.
_LOGIN: Final = re.compile(r"://[^\s/@]{0,80}:\Z")
_OPENERS: Final = ".'`{|*&$!#^"


class EmailDetector:
    """Finds addresses such as `jo.doe+news@mail.example.org`; a quoted local part is not one.

    In a URL its "@" may be written "%40". `git@…` is how programs name a repository, not a person;
    what stands before "@" in `scheme://user:password@host` is none, either.
    """

    kinds: frozenset[str] = frozenset({"email"})

    def find(self, text: str) -> Iterator[Finding]:
        """Yield the addresses."""
        for at in _AT.finditer(text):
            place = at.start()
            before = _BEFORE.search(text[max(0, place - 64) : place])
            after = _DOMAIN.match(text[at.end() : at.end() + 255])
            local = "" if before is None else before[0].lstrip(_OPENERS)
            start = place - len(local)
            if not local or local == "git" or after is None:
                continue
            if not _LOGIN.search(text, max(0, start - 90), start):
                yield Finding("email", start, at.end() + after.end())

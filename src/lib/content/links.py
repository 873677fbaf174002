"""Absolute addresses of a page's links, in a form that fits a Markdown link."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urljoin, urlsplit

import idna

MAX_HOST_CHARS: Final = 253

_PARTS: Final = re.compile(r"(https?://)([^/?#\\]*)(.*)", re.IGNORECASE | re.DOTALL)
_AUTHORITY: Final = re.compile(r"([^:@\[\]]+)(:[0-9]*)?", re.ASCII)


def with_ascii_host(url: str) -> str | None:
    """Return an http or https URL with its host as A-labels, None where it has no such form.

    Source: UTS 46 and RFC 5891 through `idna`; a host in ASCII stays as it is.
    """
    if url.isascii():
        return url
    parts = _PARTS.fullmatch(url)
    if parts is None or parts[2].isascii():
        return url
    named = _AUTHORITY.fullmatch(parts[2])
    if named is None or len(named[1]) > MAX_HOST_CHARS:
        return None
    try:
        host = idna.encode(named[1], uts46=True).decode("ascii")
    except UnicodeError:
        return None
    return f"{parts[1]}{host}{named[2] or ''}{parts[3]}"


MAX_LINK_CHARS: Final = 2_000
"""A longer address is not shown; its text is."""

MAX_LINKS: Final = 10_000
"""How many different addresses of a page are resolved; of further links the text is shown."""

_WEB: Final = re.compile(r"https?://[^/?#\s]", re.IGNORECASE).match
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE).match
_DOTS: Final = re.compile(r"(?:^|/)\.\.?(?:[/?#]|$)").search
_DROPPED: Final = re.compile(r"[\t\n\r]").sub
_OUTER: Final = "".join(map(chr, range(33)))
# What would end a Markdown link, or could not stand in an address.
_QUOTED: Final = {
    **{code: f"%{code:02X}" for code in (*range(33), *map(ord, '()<>"`[]{}|\\^'), 127)},
    **dict.fromkeys(range(128, 160)),
}


class Links:
    """Resolves addresses against a page's own, or what it names as the base, each once."""

    def __init__(self, url: str) -> None:
        self._cache: dict[str, str | None] = {}
        self._set(url)

    def _set(self, url: str) -> None:
        self._base = url
        head, _, _ = url.partition("#")
        head, _, _ = head.partition("?")
        authority = head.find("/", head.find("://") + 3) if "://" in head else -1
        self._origin = head if authority < 0 else head[:authority]
        self._folder = f"{head}/" if authority < 0 else head[: head.rfind("/") + 1]

    def rebase(self, href: str) -> None:
        """Resolve against this address from now on, if it is one of the web."""
        base = self.absolute(href)
        if base:
            self._cache.clear()
            self._set(base)

    def absolute(self, href: str) -> str | None:
        """Return the absolute http or https address, or None if it is none or very long.

        Its host is in ASCII.
        """
        if href not in self._cache:
            if len(self._cache) >= MAX_LINKS:
                return None
            self._cache[href] = self._resolved(href)
        return self._cache[href]

    def _resolved(self, href: str) -> str | None:
        href = _DROPPED("", href.strip(_OUTER))
        if not href or href[0] == "#" or len(href) > MAX_LINK_CHARS:
            return None
        if _SCHEME(href):
            found = href
        elif href[0] == "/" and href[1:2] not in {"/", "\\"} and not _DOTS(href):
            found = self._origin + href
        elif href[0] not in "/?\\" and not _DOTS(href):
            found = self._folder + href
        else:
            found = _joined(self._base, href)
        found = found.translate(_QUOTED)
        return with_ascii_host(found) if len(found) <= MAX_LINK_CHARS and _WEB(found) else None


def _joined(base: str, href: str) -> str:
    try:
        found = urljoin(base, href.replace("\\", "/"))
        urlsplit(found)
    except ValueError:
        return ""
    return found

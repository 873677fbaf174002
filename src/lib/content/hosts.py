"""Hosts as a reader is shown them: letters that look like others stay apart in ASCII."""

from __future__ import annotations

import re
from typing import Final

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

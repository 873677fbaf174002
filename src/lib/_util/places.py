"""URLs without their passwords, and checks of paths where a URL is allowed, too."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

_ENCODED: Final = (
    "in a user's name, a password and options write '@', '/', '?' and '#' as %40, %2F…"
)
# Source: https://www.postgresql.org/docs/current/libpq-connect.html, section 34.1.1.1.
_LIBPQ: Final = re.compile(
    r"\b(host|hostaddr|dbname|user|password|passfile|sslpassword|service)\s*=", re.IGNORECASE
)


def checked_path(path: str) -> str:
    """Return the path, or refuse it without repeating it: it may hold a password.

    Raises:
        ValueError: it is a connection string of libpq, or has options as only a URL has.
    """
    if _LIBPQ.search(path):
        raise ValueError("this looks like a libpq connection string: write postgresql://…")
    if "?" in path:
        raise ValueError("a path has no '?': a store with options is named scheme:///PATH?…")
    return path


def without_password(url: str) -> str:
    """Return a URL without its password and its options.

    Raises:
        ValueError: it is none, or it is unclear where its password ends; the message repeats
            nothing of it.
    """
    try:
        parts = urlsplit(url, allow_fragments=False)
        host = parts.hostname or ""
    except ValueError:  # whose message quotes the password with the rest
        raise ValueError(f"this is no URL; {_ENCODED}") from None
    if "@" in parts.path + parts.query:
        raise ValueError(f"there is an '@' behind the host; {_ENCODED}")
    user = f"{parts.username}@" if parts.username else ""
    place = parts.netloc.rpartition("@")[2] if host else ""
    return f"{parts.scheme}://{user}{place}{parts.path}"

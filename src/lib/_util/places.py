"""Paths that a person types where a URL could stand."""

from __future__ import annotations

import re
from typing import Final

# Source: https://www.postgresql.org/docs/current/libpq-connect.html, section 34.1.1.1.
_LIBPQ: Final = re.compile(
    r"\b(host|hostaddr|dbname|user|password|passfile|sslpassword|service)\s*=", re.IGNORECASE
)


def checked_path(given: str) -> str:
    """Refuse what is meant as something else, without repeating it: it may hold a password.

    Raises:
        ValueError: it is a connection string of libpq, or has options as only a URL has.
    """
    if _LIBPQ.search(given):
        raise ValueError("this looks like a libpq connection string: write postgresql://…")
    if "?" in given:
        raise ValueError("a path has no '?': a store with options is named scheme:///PATH?…")
    return given

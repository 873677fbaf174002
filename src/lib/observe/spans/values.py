"""Values of payloads, checked: other releases and other programs write logs too. Pure.

There are three kinds of text. A name is chosen by the developer of an agent, and always shown. A
word or an identifier comes from a model or a server; it is shown if it looks like one, since it is
too short to quote much. All other text is content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast

MAX_NAME: Final = 128

_WORD: Final = re.compile(r"[\w.:/-]{1,64}", re.ASCII)
_IDENTIFIER: Final = re.compile(r"[\w.:/@+=~#|-]{1,128}", re.ASCII)


def word(value: Any) -> str | None:
    """Return the value if it is a single word, else None."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else None


def identifier(value: Any) -> str | None:
    """Return the value if it can be the name of a tool, a call or a model, else None."""
    return value if isinstance(value, str) and _IDENTIFIER.fullmatch(value) else None


def name(value: Any) -> str | None:
    """Return up to 128 characters of a developer's name for something; None if it is no text."""
    return value[:MAX_NAME] if isinstance(value, str) and value else None


def text(value: Any) -> str | None:
    """Return the value if it is a text that is not empty, else None."""
    return value if isinstance(value, str) and value else None


def number(value: Any) -> int | float | None:
    """Return the value if it is a number, else None."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def moment(value: Any) -> datetime | None:
    """Return the time of an ISO text with a time zone, else None."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return at if at is not None and at.tzinfo is not None else None


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def items(value: Any) -> Sequence[Any]:
    """Return the value if it is a list, else an empty one."""
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()

"""Text for a terminal, without control sequences."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_NOT_ASCII: Final = re.compile(r"[^ -~]")


def json_line(value: Any) -> str:
    """Return the value as one line of JSON without characters that control a terminal.

    Letters of any script stand as they are. Controls, marks that change the direction of writing,
    and all else that is not printed, are escaped; outside strings JSON has none.
    """
    line = json.dumps(value, ensure_ascii=False)
    return line if line.isprintable() else _NOT_ASCII.sub(_escaped, line)


def text_line(value: object) -> str:
    """Return the value as text on one line, without characters that control a terminal."""
    return "".join(sign if sign.isprintable() else " " for sign in str(value))


def _escaped(found: re.Match[str]) -> str:
    sign = found[0]
    return sign if sign.isprintable() else json.dumps(sign)[1:-1]

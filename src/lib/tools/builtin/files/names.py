"""The grammar of a path that a model may ask for: refused rather than repaired.

One string means one file on every system, so what Windows would take for another name is refused
everywhere: backslashes, streams, drives, names of devices, and blanks or dots at the end.

Source: "Naming Files, Paths, and Namespaces", Microsoft Learn, 2024-08; CVE-2014-9390 for names
that file systems fold together.
"""

from __future__ import annotations

import re
from typing import Final

from lib.content.hygiene import HIDDEN
from lib.errors import ToolError

MAX_PATH_CHARS: Final = 4096
MAX_NAME_BYTES: Final = 255
_SHOWN_CHARS: Final = 120

_STARTS: Final = {
    "~": "starts with '~', which stands for nothing here: write './~…' for a name",
    "//": "starts with '//': write a path relative to the root",
}
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_DEVICE: Final = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|clock\$|(com|lpt)[1-9\u00b9\u00b2\u00b3])", re.IGNORECASE
)
_SHORT: Final = re.compile(r"[^~.]{1,6}~[0-9]{1,6}(\.[^~.]{0,3})?")
_SHORT_CHARS: Final = 8
_SHOWN_AS_ESCAPE: Final = re.compile(rf"[\\\n\t\ud800-\udfff]|{HIDDEN}")
_WINDOWS_ONLY: Final = re.compile(r'[<>"|?*]')


def shown(path: str) -> str:
    """Return the requested path in quotes, short enough for a message and in visible characters."""
    if len(path) <= _SHOWN_CHARS:
        return repr(path)
    return f"{path[:_SHOWN_CHARS]!r}… ({len(path)} characters)"


def invalid(path: str, message: str) -> ToolError:
    """Return the refusal of a path that the grammar does not have."""
    return ToolError("invalid_arguments", f"{shown(path)} {message}")


def components(path: object) -> list[str]:
    """Return the components of a requested path; an absolute one starts with an empty component.

    "." and empty components stay: a file followed by one of them is no directory.

    Raises:
        ToolError: it is no path in this grammar; the message says what to write.
    """
    if not isinstance(path, str):
        raise ToolError("invalid_arguments", f"path is a string, not {type(path).__name__}")
    fault = _fault_of_path(path)
    if fault:
        raise invalid(path, fault)
    parts = path.split("/")
    if any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        message = f"{shown(path)}: no file has a name of more than {MAX_NAME_BYTES} bytes"
        raise ToolError("not_found", message)
    for part in parts:
        fault = fault_of(part)
        if fault:
            raise invalid(path, fault)
    return parts


def _fault_of_path(path: str) -> str | None:
    if not path:
        return "is empty: write '.' for the root"
    if len(path) > MAX_PATH_CHARS:
        return f"is longer than {MAX_PATH_CHARS} characters"
    if _CONTROL.search(path):
        return "holds a control character or a lone surrogate"
    if "\\" in path:
        return (
            "holds a backslash: separate names by '/'; one listed with escapes cannot be requested"
        )
    return next((message for start, message in _STARTS.items() if path.startswith(start)), None)


def fault_of(name: str) -> str | None:
    """Return why this component means something else on some system, or None."""
    if name in ("", ".", ".."):
        return None
    if ":" in name:
        return "holds ':', which names a drive, a stream or a URL: write a plain path"
    if name.startswith(" "):
        return "holds a name that starts with a blank"
    if name.endswith((" ", ".")):
        return "holds a name that ends with a blank or a dot"
    if is_device(name):
        return "holds a name that Windows keeps for a device"
    return None


def is_device(name: str) -> bool:
    """Return True if Windows takes the name for a device, whatever follows its first dot."""
    return _DEVICE.fullmatch(name.split(".", 1)[0].rstrip(" ")) is not None


def is_short(name: str) -> bool:
    """Return True if the name may be the 8.3 alias of another, such as GIT~1 for .git."""
    return _SHORT.fullmatch(name) is not None and len(name.split(".", 1)[0]) <= _SHORT_CHARS


def windows_fault_of(name: str) -> str | None:
    """Return why Windows has no file of this name, besides `fault_of`; or None."""
    if _WINDOWS_ONLY.search(name):
        return 'holds one of < > " | ? *, which no name has here'
    return fault_of(name)


def escaped(name: str) -> str:
    """Return a file's name on one line, in visible characters; no two names become one.

    Backslashes are doubled. What `clean` takes out of a text, line separators and bytes that are
    not UTF-8 (as surrogate escapes) become escapes of Python's; the joiners and selectors that
    emoji and several scripts need stay.
    """
    if name.isascii() and name.isprintable() and "\\" not in name:
        return name
    return _SHOWN_AS_ESCAPE.sub(_escape, name)


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    if "\udc80" <= char <= "\udcff":
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")

"""The names that one file goes by: spellings that systems take for the same, and marks of copies.

Pure, and linear in the length of a name: each round takes at least one character off.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# HFS+ ignores these in names, and no system shows them. The general category Cf holds the rest.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# What people, editors, package managers and browsers put behind a name, or before its ending.
_COPY_WORDS: Final = (
    "bac?k|bkp|backup|copy|copie|kopie|kopia|copia|c\u00f3pia|dist|local|old|orig|original|prev"
    "|previous|rej|save|saved|sav|swp|swo|swn|tmp|temp|new|part|partial|crdownload|download"
)
_PACKAGE_MARKS: Final = (
    "rpm(?:save|new|orig)|dpkg-(?:old|dist|new|bak|tmp)|ucf-(?:old|dist|new)|pac(?:save|new|orig)"
)
_PACKED: Final = (
    "tar|tgz|tbz2?|txz|zip|7z|rar|gz|bz2|xz|zst|lz4|lzma|br|z|gpg|pgp|asc|age|enc|encrypted|aes"
    "|~[0-9]+~"
)
_DATE: Final = r"[0-9]++(?:[-_.t][0-9]++)*+z?"
_AFTER: Final = re.compile(
    rf"(?:[~#]|\.un~|\.(?:{_PACKAGE_MARKS}|{_PACKED})"
    rf"|(?:[ ._-]++(?:{_COPY_WORDS})[0-9]{{0,4}}|[ ._-]v?{_DATE}| ?\([0-9]{{1,4}}\)))"
    r"(?=\.[^. ]+$|$)"
)
_BEFORE: Final = re.compile(
    r"(?:(?:copy|backup|kopie|kopia|copie|copia|c\u00f3pia)(?: ?\([0-9]{1,4}\))?"
    r" (?:of|von|de|di|da) +"
    r"|(?:old|bak|backup|copy|orig|tmp)[ _-]+|\.?#|~\$|\.~lock\.)"
)
# Histories are an exception: what goes by release_history.txt is no shell's.
_TEXT: Final = re.compile(r"(?<!_history)\.txt$")
_VIM: Final = re.compile(r"\.(.+)\.sw[a-z]$")
_MAX_ROUNDS: Final = 8


def fold(name: str) -> str:
    """Return what a name's spellings have in common, whatever their case and composition."""
    if name.isascii():
        return name.lower()
    seen = "".join(char for char in name if unicodedata.category(char) != "Cf")
    folded = unicodedata.normalize("NFKC", _INVISIBLE.sub("", seen)).casefold()
    return unicodedata.normalize("NFKC", folded)


def forms(folded: str) -> set[str]:
    """Return the names that some system takes for this one, and what it may be a copy of."""
    found = {folded, folded.split(":", 1)[0]}  # before ":" stands the file of a Windows stream
    found |= {form.rstrip(" .") for form in found}
    latest = found
    for _ in range(_MAX_ROUNDS):
        latest = {one for form in latest for one in _originals(form) if one} - found
        if not latest:
            break
        found |= latest
    return found


def _originals(name: str) -> tuple[str, ...]:
    """Return what is left of a name without one mark of each kind."""
    return (
        _AFTER.sub("", name).rstrip(" -"),
        _BEFORE.sub("", name, count=1) if _BEFORE.match(name) else name,
        _TEXT.sub("", name),
        _VIM.sub(r"\1", name),
    )

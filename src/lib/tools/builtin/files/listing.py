"""List a directory in bounded time and memory, without looking through a single link."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Final, Literal

from lib.tools.builtin.files.budget import Budget

MAX_ENTRIES: Final = 1000
"""How many entries one listing gives at most."""
MAX_OFFSET: Final = 1_000_000
ENTRY_BYTES: Final = 64
"""Bytes that each entry takes from the budget: a directory has an end, too."""

EntryType = Literal["file", "directory", "link", "other"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory.

    Attributes:
        name: as the system has it.
        type: what it is; a link is a link, wherever it leads.
        size: bytes of a file, None of everything else.
    """

    name: bytes
    type: EntryType
    size: int | None


def list_entries(
    where: int | str,
    *,
    keep: Callable[[bytes, bool], bool],
    offset: int,
    limit: int,
    budget: Budget,
) -> tuple[list[Entry], bool]:
    """Return entries in the order of their bytes from number `offset` on, and whether more follow.

    Args:
        where: a descriptor of the directory, open for reading; its path where none can be had.
        keep: tells whether a name, of a directory or not, is shown at all.
        offset: how many of the shown names are left out at the start.
        limit: how many entries at most.
        budget: for looking at names.

    Raises:
        BudgetSpent: the directory has too many names to sort, or the work was called off.
        OSError: the system cannot list it.
    """
    with os.scandir(where) as entries:
        named = sorted(_named(entries, budget), key=itemgetter(0))
    kept = _kept(named, keep, budget)
    found = list(islice(kept, offset, offset + limit))
    return [_entry(entry) for entry in found], next(kept, None) is not None


def _named(
    entries: Iterable[os.DirEntry[str]], budget: Budget
) -> Iterator[tuple[bytes, os.DirEntry[str]]]:
    for entry in entries:
        budget.spend(ENTRY_BYTES)
        yield _name(entry), entry


def _kept(
    named: Iterable[tuple[bytes, os.DirEntry[str]]],
    keep: Callable[[bytes, bool], bool],
    budget: Budget,
) -> Iterator[os.DirEntry[str]]:
    """Yield what is shown; names are judged only up to the end of the page."""
    for name, entry in named:
        budget.spend()
        if keep(name, entry.is_dir(follow_symlinks=False)):
            yield entry


def _name(entry: os.DirEntry[str]) -> bytes:
    return os.fsencode(entry.name)


def _entry(entry: os.DirEntry[str]) -> Entry:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return Entry(_name(entry), "other", None)  # gone, or not readable
    if stat.S_ISREG(status.st_mode):
        return Entry(_name(entry), "file", status.st_size)
    return Entry(_name(entry), _type(status.st_mode), None)


def _type(mode: int) -> EntryType:
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"

"""Detects writes of other connections to an SQLite file from memory: the header of its WAL index.

All connections to a file with a write-ahead log map the same file `-shm`, the index of the log. It
begins with two copies of a header that every commit changes: a count of the changes, how much of
the log counts, its salts and checksums. When a transaction begins, SQLite compares that header with
the one it knows, to learn whether what it remembers of the file is out of date. So does this
module: as long as the header is as it was before a transaction began, that transaction has seen
everything.

Two rules keep this safe:

- Nothing is concluded unless SQLite has mapped this very file in this process. Without that, as in
  other journal modes, on systems without `/proc`, and for connections that do not share what they
  know of the log, there is no `WalIndex`.
- A file that was opened stays open until it has lost its name, which it does when the last
  connection of all processes is closed. Closing any descriptor of a file gives up all POSIX locks
  that this process has on it, and SQLite's are among them.

Source: https://www.sqlite.org/walformat.html, "The WAL-Index File Format", and
https://www.sqlite.org/howtocorrupt.html, section 2.2.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final
from weakref import finalize

from lib._util.sqlite import MEMORY

_HEADERS: Final = 2 * 48
_SHARED: Final = "rw-s"
_MOST_HELD: Final = 100  # where files do not tell that they have lost their names


class WalIndex:
    """The index of one write-ahead log, mapped to be read."""

    def __init__(self, path: str) -> None:
        """Map a file of at least one page, which is closed once this object is freed.

        Raises:
            OSError: it cannot be opened; or not mapped, and then it stays open for ever.
        """
        # To map a file, Python duplicates the descriptor, and closes that one if there is no room:
        # see above. So whether there is room is found out without a file.
        mmap.mmap(-1, mmap.PAGESIZE).close()
        self._descriptor = os.open(path, os.O_RDONLY)
        self._pages = mmap.mmap(self._descriptor, mmap.PAGESIZE, prot=mmap.PROT_READ)
        # Not at the end of the process, when connections may still be open.
        finalize(self, _close, self._descriptor, self._pages).atexit = False

    def header(self) -> bytes:
        """Return bytes that change once a connection has written to the file, or is about to."""
        return self._pages[:_HEADERS]

    def is_file(self, status: os.stat_result) -> bool:
        """Return True if it is that file."""
        return os.path.samestat(os.fstat(self._descriptor), status)

    def has_name(self) -> bool:
        """Return True if it can still be opened."""
        return os.fstat(self._descriptor).st_nlink > 0


_held: Final = list[WalIndex]()
_holding: Final = Lock()


def file_header(path: str) -> Callable[[], bytes] | None:
    """Return what tells the header of a database's index; None if nothing surely does.

    Args:
        path: of a database that has a connection in this process, which has read it and does not
            take it as unchanging; or `:memory:`, which no other connection can write to.
    """
    if path == MEMORY:
        return bytes
    with _holding:
        _let_go()
        try:
            index = _opened(f"{os.path.realpath(path)}-shm")
        except OSError:
            return None
        return None if index is None else index.header


def let_go() -> None:
    """Close those that are no longer used; call it once a connection is closed."""
    with _holding:
        _let_go()


def _let_go() -> None:
    _held[:] = [index for index in _held if index.has_name()]


def _opened(path: str) -> WalIndex | None:
    status = Path(path).stat()
    if not _is_shared(status.st_ino):
        return None
    for index in _held:
        if index.is_file(status):
            return index
    if len(_held) == _MOST_HELD:
        return None
    _held.append(WalIndex(path))
    return _held[-1]


def _is_shared(inode: int) -> bool:
    """Return True if a file is mapped to be read and written here, as SQLite maps the index."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    mappings = (line.split(maxsplit=5)[1:5] for line in maps.splitlines())
    return any(mode == _SHARED and int(number) == inode for mode, _, _, number in mappings)


def _close(descriptor: int, pages: mmap.mmap) -> None:
    pages.close()
    os.close(descriptor)

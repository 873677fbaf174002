"""The files of an open store, and whether their names still lead to them.

SQLite goes on writing to a file that was deleted, moved or replaced, and whatever it confirms
then is lost with the last process that has the file open. So each name is compared, by device and
inode, with what it led to when the store was opened. The write-ahead log and its index (`-wal`,
`-shm`) count as the file itself: commits live in the first, the locks of all processes in the
second, and neither goes away by itself while a connection is open.

Windows keeps an open file of SQLite's from being deleted or renamed, so there is nothing to notice
there. Where a file system has no inodes, Python gives 0 for all: only a missing file is noticed.

Source: https://www.sqlite.org/howtocorrupt.html, 2.4 "Unlinking or renaming a database file while
in use"
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
from dataclasses import dataclass
from typing import Final

from lib.errors import StoreCorrupt, StoreError

_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ELOOP)
_BESIDE: Final = ("-wal", "-shm")

Identity = tuple[int, int]
"""Device and inode."""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """What the names of a store led to when it was opened.

    Attributes:
        store: for messages.
        names: the path of each file, the database first, with what it led to.
    """

    store: str
    names: tuple[tuple[str, Identity], ...] = ()

    @classmethod
    def of(cls, connection: sqlite3.Connection, path: str, store: str) -> OpenFile:
        """Remember the files of a connection that has read from the database at a path."""
        [real] = [row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main"]
        paths = [os.path.abspath(path), *(real + ending for ending in _BESIDE)]  # noqa: PTH100 - a link stays one
        found = [(each, _identity(each, store)) for each in paths]
        return cls(store, tuple((each, known) for each, known in found if known is not None))

    def check(self) -> None:
        """Refuse files that were deleted, moved or replaced since they were opened.

        Raises:
            StoreCorrupt: a name leads elsewhere, or nowhere; it does not pass.
            StoreError: it cannot be told now.
        """
        for path, known in self.names:
            if _identity(path, self.store) != known:
                name = os.path.basename(path)  # noqa: PTH119 - of a path that is text
                raise StoreCorrupt(
                    f"{self.store} has lost its file: {name!r} was deleted, moved or replaced "
                    "while it was open, and what is written now would be lost: put the file back "
                    "or restore it, then open the store anew"
                )

    def is_there(self) -> bool:
        """Tell whether all names still lead to the files."""
        try:
            self.check()
        except StoreError:
            return False
        return True


def leave_log(connection: sqlite3.Connection) -> None:
    """Close this connection without touching the log, which may be another file's by now.

    Workaround: the last connection to close deletes the write-ahead log by its name, so that of a
    replaced file would delete the log of the new one. Before Python 3.12 that cannot be prevented.
    """
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)  # noqa: FBT003 - its signature


def _identity(path: str, store: str) -> Identity | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - once a transaction, and a Path costs more than that
    except OSError as error:
        if error.errno in _GONE:
            return None
        message = f"{store} cannot look at its file: {error.strerror}"
        raise StoreError(message, retryable=True) from error
    if status.st_size == 0 and not path.endswith("-wal"):  # emptied; only a log may be empty
        return None
    return status.st_dev, status.st_ino

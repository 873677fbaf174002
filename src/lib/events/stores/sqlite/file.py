"""The files of an open store: checks that their names still lead to them, and SQLite's errors.

SQLite goes on writing to a file that was deleted, moved or replaced, and each commit after that
is lost with the last process that has the file open. So the device and the inode of each name are
compared with those at the time when the store was opened. The write-ahead log and its index
(`-wal`, `-shm`) count as the file itself: the first holds commits, the second the locks of all
processes, and neither goes away by itself while a connection is open.

Windows refuses to delete or rename an open file of SQLite, so nothing can be noticed there. On a
file system without inodes Python gives 0 for all: only a missing file is noticed.

Source: https://www.sqlite.org/howtocorrupt.html, 2.4 "Unlinking or renaming a database file while
in use"
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from lib._util.sqlite import failure, may_pass
from lib.errors import StoreCorrupt, StoreError, StoreReadOnly

_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ELOOP)
_BESIDE: Final = ("-wal", "-shm")

_ERRORS: Final = {
    "unwritable": (
        StoreReadOnly,
        "cannot be opened or written (is its folder there, and writable?)",
    ),
    "damaged": (StoreCorrupt, "is damaged or not an event store"),
    "interrupted": (
        StoreError,
        "could not reach its disk; what was being written may or may not have been stored",
    ),
    "other": (StoreError, "failed, and has changed nothing"),
}


Identity = tuple[int, int]
"""Device and inode."""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """The files of a store when it was opened.

    Attributes:
        store: for messages.
        names: the path of each file, the database first, with its identity.
    """

    store: str
    names: tuple[tuple[str, Identity], ...] = ()

    @classmethod
    def of(cls, connection: sqlite3.Connection, path: str, store: str) -> OpenFile:
        """Record the files of a connection that has read from the database at a path."""
        [real] = [row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main"]
        paths = [os.path.abspath(path), *(real + ending for ending in _BESIDE)]  # noqa: PTH100 - a link stays one
        found = [(each, _identity(each, store)) for each in paths]
        return cls(
            store, tuple((each, identity) for each, identity in found if identity is not None)
        )

    def check(self) -> None:
        """Refuse files that were deleted, moved or replaced since they were opened.

        Raises:
            StoreCorrupt: a name leads elsewhere, or nowhere; permanent.
            StoreError: a file cannot be examined now.
        """
        for path, identity in self.names:
            if _identity(path, self.store) != identity:
                name = os.path.basename(path)  # noqa: PTH119 - of a path that is text
                raise StoreCorrupt(
                    f"{self.store} has lost its file: {name!r} was deleted, moved or replaced "
                    "while it was open, and what is written now would be lost: put the file back "
                    "or restore it, then open the store anew"
                )

    def is_there(self) -> bool:
        """Return True if all names still lead to the files."""
        try:
            self.check()
        except StoreError:
            return False
        return True


def leave_log(connection: sqlite3.Connection) -> None:
    """Leave the log on the disk when this connection closes: it may be another file's by now.

    Workaround: the last connection to close deletes the write-ahead log by its name, and after a
    replacement that is the log of the new file. Before Python 3.12 that cannot be prevented.
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


@contextmanager
def typed_errors(store: str) -> Generator[None]:
    """Raise the errors of SQLite as `StoreError`s of the right type."""
    try:
        yield
    except sqlite3.Error as error:
        kind, message = _ERRORS[failure(error)]
        raise kind(f"{store} {message}: {error}", retryable=may_pass(error)) from error

"""Files below a directory where none can be held open: resolve, open, and ask what was opened.

Windows has no `dir_fd`. A path is resolved first and opened then; what counts is the place that the
system names for the open handle, so that a link put there in between is noticed before a byte is
read. Directories are listed by their path: of a link put there in between, names can be seen.
Unlike the walk, this cannot tell a link that leaves the root and comes back from any other.

The code runs, and is tested, on POSIX systems; it has not run on Windows yet.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lib.tools.builtin.files.found import Found, Judge, place_of
from lib.tools.builtin.files.names import is_short, windows_fault_of
from lib.tools.builtin.files.walk import Stopped, leaves

_READ: Final[int] = (
    os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0)
) | getattr(os, "O_NONBLOCK", 0)


def without_prefix(path: str) -> str:
    r"""Return a Windows path without the prefix "\\?\", which the system's own answers have."""
    if path.startswith("\\\\?\\UNC\\"):
        return "\\\\" + path[8:]
    return path.removeprefix("\\\\?\\")


class ResolvedTree:
    """A directory below which paths are resolved before, and checked after opening."""

    def __init__(self, root: Path) -> None:
        """Resolve the root.

        Raises:
            OSError: it is missing or no directory.
        """
        self._root = without_prefix(os.path.realpath(root, strict=True))
        if not Path(self._root).is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(root))

    @contextmanager
    def find(self, parts: Sequence[bytes], judge: Judge) -> Generator[Found]:
        """Hold what the path leads to for the block."""
        requested = self._relative(parts)
        if leaves(requested):
            raise Stopped("outside")
        _judge_each(judge, [part for part in requested if part not in (b"", b".", b"..")])
        names = [os.fsdecode(part) for part in requested]
        self._check(names)
        path = os.path.join(self._root, *names)  # noqa: PTH118 - text in, text out
        # First without asking for existence: a refusal does not show what exists outside.
        _judge_each(judge, self._below(os.path.realpath(path)))
        resolved = os.path.realpath(path, strict=True)
        below = self._below(resolved)
        _judge_each(judge, below)
        status = os.lstat(resolved)
        if requested[-1:] == [b""] and not stat.S_ISDIR(status.st_mode):
            raise Stopped("not a directory")
        mode = status.st_mode
        yield Found(mode, status.st_size, below, lambda: self._reading(resolved, mode, judge))

    @contextmanager
    def _reading(self, path: str, mode: int, judge: Judge) -> Generator[int | str]:
        if stat.S_ISDIR(mode):
            yield path
            return
        handle = os.open(path, _READ)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise Stopped("special")
            place = place_of(handle)
            if place is None:
                raise Stopped("unreadable")
            _judge_each(judge, self._below(os.fsdecode(place)))
            yield handle
        finally:
            os.close(handle)

    def _relative(self, parts: Sequence[bytes]) -> list[bytes]:
        if parts[0] or len(parts) == 1:
            return list(parts)
        ending = [b""] if not parts[-1] else []  # of "x/", which says that x is a directory
        return [*self._below(os.fsdecode(b"/".join(parts))), *ending]

    def _below(self, path: str) -> list[bytes]:
        """Return the components of an absolute path below the root.

        Raises:
            Stopped: it is not below.
        """
        root, names = (
            [part for part in os.path.normcase(one).split(os.sep) if part]  # noqa: PTH206 - no Path yet
            for one in (self._root, without_prefix(path))
        )
        if names[: len(root)] != root:
            raise Stopped("outside")
        return [os.fsencode(part) for part in names[len(root) :]]

    def _check(self, names: Sequence[str]) -> None:
        """Refuse names of which Windows makes others.

        Raises:
            Stopped: one of them is such a name.
        """
        above = self._root
        for name in names:
            if os.name == "nt" and windows_fault_of(name):  # pragma: no cover - Windows only
                raise Stopped("alias")
            if is_short(name) and name not in os.listdir(above):  # noqa: PTH208 - names
                raise Stopped("alias")
            above = os.path.join(above, name)  # noqa: PTH118 - text in, text out


def _judge_each(judge: Judge, names: Sequence[bytes]) -> None:
    for count in range(1, len(names) + 1):
        judge(names[:count], count < len(names))

"""One step of a walk: open a name below an open directory without following anything.

Linux opens with `O_PATH`, which has no effect on what is opened: no device answers, no FIFO blocks;
what is then read is that very inode, reopened through /proc. Elsewhere the name is looked at first,
and opened with `O_NOFOLLOW | O_NONBLOCK`; what counts is what the descriptor says.

Source: openat(2), open(2), proc_pid_fd(5), Linux man-pages 6.9.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Final, Protocol

# What a platform lacks is 0 there and never used by the steps of that platform.
_O_PATH: Final[int] = getattr(os, "O_PATH", 0)
_O_NOFOLLOW: Final[int] = getattr(os, "O_NOFOLLOW", 0)
_O_DIRECTORY: Final[int] = getattr(os, "O_DIRECTORY", 0)
_O_NONBLOCK: Final[int] = getattr(os, "O_NONBLOCK", 0)
_O_NOCTTY: Final[int] = getattr(os, "O_NOCTTY", 0)
_O_READ: Final[int] = os.O_RDONLY | _O_NONBLOCK | _O_NOCTTY


@dataclass(frozen=True, slots=True)
class Node:
    """The file, directory or link under a name.

    Attributes:
        handle: a descriptor of it, owned by the caller; None for a link and for what is not opened.
        mode: file type and permissions, as in `st_mode`.
        size: bytes of a file.
        target: where a link leads, as written.
    """

    handle: int | None
    mode: int
    size: int = 0
    target: bytes = b""

    @property
    def is_link(self) -> bool:
        """True if it is a symbolic link."""
        return stat.S_ISLNK(self.mode)

    @property
    def is_directory(self) -> bool:
        """True if it is a directory."""
        return stat.S_ISDIR(self.mode)


class Steps(Protocol):
    """Opens names below directories, on one platform."""

    def open_root(self, path: str) -> int:
        """Return a descriptor of a directory; links in its path are followed."""
        ...

    def open_below(self, directory: int, name: bytes) -> Node:
        """Return what stands under one name in the directory; a link is read, not followed."""
        ...

    def reopen(self, handle: int) -> int:
        """Return a descriptor for reading what `handle`, which stays open, stands for."""
        ...


class PathSteps:
    """Steps of Linux, through descriptors that only name a place."""

    def open_root(self, path: str) -> int:
        """Return a descriptor of a directory; links in its path are followed."""
        return os.open(path, _O_PATH | _O_DIRECTORY)

    def open_below(self, directory: int, name: bytes) -> Node:
        """Return what stands under one name in the directory; a link is read, not followed."""
        handle = os.open(name, _O_PATH | _O_NOFOLLOW, dir_fd=directory)
        try:
            status = os.fstat(handle)
            if stat.S_ISLNK(status.st_mode):
                # The link that was opened, wherever its name leads by now.
                node = Node(None, status.st_mode, target=os.readlink(b"", dir_fd=handle))
            else:
                return Node(handle, status.st_mode, status.st_size)
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        return node

    def reopen(self, handle: int) -> int:
        """Return a descriptor for reading what `handle`, which stays open, stands for."""
        return os.open(f"/proc/self/fd/{handle}", _O_READ)


class PortableSteps:
    """Steps of macOS and other POSIX systems, without `O_PATH`."""

    def open_root(self, path: str) -> int:
        """Return a descriptor of a directory; links in its path are followed."""
        return os.open(path, os.O_RDONLY | _O_DIRECTORY)

    def open_below(self, directory: int, name: bytes) -> Node:
        """Return what stands under one name in the directory; a link is read, not followed.

        Raises:
            OSError: also when the name changes between the look at it and the opening.
        """
        seen = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISLNK(seen.st_mode):
            return Node(None, seen.st_mode, target=os.readlink(name, dir_fd=directory))
        if not (stat.S_ISDIR(seen.st_mode) or stat.S_ISREG(seen.st_mode)):
            return Node(None, seen.st_mode)
        handle = os.open(name, _O_READ | _O_NOFOLLOW, dir_fd=directory)
        try:
            status = os.fstat(handle)
        except BaseException:
            os.close(handle)
            raise
        return Node(handle, status.st_mode, status.st_size)

    def reopen(self, handle: int) -> int:
        """Return a descriptor for reading what `handle`, which stays open, stands for."""
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            return os.open(b".", os.O_RDONLY | _O_DIRECTORY, dir_fd=handle)  # a position of its own
        return os.dup(handle)


def steps_of_this_platform() -> Steps | None:
    """Return how to walk here, or None where directories cannot be held open (Windows)."""
    if os.open not in os.supports_dir_fd:
        return None
    return PathSteps() if _can_reopen() else PortableSteps()


def _can_reopen() -> bool:
    """Return True if this is a Linux whose /proc can be seen."""
    if not _O_PATH:
        return False
    try:
        os.close(os.open("/proc/self/fd", _O_PATH | _O_DIRECTORY))
    except OSError:
        return False
    return True

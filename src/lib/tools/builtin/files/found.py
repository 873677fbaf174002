"""Files and directories found below a root, and the path of an open one from its descriptor.

Source: proc_pid_fd(5), Linux man-pages 6.9; fcntl(2) of macOS, F_GETPATH;
GetFinalPathNameByHandleW, Microsoft Learn, 2024-02.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

Judge = Callable[[Sequence[bytes], bool], None]
"""Raises when a path of these components may not be opened.

The second argument tells whether it can only lead to a directory, since the path goes on below it.
"""


@dataclass(frozen=True, slots=True)
class Found:
    """The file or directory that a path leads to.

    Attributes:
        mode: file type and permissions, as in `st_mode`.
        size: bytes of a file.
        names: the components of its path below the root, links resolved.
        reading: opens it for reading, for as long as the block runs; what a directory can be
            listed by is its descriptor, or its path where it can have none.
    """

    mode: int
    size: int
    names: Sequence[bytes]
    reading: Callable[[], AbstractContextManager[int | str]]

    @property
    def is_directory(self) -> bool:
        """True if it is a directory."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        """True if it is a regular file."""
        return stat.S_ISREG(self.mode)


class Tree(Protocol):
    """A directory, and what is found below it."""

    def find(self, parts: Sequence[bytes], judge: Judge) -> AbstractContextManager[Found]:
        """Hold what the path leads to for the block.

        Args:
            parts: components; an absolute path starts with an empty one.
            judge: called before anything is opened, for each name on the way.

        Raises:
            Stopped: a rule of the walk forbids it.
            OSError: the system does.
        """
        ...


def place_of(handle: int) -> bytes | None:
    """Return the absolute path of what is open, without links; or None."""
    if sys.platform == "darwin":  # pragma: no cover - the other platforms' code runs elsewhere
        import fcntl  # noqa: PLC0415 - not on Windows

        return fcntl.fcntl(handle, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")
    if sys.platform == "win32":  # pragma: no cover - see above
        import ctypes  # noqa: PLC0415 - only here
        import msvcrt  # noqa: PLC0415 - only there

        buffer = ctypes.create_unicode_buffer(32_768)
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.GetFinalPathNameByHandleW.argtypes = [
            ctypes.c_void_p,
            ctypes.c_wchar_p,
            ctypes.c_uint32,
            ctypes.c_uint32,
        ]
        length = kernel.GetFinalPathNameByHandleW(
            msvcrt.get_osfhandle(handle), buffer, len(buffer), 0
        )
        return os.fsencode(buffer.value) if 0 < length < len(buffer) else None
    try:
        return os.readlink(b"/proc/self/fd/%d" % handle)  # noqa: PTH115 - bytes
    except OSError:
        return None

"""Finds the path of an open file or directory from its descriptor.

Source: proc_pid_fd(5), Linux man-pages 6.9; fcntl(2) of macOS, F_GETPATH;
GetFinalPathNameByHandleW, Microsoft Learn, 2024-02.
"""

from __future__ import annotations

import os
import sys


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
        known = kernel.GetFinalPathNameByHandleW(
            msvcrt.get_osfhandle(handle), buffer, len(buffer), 0
        )
        return os.fsencode(buffer.value) if 0 < known < len(buffer) else None
    try:
        return os.readlink(b"/proc/self/fd/%d" % handle)  # noqa: PTH115 - bytes
    except OSError:
        return None

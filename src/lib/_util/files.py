"""Write a file so that a reader finds the old content or the new, never a part."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file's content durably; its directory is made when it is missing.

    A crash leaves the old file, at worst beside a `.tmp` file that is never read. Blocks: call it
    in a thread.

    Raises:
        OSError: the directory or the disk does not take it; the old content stands.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not from tempfile, whose files other users of the folder could not read.
    draft = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    """Make a rename durable, where the system can open a directory."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

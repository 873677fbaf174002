"""A directory that is held open, and the walks below it."""

from __future__ import annotations

import os
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lib.tools.builtin.files.found import Found, Judge
from lib.tools.builtin.files.place import place_of
from lib.tools.builtin.files.steps import Steps
from lib.tools.builtin.files.walk import Stopped, Walk, parts_below, walking


class WalkedTree:
    """A directory below which paths are walked name by name."""

    def __init__(self, root: Path, steps: Steps) -> None:
        """Open the root; it is closed when the tree is forgotten.

        Raises:
            OSError: it is missing, no directory, or not open to this process.
        """
        self._steps = steps
        self._root = steps.open_root(os.fspath(root))
        # No method closes it: another thread's walk would go on below whatever got its number.
        weakref.finalize(self, os.close, self._root)
        self._asked = [os.fsencode(root)] if root.is_absolute() else []

    @contextmanager
    def find(self, parts: Sequence[bytes], judge: Judge) -> Generator[Found]:
        """Hold what the path leads to for the block."""
        below = parts
        if parts[0] == b"" and len(parts) > 1:
            relative = parts_below(self._names(), b"/".join(parts))
            if relative is None:
                raise Stopped("outside")
            below = relative
        walk = Walk(self._steps, self._root, root_names=self._names, judge=judge)
        with walking(walk, below) as node:
            yield Found(node.mode, node.size, walk.names, lambda: self._reading(node.handle))

    def _names(self) -> list[bytes]:
        """Return the root's absolute paths: where it is now, and how it was given."""
        now = place_of(self._root)
        return self._asked if now is None else [now, *self._asked]

    @contextmanager
    def _reading(self, handle: int | None) -> Generator[int | str]:
        if handle is None:  # of what is neither file nor directory
            raise Stopped("special")
        opened = self._steps.reopen(handle)
        try:
            yield opened
        finally:
            os.close(opened)

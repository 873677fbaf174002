"""Files and directories found below a root, on any platform."""

from __future__ import annotations

import stat
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

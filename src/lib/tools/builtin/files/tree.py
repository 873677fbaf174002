"""The tree below a directory, as this platform can hold it."""

from __future__ import annotations

from pathlib import Path

from lib.tools.builtin.files.found import Tree
from lib.tools.builtin.files.resolved import ResolvedTree
from lib.tools.builtin.files.steps import steps_of_this_platform
from lib.tools.builtin.files.walked import WalkedTree


def tree_of(root: Path) -> Tree:
    """Return the tree below a directory, walked where directories can be held open.

    Raises:
        OSError: it is missing, no directory, or not open to this process.
    """
    steps = steps_of_this_platform()
    return ResolvedTree(root) if steps is None else WalkedTree(root, steps)

"""Shared by tests of file access: other platforms, a refusal, descriptors that are left open."""

import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lib.errors import ToolError
from lib.tools.builtin import FileAccess
from lib.tools.builtin.files.found import Tree
from lib.tools.builtin.files.resolved import ResolvedTree
from lib.tools.builtin.files.steps import PathSteps, PortableSteps
from lib.tools.builtin.files.walk import WalkedTree


class OnLinux(FileAccess):
    """Walks by paths of open directories."""

    def _open_tree(self, root: Path) -> Tree:
        return WalkedTree(root, PathSteps())


class OnMacOS(FileAccess):
    """Walks by steps that every POSIX system has."""

    def _open_tree(self, root: Path) -> Tree:
        return WalkedTree(root, PortableSteps())


class OnWindows(FileAccess):
    """Resolves a path, then checks what was opened."""

    def _open_tree(self, root: Path) -> Tree:
        return ResolvedTree(root)


def open_descriptors() -> set[str]:
    # The listing's own descriptor is one of them, and gone when they are looked at.
    return {
        f"{link.name} {link.readlink()}"
        for link in sorted(Path("/proc/self/fd").iterdir())
        if link.is_symlink()
    }


@contextmanager
def no_leak() -> Generator[None]:
    gc.collect()
    before = open_descriptors()
    yield
    assert not open_descriptors() - before


def refusal(call: Callable[[], object]) -> ToolError:
    with pytest.raises(ToolError) as caught:
        call()
    return caught.value

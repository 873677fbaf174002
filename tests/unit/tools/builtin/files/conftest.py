"""Each way in which a platform can find files, on this one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lib.tools.builtin.files.found import Tree
from lib.tools.builtin.files.resolved import ResolvedTree
from lib.tools.builtin.files.steps import PathSteps, PortableSteps
from lib.tools.builtin.files.walked import WalkedTree

TREES: dict[str, Callable[[Path], Tree]] = {
    "linux": lambda root: WalkedTree(root, PathSteps()),
    "portable": lambda root: WalkedTree(root, PortableSteps()),
    "resolved": ResolvedTree,
}


@pytest.fixture(params=["linux", "portable"])
def walked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Walk as on Linux, and as on macOS."""
    monkeypatch.setattr("lib.tools.builtin.files.access.tree_of", TREES[request.param])
    return request.param


@pytest.fixture(params=list(TREES))
def found(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Find files as on Linux, as on macOS, and as on Windows."""
    monkeypatch.setattr("lib.tools.builtin.files.access.tree_of", TREES[request.param])
    return request.param

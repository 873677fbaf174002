"""A root, and each way in which a platform can find files, on this one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lib.tools.builtin.files.found import Tree
from lib.tools.builtin.files.resolved import ResolvedTree
from lib.tools.builtin.files.steps import PathSteps, PortableSteps
from lib.tools.builtin.files.walk import WalkedTree

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


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a root with a file of three lines, and a secret beside it."""
    made = tmp_path / "root"
    (made / "a" / "b").mkdir(parents=True)
    (made / "a" / "t.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("TOP", encoding="utf-8")
    return made

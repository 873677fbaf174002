"""A root, and each way in which a platform can find files, on this one."""

from pathlib import Path

import pytest

from .access_kit import OnLinux, OnMacOS, OnWindows


@pytest.fixture(params=[OnLinux, OnMacOS])
def walked(request: pytest.FixtureRequest) -> type[OnLinux | OnMacOS]:
    """Walk as on Linux, and as on macOS."""
    return request.param


@pytest.fixture(params=[OnLinux, OnMacOS, OnWindows])
def found(request: pytest.FixtureRequest) -> type[OnLinux | OnMacOS | OnWindows]:
    """Find files as on Linux, as on macOS, and as on Windows."""
    return request.param


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a root with a file of three lines, and a secret beside it."""
    made = tmp_path / "root"
    (made / "a" / "b").mkdir(parents=True)
    (made / "a" / "t.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("TOP", encoding="utf-8")
    return made

"""What tests of files share that may be read and not written."""

import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest


@pytest.fixture
def unprivileged() -> Callable[[], AbstractContextManager[None]]:
    """Return how to be nobody for a while: to root, nothing is read-only."""

    @contextmanager
    def nobody() -> Generator[None]:
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)

    return nobody


@pytest.fixture
def open_place() -> Iterator[Path]:
    """Return a directory that everybody can reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)
        Path(name).chmod(0o777)

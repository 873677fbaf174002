"""What tests of file access share: a refusal, and descriptors that are left open."""

import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lib.errors import ToolError


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

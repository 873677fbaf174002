"""Every test fails if a coroutine of the library blocks the event loop."""

import os
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockingError

import lib

SOURCE = """
def look():
    return os.stat(".")

async def look_on_the_loop():
    return look()
"""


async def test_only_what_a_coroutine_of_the_library_calls_is_blocking() -> None:
    code: dict[str, Any] = {"os": os}
    exec(compile(SOURCE, Path(lib.__file__).with_name("example.py"), "exec"), code)

    with pytest.raises(BlockingError):
        await code["look_on_the_loop"]()
    assert code["look"]()

"""Conditions of every test: blocking calls on the event loop are errors."""

from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster
from hypothesis import settings

from lib_server.server import Server

assert Server  # imported before the tests: importing blocks

if settings.get_current_profile_name() == "default":  # nor has tests/conftest.py one
    settings.register_profile("server", deadline=None, derandomize=True)
    settings.load_profile("server")


@pytest.fixture(autouse=True)
def no_blocking_calls() -> Iterator[None]:
    blockbuster = BlockBuster(["lib", "lib_server"])
    for function in blockbuster.functions.values():
        function.can_block_in("slipcover/importer.py", {"exec_module", "matches"})
    blockbuster.activate()
    try:
        yield
    finally:
        blockbuster.deactivate()

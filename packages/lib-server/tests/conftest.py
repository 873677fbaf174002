"""Conditions of every test: blocking calls on the event loop are errors."""

from collections.abc import Generator, Iterator

import pytest
from blockbuster import BlockBuster
from hypothesis import settings

from lib_server.server import Server
from tracing import untraced

assert Server  # imported before the tests: importing blocks

if settings.get_current_profile_name() == "default":  # nor has tests/conftest.py one
    settings.register_profile("server", deadline=None, derandomize=True)
    settings.load_profile("server")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Trace no line: what is measured is the library, which has tests of its own."""
    with untraced():
        return (yield)


@pytest.fixture(autouse=True)
def no_blocking_calls() -> Iterator[None]:
    blockbuster = BlockBuster(["lib", "lib_server"])
    for name in ("threading.Lock.acquire", "threading.Lock.acquire_lock"):
        blockbuster.functions[name].can_block_in("coverage/collector.py", "lock_data")
    blockbuster.activate()
    try:
        yield
    finally:
        blockbuster.deactivate()

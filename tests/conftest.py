"""Conditions of every test: blocking calls on the event loop are errors."""

import faulthandler
import gc
import inspect
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from blockbuster import BlockBuster
from hypothesis import HealthCheck, settings
from pydantic import create_model

import lib
from bytecode import compile_together
from lib.errors import MissingDriver

TESTS = str(Path(__file__).parent) + os.sep
LIBRARY = str(Path(lib.__file__).parent) + os.sep
COROUTINE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

# Each HTTP client reads the certificates that it trusts: one, and not all those of the machine.
if not os.environ.get("LIB_TEST_PHOENIX_URL"):
    os.environ.setdefault("SSL_CERT_FILE", TESTS + "data/builtin/tls/authority.pem")

# Threads of BLAS wait for each other by spinning: of workers that share processors, a hundred times
# longer than they work. The deep suite has them, for sums are divided among them.
if not os.environ.get("LIB_TEST_LONG"):
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

create_model("First")  # for the first one of a process pydantic looks for plugins, in files

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", parent=settings.get_profile("ci"), max_examples=10)
settings.register_profile("deep", parent=settings.get_profile("ci"), max_examples=2_000)
settings.load_profile("deep" if os.environ.get("LIB_TEST_LONG") else "ci")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the directories that take longest, so that no worker is idle at the end."""
    names = ("chaos", "crash", "docs", "contract", "properties", "typing", "browser")
    longest = tuple(TESTS + each for each in names)
    items.sort(key=lambda item: not str(item.path).startswith(longest))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without looking for garbage: there is none."""
    gc.disable()
    try:
        compile_together(session.config)
        return (yield)
    finally:
        gc.collect()
        gc.freeze()  # no collection of garbage walks over thousands of tests again and again
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None]:
    """End the worker of a test that its time-out does not end, and show where it hangs.

    What the signal raises in a callback of an event loop, the loop writes down and goes on.
    """
    stderr = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(settings.timeout * 1.1, exit=True, file=stderr)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> Generator[None]:
    faulthandler.cancel_dump_traceback_later()
    return (yield)


@pytest.fixture(autouse=True)
def no_blocking_calls() -> Iterator[None]:
    blockbuster = guard()
    blockbuster.activate()
    try:
        yield
    finally:
        blockbuster.deactivate()


@cache
def guard() -> BlockBuster:
    """Return what makes a call that blocks an event loop an error; it is the same for all tests."""
    blockbuster = BlockBuster("lib")
    for function in blockbuster.functions.values():
        function.can_block_predicate = either(function.can_block_predicate, called_by_a_test)
        function.can_block_in("slipcover/importer.py", {"exec_module", "matches"})
    for name in ("sqlite3.Connection.execute", "sqlite3.Cursor.fetchone"):  # some microseconds
        blockbuster.functions[name].can_block_in("vector/stores/sqlite/foreign.py", "version")
    return blockbuster


def either(first: Callable[..., bool], second: Callable[[], bool]) -> Callable[..., bool]:
    return lambda *args, **kwargs: first(*args, **kwargs) or second()


def called_by_a_test() -> bool:
    """Return True if a test has called the library's synchronous code: its loop is its own."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(TESTS) and path != __file__:
            return True
        if path.startswith(LIBRARY) and frame.f_code.co_flags & COROUTINE:
            return False
        frame = frame.f_back
    return False


@pytest.fixture(scope="session")
def unmeasured() -> dict[str, str]:
    """The environment for a subprocess whose coverage is not measured."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SLIPCOVER")}


if os.environ.get("LIB_TEST_PART"):  # an environment without most drivers: see scripts/test-pythons

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup() -> Generator[None]:
        with skipping_missing():
            yield

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call() -> Generator[None]:
        with skipping_missing():
            yield

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        text = str(report.longrepr) if report.failed else ""
        if "ModuleNotFoundError" in text or "MissingDriver" in text:
            report.outcome = "skipped"
            report.longrepr = (str(report.fspath), 0, "Skipped: a driver is not installed")
        return report


@contextmanager
def skipping_missing() -> Generator[None]:
    """Skip a test that needs a driver which is not installed."""
    try:
        yield
    except (ModuleNotFoundError, MissingDriver) as error:
        pytest.skip(str(error))

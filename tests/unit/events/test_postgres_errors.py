"""Errors of PostgreSQL: tried again, given up, or raised as our errors of the same meaning."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from lib.errors import StoreError, StoreReadOnly
from lib.events.stores.postgres import writer as module
from lib.events.stores.postgres.schema import typed_errors
from lib.testing.event_store.kit import begin
from servers import postgres

from .postgres_kit import LOST, opened


@pytest.fixture
def url() -> str:
    return postgres.url()


@pytest.fixture
def schema() -> str:
    return postgres.fresh_schema()


async def test_a_deadlock_is_tried_again(
    url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, failures = module.run, iter([1, 4])

    async with opened(url, schema, partitions=1) as store:
        calls = 0
        following = next(failures)

        async def deadlocked(using: Any, statement: Any, parameters: Any = None) -> Any:
            nonlocal calls, following
            calls += 1
            if calls == following:
                following = next(failures, 0)
                raise psycopg.errors.DeadlockDetected("deadlock detected")
            return await original(using, statement, parameters)

        monkeypatch.setattr(module, "run", deadlocked)
        await begin(store, "run")
        assert calls == 7
        assert len(await store.read("run")) == 1


@contextmanager
def failing(error: Exception) -> Generator[None]:
    """Let every statement of an append fail."""

    async def fail(*_: Any) -> Any:
        raise error

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "run", fail)
        yield


async def test_an_append_that_never_gets_through_is_given_up(url: str, schema: str) -> None:
    async with opened(url, schema, partitions=1) as store:
        with failing(psycopg.errors.DeadlockDetected("deadlock detected")):
            with pytest.raises(StoreError, match="all the time") as caught:
                await begin(store, "run")
            assert caught.value.retryable
        await begin(store, "run")


async def test_an_unexpected_error_reaches_the_waiting_callers(url: str, schema: str) -> None:
    async with opened(url, schema, partitions=1) as store:
        with failing(ZeroDivisionError()), pytest.raises(ZeroDivisionError):
            await begin(store, "run")
        await begin(store, "run")


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (psycopg.errors.AdminShutdown("x"), StoreError, True),
        (psycopg.errors.DiskFull("x"), StoreError, True),
        (psycopg.errors.ReadOnlySqlTransaction("x"), StoreReadOnly, False),
        (psycopg.errors.InsufficientPrivilege("x"), StoreReadOnly, False),
        (psycopg.errors.UndefinedTable("x"), StoreError, False),
        (psycopg.OperationalError("x"), StoreError, True),
        (psycopg.InterfaceError("x"), StoreError, False),
    ],
)
def test_errors_of_the_driver_become_store_errors_that_explain_them(
    error: psycopg.Error, kind: type[StoreError], retryable: bool
) -> None:
    with pytest.raises(StoreError, match="the store") as caught, typed_errors("the store"):
        raise error
    assert type(caught.value) is kind
    assert caught.value.retryable is retryable


def test_only_writes_leave_open_whether_they_were_stored() -> None:
    lost = psycopg.OperationalError("connection to server was lost")

    with pytest.raises(StoreError, match=LOST), typed_errors("the store"):
        raise lost
    with pytest.raises(StoreError) as read, typed_errors("the store", writes=False):
        raise lost
    assert read.value.retryable
    assert LOST not in str(read.value)

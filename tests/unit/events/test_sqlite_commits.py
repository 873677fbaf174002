"""How operations wait for the next transaction, and share it."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lib.errors import StoreError
from lib.events import SQLiteEventStore
from lib.events.stores.sqlite.commits import CommitQueue
from lib.events.stores.sqlite.writer import Commit, Operation, Writer
from lib.testing.aio import run
from lib.testing.event_store.kit import begin, note


class Thread:
    """Carries batches out when it is told to, and remembers them."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.permits = threading.Semaphore(0)
        self.fail = False

    def commit(self, operations: Sequence[Operation]) -> Commit:
        self.permits.acquire()
        self.batches.append(len(operations))
        if self.fail:
            raise StoreError("no more")
        outcomes: list[Any] = [operation(None) for operation in operations]  # pyright: ignore[reportArgumentType] - they take anything
        return Commit(outcomes, {"run": True})


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def numbered(number: int) -> Operation:
    return lambda _: number


def refused(error: Exception) -> Operation:
    return lambda _: error


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)  # noqa: TID251 - lets callbacks run


def test_what_arrives_during_a_transaction_shares_the_next(executor: Executor) -> None:
    async def main() -> None:
        thread, told = Thread(), list[Commit]()
        queue = CommitQueue(executor, thread.commit, told.append)
        await queue.drained()
        first = [queue.put(numbered(number)) for number in range(2)]
        await settle()
        rest = [queue.put(numbered(number)) for number in range(2, 7)]
        await settle()
        thread.permits.release(2)
        outcomes = await asyncio.gather(*first, *rest)
        await queue.drained()

        assert outcomes == list(range(7))
        assert thread.batches == [2, 5]
        assert [commit.grown for commit in told] == [{"run": True}] * 2

    run(main())


def test_a_refusal_is_raised_to_its_own_caller_only(executor: Executor) -> None:
    async def main() -> None:
        thread = Thread()
        thread.permits.release(9)
        queue = CommitQueue(executor, thread.commit, lambda _: None)
        refusal = ValueError("no")
        outcomes = await asyncio.gather(
            queue.put(numbered(1)),
            queue.put(refused(refusal)),
            queue.put(numbered(3)),
            return_exceptions=True,
        )

        assert outcomes == [1, refusal, 3]

    run(main())


def test_a_failed_transaction_is_raised_to_all_and_the_next_is_tried(executor: Executor) -> None:
    async def main() -> None:
        thread = Thread()
        thread.permits.release(9)
        thread.fail = True
        queue = CommitQueue(executor, thread.commit, lambda _: None)
        puts = [queue.put(numbered(number)) for number in range(2)]
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        thread.fail = False
        again = await queue.put(numbered(7))

        assert [type(outcome) for outcome in outcomes] == [StoreError, StoreError]
        assert again == 7

    run(main())


def test_what_is_cancelled_before_its_transaction_is_not_done_and_after_it_is(
    executor: Executor,
) -> None:
    async def main() -> None:
        thread, told = Thread(), list[Commit]()
        queue = CommitQueue(executor, thread.commit, told.append)
        under_way = queue.put(numbered(0))
        await settle()
        under_way.cancel()
        waiting = [queue.put(numbered(number)) for number in range(3)]
        waiting[1].cancel()
        await settle()
        thread.permits.release(2)
        outcomes = await asyncio.gather(waiting[0], waiting[2])
        alone = queue.put(numbered(4))
        alone.cancel()
        await queue.drained()

        assert outcomes == [0, 2]
        assert thread.batches == [1, 2]
        assert len(told) == 2

    run(main())


def test_appends_that_wait_together_share_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    commit = Writer.commit

    def counted(self: Writer, operations: Sequence[Operation]) -> Commit:
        batches.append(len(operations))
        return commit(self, operations)

    async def main() -> None:
        store = SQLiteEventStore(tmp_path / "log.db")
        await store.setup()
        await asyncio.gather(*(begin(store, f"run-{number}") for number in range(50)))
        appends = [store.append(f"run-{n}", [note()], expected=1) for n in range(50)]
        await asyncio.gather(*appends)
        await store.close()

    monkeypatch.setattr(Writer, "commit", counted)
    run(main())

    assert batches == [50, 50]

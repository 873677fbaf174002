"""The connection that writes: its batches, its cache, and the layout it makes."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lib._util.sqlite import connect
from lib.errors import Conflict, RunNotFound, StoreError
from lib.events import NewEvent, SQLiteEventStore
from lib.events.codec import encode_data
from lib.events.store import LAYOUT_VERSION
from lib.events.stores.sqlite.layout import MIGRATIONS, Migration, migrate, refuse_newer
from lib.events.stores.sqlite.reader import Reader
from lib.events.stores.sqlite.writer import Writer
from lib.testing.event_store.kit import NOTE, begin, note, started

Append = Callable[[Writer], Any]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "log.db")


@pytest.fixture
def writer(path: str) -> Iterator[Writer]:
    with closing(Writer.open(path, "log", "normal")) as writer:
        yield writer


def append(run_id: str, *events: NewEvent, expected: int | None) -> Append:
    payloads = [encode_data(event.data) for event in events]
    return lambda writer: writer.append(run_id, events, payloads, expected)


def logs(path: str) -> dict[str, list[int]]:
    with closing(Reader.open(path, "log")) as reader:
        events = reader.feed("", 1000).events
    names = dict.fromkeys(event.run_id for event in events)
    return {name: [event.seq for event in events if event.run_id == name] for name in names}


def test_a_batch_holds_what_was_done_and_what_was_refused(writer: Writer, path: str) -> None:
    commit = writer.commit(
        [
            append("a", started(), expected=0),
            append("a", note(), expected=7),
            append("missing", note(), expected=None),
            append("a", note(), note(), expected=1),
            append("b", started(), started(), expected=0),
            append("b", started(), expected=0),
            append("a", note(), expected=None),
        ]
    )

    outcomes = [
        type(outcome) if isinstance(outcome, Exception) else [event.seq for event in outcome]
        for outcome in commit.outcomes
    ]
    assert outcomes == [[1], Conflict, RunNotFound, [2, 3], ValueError, [1], [4]]
    assert commit.appended == {"a": True, "b": False}
    assert commit.foreign is False
    assert logs(path) == {"a": [1, 2, 3, 4], "b": [1]}


def test_an_operation_that_breaks_fails_alone(writer: Writer, path: str) -> None:
    def broken(_: Writer) -> None:
        raise OverflowError

    first, refused, second = writer.commit(
        [append("a", started(), expected=0), broken, append("a", note(), expected=1)]
    ).outcomes

    assert [event.seq for event in first + second] == [1, 2]
    assert isinstance(refused, OverflowError)
    assert logs(path) == {"a": [1, 2]}


def test_an_error_of_the_database_or_an_end_of_the_thread_undoes_the_whole_batch(
    writer: Writer, path: str
) -> None:
    def broken(_: Writer) -> None:
        raise SystemExit

    writer.commit([append("a", started(), expected=0)])
    with pytest.raises(SystemExit):
        writer.commit([append("a", note(), expected=1), append("b", started(), expected=0), broken])
    with pytest.raises(StoreError):
        writer.commit(
            [append("a", note(), expected=1), lambda writer: writer.connection.execute("nonsense")]
        )

    assert logs(path) == {"a": [1]}
    writer.commit([append("a", note(), expected=1), append("b", started(), expected=0)])
    assert logs(path) == {"a": [1, 2], "b": [1]}


def test_batches_of_any_size_are_written(writer: Writer, path: str) -> None:
    sizes = [1, 2, 3, 63, 64, 65, 127, 200]
    for size in sizes:
        commit = writer.commit(
            [append(f"{size}/{n}", started(), note(), note(), expected=0) for n in range(size)]
        )
        assert len(commit.outcomes) == size

    with closing(Reader.open(path, "log")) as reader:
        events = reader.feed("", 10_000).events
    assert [(event.run_id, event.seq) for event in events] == [
        (f"{size}/{n}", seq) for size in sizes for n in range(size) for seq in (1, 2, 3)
    ]


def test_the_cache_of_runs_is_bounded(path: str) -> None:
    with closing(Writer.open(path, "log", "normal", cached_runs=3)) as writer:
        for name in "abcdefgh":
            writer.commit([append(name, started(), expected=0)])
        for name in "abcdefgh":
            writer.commit([append(name, note(), expected=1)])

    assert logs(path) == {name: [1, 2] for name in "abcdefgh"}


def test_writers_notice_each_other(writer: Writer, path: str) -> None:
    with closing(Writer.open(path, "log", "normal")) as other:
        writer.commit([append("a", started(), expected=0)])
        assert (writer.look(), other.look(), other.look()) == (False, True, False)

        foreign = other.commit([append("a", note(), expected=1)]).foreign
        assert foreign is False  # `look` has found it already
        assert writer.commit([append("a", note(), expected=2)]).foreign is True
        assert other.commit([append("a", note(), expected=3)]).foreign is True
        assert other.commit([append("a", note(), expected=4)]).foreign is False

    assert logs(path) == {"a": [1, 2, 3, 4, 5]}


def test_the_write_ahead_log_stays_small_with_several_writers(path: str) -> None:
    large = NewEvent(NOTE, {"text": "x" * 50_000}, started().at)
    opened = partial(Writer.open, path, "log", "normal", commits_a_checkpoint=5)
    with closing(opened()) as writer, closing(opened()) as other:
        writer.commit([append("a", started(), expected=0)])
        for head in range(1, 101):
            turn = writer if head % 2 else other
            turn.commit([append("a", large, expected=head)])
        size = Path(f"{path}-wal").stat().st_size

    assert size < 30 * 50_000
    assert logs(path) == {"a": list(range(1, 102))}


def test_a_checkpoint_that_cannot_be_made_fails_no_commit(path: str) -> None:
    opened = partial(Writer.open, path, "log", "normal", commits_a_checkpoint=1)
    with (
        closing(opened(busy_s=0.02)) as writer,
        closing(opened()) as other,
        closing(connect(path)) as reader,
    ):
        other.commit([append("a", started(), expected=0)])
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM lib_runs").fetchall()
        for head in range(1, 4):
            writer.commit([append("a", note(), expected=head)])

    assert logs(path) == {"a": [1, 2, 3, 4]}


# -- migrations --------------------------------------------------------------------------------


def add_column(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE lib_runs ADD COLUMN colour TEXT")


def fail(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE lib_runs ADD COLUMN taste TEXT")
    connection.execute("nonsense")


def columns(connection: sqlite3.Connection) -> set[str]:
    return {row[1] for row in connection.execute("PRAGMA table_info(lib_runs)")} & {
        "colour",
        "taste",
    }


def test_the_newest_migration_makes_the_layout_of_this_release() -> None:
    versions = [version for version, _ in MIGRATIONS]

    assert versions == list(range(1, LAYOUT_VERSION + 1))


def test_migrations_are_made_once_in_order_and_each_as_a_whole(path: str) -> None:
    third: list[Migration] = [*MIGRATIONS, (3, add_column)]
    with closing(connect(path)) as connection:
        migrate(connection, "log")
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection, "log", [*third, (4, fail)])
        after_failure = (refuse_newer(connection, "log", 4), columns(connection))
        migrate(connection, "log", [*third, (4, lambda _: None)])
        migrate(connection, "log", [*third, (4, lambda _: None)])

        assert after_failure == (3, {"colour"})
        assert (refuse_newer(connection, "log", 4), columns(connection)) == (4, {"colour"})


def test_a_migration_that_another_process_has_made_meanwhile_is_not_repeated(path: str) -> None:
    with closing(connect(path)) as connection, closing(connect(path)) as other:
        migrate(connection, "log")
        third: list[Migration] = [*MIGRATIONS, (3, add_column)]
        connection.set_trace_callback(partial(_first, lambda: migrate(other, "log", third)))
        migrate(connection, "log", third)

        assert refuse_newer(connection, "log", 3) == 3


def _first(race: Callable[[], None], statement: str) -> None:
    """Let another process be faster, just before the setup lock is taken."""
    if statement.startswith("BEGIN"):
        race()


def commits(path: str) -> int:
    """Count the transactions in a write-ahead log that no checkpoint has emptied.

    Source: "WAL-mode File Format" of SQLite: a header of 32 bytes, then frames, each with a header
    of 24 bytes, whose second number is not 0 if the frame ends a transaction.
    """
    log = Path(f"{path}-wal").read_bytes()
    frame_size = 24 + int.from_bytes(log[8:12])
    frames = range(32, len(log), frame_size)
    return sum(log[start + 4 : start + 8] != bytes(4) for start in frames)


async def test_appends_that_wait_together_share_a_transaction(path: str) -> None:
    store = SQLiteEventStore(path)
    await store.setup()
    counts = [await asyncio.to_thread(commits, path)]
    await asyncio.gather(*(begin(store, f"run-{number}") for number in range(50)))
    counts.append(await asyncio.to_thread(commits, path))
    appends = [store.append(f"run-{n}", [note()], expected=1) for n in range(50)]
    await asyncio.gather(*appends)
    counts.append(await asyncio.to_thread(commits, path))
    await store.close()

    assert counts == [counts[0], counts[0] + 1, counts[0] + 2]

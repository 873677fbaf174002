"""Rows in memory: what a snapshot goes on showing while rows come, die and move."""

import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from lib.vector.exact.partition import Partition, Snapshot
from lib.vector.exact.search import row_lengths


class Notes:
    """Contents that record the calls they get."""

    def __init__(self, items: list[str]) -> None:
        self.items = items
        self.buried: list[int] = []

    def extend(self, items: Sequence[str]) -> None:
        self.items.extend(items)

    def bury(self, rows: Sequence[int]) -> None:
        self.buried.extend(rows)

    def moved(self, kept: NDArray[np.intp]) -> "Notes":
        return Notes([self.items[row] for row in kept])


def fill(partition: Partition[Notes], names: Sequence[str], value: float) -> None:
    vectors = np.full((len(names), 2), value, np.float32)
    items = [f"{name}={value:g}" for name in names]
    partition.upsert(names, vectors, row_lengths(vectors), items)


def shown(snapshot: Snapshot[Notes]) -> dict[str, tuple[float, str]]:
    rows = snapshot.rows
    return {
        rows.ids[row]: (float(rows.vectors[row, 0]), snapshot.contents.items[row])
        for row in range(len(rows.vectors))
        if snapshot.living.mask is None or snapshot.living.mask[row]
    }


def expected(**values: float) -> dict[str, tuple[float, str]]:
    return {name: (value, f"{name}={value:g}") for name, value in values.items()}


def test_a_snapshot_shows_what_was_there_whatever_happens_later() -> None:
    partition = Partition("dot", 2, Notes([]))
    empty = partition.snapshot
    fill(partition, ["a", "b"], 1.0)
    first = partition.snapshot
    fill(partition, ["b", "c"], 2.0)
    second = partition.snapshot
    partition.delete([0])
    third = partition.snapshot
    for value in range(3, 200):
        fill(partition, ["b", "x"], value)

    assert shown(empty) == {}
    assert shown(first) == expected(a=1, b=1)
    assert shown(second) == expected(a=1, b=2, c=2)
    assert shown(third) == expected(b=2, c=2)
    assert shown(partition.snapshot) == expected(b=199, c=2, x=199)
    assert [snapshot.living.count for snapshot in (empty, first, second, third)] == [0, 2, 3, 2]


def test_contents_learn_who_died_in_the_numbers_that_they_know() -> None:
    partition = Partition("dot", 2, Notes([]))
    fill(partition, ["a", "b", "c"], 1.0)
    fill(partition, ["b"], 2.0)
    partition.delete([2])

    assert partition.snapshot.contents.buried == [1, 2]
    assert [partition.row(name) for name in "abcx"] == [0, 3, None, None]


def test_once_a_quarter_is_dead_the_living_move_together() -> None:
    partition = Partition("cosine", 2, Notes([]))
    names = [str(number) for number in range(400)]
    fill(partition, names, 2.0)
    before = partition.snapshot
    partition.delete(list(range(0, 200, 2)))
    assert len(partition.snapshot.rows.vectors) == 400
    partition.delete([1])

    after = partition.snapshot
    assert after.living.mask is None
    assert after.living.count == len(after.rows.vectors) == 299
    assert shown(after) == {name: (2.0, f"{name}=2") for name in names[3:200:2] + names[200:]}
    assert [partition.row(name) for name in ("0", "1", "3", "399")] == [None, None, 0, 298]
    assert len(shown(before)) == 400
    fill(partition, ["3", "new"], 4.0)
    assert len(shown(partition.snapshot)) == 300


def test_memory_follows_what_lives_not_what_was_written() -> None:
    partition = Partition("dot", 2, Notes([]))
    for value in range(2000):
        fill(partition, ["a", "b"], value)

    assert len(partition.snapshot.rows.ids) < 200
    assert shown(partition.snapshot) == expected(a=1999, b=1999)


def test_a_write_moves_nothing_but_what_it_writes_until_there_is_no_room() -> None:
    partition = Partition("dot", 2, Notes([]))
    fill(partition, [str(number) for number in range(1000)], 1.0)
    assert partition.moving(1001) == 2000
    before = partition.snapshot

    assert partition.moving(1) == 0
    fill(partition, ["7", "new"], 2.0)
    partition.delete([8])
    after = partition.snapshot
    assert np.shares_memory(before.rows.vectors, after.rows.vectors)
    assert np.shares_memory(before.deaths, after.deaths)
    assert (before.count, after.count) == (1000, 1000)
    assert "living" not in vars(after)  # the living rows are computed on first use
    assert after.living.count == 1000
    assert partition.moving(400) == 2 * 1002  # so many deaths would make the living move


def test_a_row_is_moved_a_few_times_at_most_however_many_come_and_go() -> None:
    partition = Partition("dot", 2, Notes([]))
    moved = written = 0
    noise = np.random.default_rng(2)
    for _ in range(3000):
        names = [str(number) for number in noise.integers(0, 5000, 3)]
        moved += partition.moving(3) // 2
        fill(partition, sorted(set(names)), 1.0)
        written += 3
        rows = {row for row in map(partition.row, ["17", names[0]]) if row is not None}
        moved += partition.moving(len(rows)) // 2
        partition.delete(rows)
        written += len(rows)

    assert moved < 10 * written


class Immovable(Notes):
    """Contents for whose move there is no memory until the test says so."""

    room = False

    def moved(self, kept: NDArray[np.intp]) -> "Immovable":
        if not self.room:
            raise MemoryError
        copy = Immovable([self.items[row] for row in kept])
        copy.room = True
        return copy


def test_rows_stay_where_they_are_until_there_is_memory_to_move_them() -> None:
    contents = Immovable([])
    partition: Partition[Notes] = Partition("dot", 2, contents)
    fill(partition, ["a", "b"], 0.0)
    for value in range(1, 200):
        fill(partition, ["b"], value)
        assert shown(partition.snapshot) == expected(a=0.0, b=float(value))
    assert len(partition.snapshot.rows.vectors) == 201

    contents.room = True
    fill(partition, ["c"], 7.0)

    assert shown(partition.snapshot) == expected(a=0.0, b=199.0, c=7.0)
    assert len(partition.snapshot.rows.vectors) == 3
    assert [partition.row(name) for name in ("a", "b", "c", "d")] == [0, 1, 2, None]
    partition.delete([1])
    assert shown(partition.snapshot) == expected(a=0.0, c=7.0)


SCARCE = """
import resource
import numpy as np
from lib.vector.exact.partition import Partition

class Nothing:
    def extend(self, items): pass
    def bury(self, rows): pass
    def moved(self, kept): return self

def fill(name):
    partition.upsert([name], np.ones((1, 1), np.float32), np.ones(1), [None])

partition = Partition("dot", 1, Nothing())
fill("a")
with open("/proc/self/statm", encoding="ascii") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
unlimited = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), unlimited[1]))
try:
    partition.reserve(20 << 20)  # columns of 160, 160 and 320 MB
except MemoryError:
    print("no memory")
resource.setrlimit(resource.RLIMIT_AS, unlimited)
for n in range(200):
    fill(f"b{n}")
print(partition.snapshot.count, len(partition.snapshot.living.mask or partition.snapshot.deaths))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space as Linux does")
def test_memory_that_ends_while_room_is_made_leaves_all_columns_of_one_length() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCARCE],
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=True,
    )

    assert ended.stdout.split("\n") == ["no memory", "201 201", ""]

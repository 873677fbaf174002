"""A copy is complete, goes on after any interruption, and writes nothing that is there already."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lib.errors import DimensionMismatch, MetricMismatch, VectorError
from lib.vector import InMemoryVectorStore, Record, SQLiteVectorStore, copy_store
from lib.vector.copy import CopiedNamespace

NAMES = ["", "a", "a:b", "ü"]


class Counted(InMemoryVectorStore):
    """A store that counts its calls, and fails after a set number of writes."""

    def __init__(self, dimension: int | None = None, metric: Any = "cosine") -> None:
        super().__init__(dimension, metric)
        self.written: list[str] = []
        self.got = 0
        self.writes_left = 10**6

    async def upsert(self, records: Sequence[Record], *, namespace: str | None = None) -> None:
        if not self.writes_left:
            raise VectorError("the connection is lost")
        self.writes_left -= 1
        self.written += [record.id for record in records]
        await super().upsert(records, namespace=namespace)

    async def get(self, ids: Sequence[str], *, namespace: str | None = None) -> list[Record]:
        self.got += len(ids)
        return await super().get(ids, namespace=namespace)


def made(count: int) -> list[Record]:
    return [
        Record(f"{number:04}", [1.0, number], f"text {number}", {"n": number})
        for number in range(count)
    ]


async def filled(count: int = 25) -> InMemoryVectorStore:
    store = InMemoryVectorStore(2)
    for name in NAMES:
        await store.upsert(made(count), namespace=name)
    return store


async def contents(store: Any) -> dict[str, list[Record]]:
    return {
        name: await store.scan(namespace=name, limit=10_000) for name in await store.namespaces()
    }


def whole(name: str, records: int, written: int) -> CopiedNamespace:
    return CopiedNamespace(namespace=name, records=records, written=written, missing=0)


@pytest.mark.parametrize("batch_size", [1, 7, 25, 26, 10_000])
async def test_everything_is_copied_as_it_is(batch_size: int) -> None:
    source, target = await filled(), SQLiteVectorStore(dimension=2)
    await target.setup()

    copied = await copy_store(source, target, batch_size=batch_size)
    assert copied == [whole(name, 25, 25) for name in NAMES]
    assert await contents(target) == await contents(source)
    await target.close()


async def test_a_copy_into_nothing_writes_each_record_once_and_asks_for_it_once_at_the_end() -> (
    None
):
    source, target = await filled(), Counted()
    await copy_store(source, target, batch_size=10)

    assert target.got == 100
    assert len(target.written) == 100


@pytest.mark.parametrize("writes", [0, 1, 4, 11])
async def test_an_interrupted_copy_goes_on_and_writes_only_the_rest(writes: int) -> None:
    source, target = await filled(), Counted()
    target.writes_left = writes
    with pytest.raises(VectorError, match="lost"):
        await copy_store(source, target, batch_size=10)
    before, target.writes_left = len(target.written), 10**6

    copied = await copy_store(source, target, batch_size=10)
    assert sum(one.written for one in copied) == 100 - before
    assert len(target.written) == 100
    assert await contents(target) == await contents(source)
    assert [one.written for one in await copy_store(source, target)] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"text": "another"},
        {"meta": {"n": 4}},
        {"meta": {"n": True}},
        {"meta": {"n": 3, "more": None}},
        {"vector": [1.0, 3.001]},
        {"vector": [-1.0, 3.0]},
    ],
)
async def test_what_has_changed_since_is_written_again(change: dict[str, Any]) -> None:
    source, target = await filled(), Counted()
    await source.upsert([Record("0001", [1.0, 1.0], "text 1", {"n": 1})])
    await copy_store(source, target)
    target.written.clear()
    (record,) = await source.get(["0003"])
    await source.upsert([replace(record, **change)])

    (copied,) = await copy_store(source, target, namespaces=[""])
    assert copied == whole("", 25, 1)
    assert target.written == ["0003"]
    assert await contents(target) == await contents(source)


async def test_true_is_not_taken_for_one() -> None:
    source, target = InMemoryVectorStore(1), Counted(1)
    await target.upsert([Record("a", [1.0], "", {"x": 1})])
    await source.upsert([Record("a", [1.0], "", {"x": True})])

    assert await copy_store(source, target) == [whole("", 1, 1)]


async def test_a_vector_that_is_off_in_the_last_place_is_the_same_vector() -> None:
    source, target = InMemoryVectorStore(2), Counted(2)
    await source.upsert([Record("a", [0.1, 3e7]), Record("b", [0.1, 0.0])])
    await target.upsert([Record("a", [0.1 + 2e-8, 3e7 + 4]), Record("b", [0.1, 1e-7])])

    assert await copy_store(source, target) == [whole("", 2, 1)]
    assert target.written[2:] == ["b"]


async def test_what_only_the_target_has_stays() -> None:
    source, target = await filled(3), InMemoryVectorStore(2)
    await target.upsert([Record("own", [1.0, 0.0]), Record("0001", [5.0, 5.0])])
    await target.upsert([Record("own", [1.0, 0.0])], namespace="other")

    assert (await copy_store(source, target))[0] == whole("", 3, 3)
    assert await target.count() == 4
    assert await target.namespaces() == sorted([*NAMES, "other"])


async def test_chosen_namespaces_are_copied_once_each() -> None:
    source, target = await filled(3), InMemoryVectorStore(2)

    copied = await copy_store(source, target, namespaces=["ü", "", "ü"])
    assert [one.namespace for one in copied] == ["ü", ""]
    assert await target.namespaces() == ["", "ü"]


async def test_namespaces_may_come_from_a_generator_but_one_name_is_no_list_of_names() -> None:
    source, target = await filled(3), Counted(2)

    with pytest.raises(ValueError, match="wrap it in a list"):
        await copy_store(source, target, namespaces="a")
    assert target.written == []
    copied = await copy_store(source, target, namespaces=(name for name in ("ü", "")))
    assert [one.namespace for one in copied] == ["ü", ""]


async def test_what_cannot_be_copied_is_refused_before_anything_is_written() -> None:
    source, target = await filled(3), Counted(2)

    with pytest.raises(ValueError, match="onto itself"):
        await copy_store(source, source)
    with pytest.raises(MetricMismatch) as metrics:
        await copy_store(source, Counted(2, "dot"))
    assert (metrics.value.expected, metrics.value.got) == ("dot", "cosine")
    with pytest.raises(DimensionMismatch) as dimensions:
        await copy_store(source, Counted(3))
    assert (dimensions.value.expected, dimensions.value.got) == (3, 2)
    with pytest.raises(VectorError, match="no records in a namespace 'nowhere'"):
        await copy_store(source, target, namespaces=["", "nowhere"])
    without: Any = WithoutScan(2)
    with pytest.raises(VectorError, match="WithoutScan cannot be copied from"):
        await copy_store(without, target)
    assert target.written == []


class WithoutScan(InMemoryVectorStore):
    """A store that cannot be read in order."""

    scan = None  # type: ignore[assignment] - to be without it


async def test_progress_counts_over_all_namespaces() -> None:
    seen: list[tuple[int, int, str]] = []
    source = await filled(3)
    await copy_store(
        source,
        InMemoryVectorStore(),
        namespaces=["", "a"],
        batch_size=2,
        on_progress=lambda done, total, name: seen.append((done, total, name)),
    )

    assert seen == [(2, 6, ""), (3, 6, ""), (5, 6, "a"), (6, 6, "a")]


async def test_an_empty_store_is_copied_by_doing_nothing() -> None:
    assert (await copy_store(InMemoryVectorStore(), InMemoryVectorStore())) == []


class Forgetful(InMemoryVectorStore):
    """A store that loses a record of each batch, and says nothing."""

    async def upsert(self, records: Sequence[Record], *, namespace: str | None = None) -> None:
        await super().upsert(list(records)[1:], namespace=namespace)


async def test_records_that_the_target_lacks_at_the_end_are_counted_as_missing() -> None:
    copied = await copy_store(await filled(25), Forgetful(2), batch_size=10)

    assert [(one.records, one.missing) for one in copied] == [(25, 3)] * 4


class Visited(InMemoryVectorStore):
    """A store to which another process writes meanwhile."""

    async def upsert(self, records: Sequence[Record], *, namespace: str | None = None) -> None:
        visitor = Record(f"visitor {len(records)}", [1.0, 0.0])
        await super().upsert([*records, visitor], namespace=namespace)


async def test_records_that_others_write_to_the_target_meanwhile_are_not_missing_records() -> None:
    copied = await copy_store(await filled(25), Visited(2), batch_size=10)

    assert copied == [whole(name, 25, 25) for name in NAMES]


class Disturbed(InMemoryVectorStore):
    """A store where another process replaces one record of each batch by a record of its own."""

    async def upsert(self, records: Sequence[Record], *, namespace: str | None = None) -> None:
        await super().upsert(records, namespace=namespace)
        await super().upsert([Record(f"not {records[0].id}", [1.0, 0.0])], namespace=namespace)
        await self.delete([records[0].id], namespace=namespace)


async def test_a_record_deleted_meanwhile_is_missing_though_the_count_is_right() -> None:
    target = Disturbed(2)
    copied = await copy_store(await filled(25), target, batch_size=10)

    assert [(one.records, one.missing) for one in copied] == [(25, 3)] * 4
    assert [await target.count(namespace=name) for name in NAMES] == [25] * 4

"""Arguments of a store may be of subclasses; stored values are not."""

from lib.vector import InMemoryVectorStore, Record
from lib.vector.validate import checked_batch


class Alone(str):
    """A string that equals nothing but itself."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def test_two_ids_of_the_same_characters_are_one_whatever_their_class_says() -> None:
    batch = checked_batch(
        [
            Record(Alone("x"), [1.0, 0.0], "old"),
            Record("x", [1.0, 1.0], "newer"),
            Record(Alone("x"), [0.0, 1.0], "new"),
        ],
        metric="cosine",
        dimension=2,
    )

    assert batch is not None
    assert (batch.ids, batch.texts, batch.vectors.tolist()) == (["x"], ["new"], [[0.0, 1.0]])
    assert type(batch.ids[0]) is str


async def test_a_record_replaces_one_whose_id_was_of_another_class() -> None:
    store = InMemoryVectorStore(2)
    await store.upsert([Record(Alone("x"), [1.0, 0.0], "old")])
    await store.upsert([Record("x", [1.0, 0.0], "new")])

    assert [record.text for record in await store.get([Alone("x"), "x"])] == ["new", "new"]
    assert await store.count() == 1

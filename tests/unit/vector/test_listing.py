"""Pages in the order of ids, over a backend that knows no order."""

from lib.vector import Record
from lib.vector.ordering import Listing


class Heap:
    """A backend, and how often it has listed all its ids."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.listed = 0
        self.most = 0

    async def ids(self, namespace: str) -> list[str]:
        self.listed += 1
        return self.names[::-1]

    async def get(self, namespace: str, ids: list[str]) -> list[Record]:
        self.most = max(self.most, len(ids))
        return [Record(name, [1.0]) for name in ids if name in self.names]


async def page(listing: Listing, heap: Heap, after: str, limit: int, name: str = "") -> list[str]:
    found = await listing.page(name, after, limit, ids=heap.ids, get=heap.get)
    return [record.id for record in found]


async def test_ids_are_listed_once_for_all_pages() -> None:
    heap, listing = Heap(*"cabed"), Listing()

    pages = [await page(listing, heap, after, 2) for after in ("", "b", "d")]
    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    assert heap.listed == 1


async def test_a_listing_that_is_abandoned_begins_again() -> None:
    heap, listing = Heap(*"abcde"), Listing()
    assert await page(listing, heap, "", 2) == ["a", "b"]

    assert await page(listing, heap, "a", 2) == ["b", "c"]
    assert await page(listing, heap, "c", 1, "other") == ["d"]
    assert heap.listed == 3


async def test_what_was_deleted_since_leaves_neither_a_gap_nor_an_end() -> None:
    heap, listing = Heap(*"abcdefg"), Listing()
    assert await page(listing, heap, "", 2) == ["a", "b"]
    for name in "cdf":
        heap.names.remove(name)

    assert await page(listing, heap, "b", 2) == ["e", "g"]
    assert await page(listing, heap, "g", 2) == []
    assert heap.listed == 2


async def test_a_page_whose_last_ids_are_gone_is_followed_all_the_same() -> None:
    heap, listing = Heap(*"abcd"), Listing()
    assert await page(listing, heap, "", 3) == ["a", "b", "c"]
    heap.names = ["d"]

    assert await page(listing, heap, "c", 3) == ["d"]


async def test_many_are_requested_a_thousand_at_a_time() -> None:
    heap, listing = Heap(*(f"{number:05}" for number in range(2500))), Listing()

    assert len(await page(listing, heap, "", 2400)) == 2400
    assert heap.most == 1000

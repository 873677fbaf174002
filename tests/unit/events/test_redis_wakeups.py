"""Wake-ups by writes to Redis, of other processes and of this one."""

import pytest

from lib.events.stores.redis.store import FeedLengths
from lib.events.wakeups import Wakeups
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import begin
from servers import redis

from .redis_kit import opened


@pytest.fixture
def url() -> str:
    return redis.fresh_url()


class Recording(Wakeups):
    """Records the partitions to which other processes have written."""

    def __init__(self) -> None:
        super().__init__()
        self.partitions: list[int | None] = []

    def foreign(self, partition: int | None = None) -> None:
        self.partitions.append(partition)


def test_appends_of_this_process_never_count_as_foreign() -> None:
    wakeups = Recording()
    lengths = FeedLengths([4, 4], wakeups)
    lengths.appended(0, 4, 6)
    lengths.appended(0, 6, 7)
    assert [lengths.seen(look) for look in ([4, 4], [6, 4], [7, 4])] == [False] * 3
    assert lengths.seen([9, 4]) is True  # its own, if this look came before the answer
    lengths.appended(0, 7, 9)
    assert wakeups.partitions == [0]

    lengths.appended(1, 5, 6)
    assert lengths.seen([9, 6]) is False
    assert wakeups.partitions == [0, 1]


async def test_foreign_events_wake_within_a_second_and_own_events_at_once(url: str) -> None:
    async with opened(url) as one, opened(url) as two:
        with two.wakeups.listen() as listener:
            for number in range(3):
                await begin(one, f"run-{number}")
                assert await listener.wait(200)
            assert not await listener.wait(0.2)
            await begin(two, "own")
            assert await listener.wait(0)


async def test_foreign_appends_are_noticed_with_an_own_append(url: str) -> None:
    still = ManualClock()
    async with opened(url, partitions=1) as one, opened(url, partitions=1, clock=still) as two:
        with two.wakeups.listen("other") as listener:
            await begin(one, "other")
            assert not await listener.wait(0)
            await begin(two, "own")
            assert await listener.wait(0)

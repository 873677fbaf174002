"""The contract of every event store, as tests.

Give a subclass the store, and pytest runs it:

    class TestMyEventStore(EventStoreContract):
        @pytest.fixture
        def kind(self) -> StoreKind:
            return StoreKind(open=lambda place, clock: MyEventStore(place / "log"), ...)

`check_against_memory` holds a store against `MemoryEventStore` over random operations.
"""

from lib.testing import extra as extra
from lib.testing.event_store.erasure import ErasureContract
from lib.testing.event_store.feed import FeedContract
from lib.testing.event_store.kit import StoreKind
from lib.testing.event_store.life import LifeContract
from lib.testing.event_store.live import LiveContract
from lib.testing.event_store.log import LogContract
from lib.testing.event_store.machine import check_against_memory
from lib.testing.event_store.marks import MarksContract
from lib.testing.event_store.ordering import OrderingContract
from lib.testing.event_store.runs import LeaseContract, RunsContract

__all__ = ["EventStoreContract", "StoreKind", "check_against_memory"]


class EventStoreContract(
    LogContract,
    RunsContract,
    LeaseContract,
    FeedContract,
    MarksContract,
    ErasureContract,
    OrderingContract,
    LifeContract,
    LiveContract,
):
    """All that an event store promises; a subclass adds the fixture `kind`."""

"""A tenant's view of an event store does not depend on the acts of other tenants."""

from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lib.errors import LibError
from lib.events import EventStore, Lease, MemoryEventStore, NewEvent, RunQuery
from lib.events.store import run_mark
from lib.events.tenant import TenantEventStore
from lib.testing.clock import ManualClock
from lib.testing.event_store.kit import AT, RESUMED, attached, ended, note, started

DIGEST = "d" * 64
OWN = {"acme": ["a1", "a2", "a/3"], "globex": ["g1", "g2", "g/3"]}
IDS = [*OWN["acme"], *OWN["globex"], "missing", "tenant/globex/g1", "", "g1/", "%67", "g1\x00"]

Call = Callable[[EventStore], Awaitable[Any]]


def asks(
    method: str, *arguments: st.SearchStrategy[Any], **options: st.SearchStrategy[Any]
) -> st.SearchStrategy[Call]:
    """Draw a call of a method."""

    def made(values: tuple[Any, ...], named: dict[str, Any]) -> Call:
        return lambda store: getattr(store, method)(*values, **named)

    return st.builds(made, st.tuples(*arguments), st.fixed_dictionaries(options))


def start(parent: str | None, root: str | None) -> list[NewEvent]:
    more: dict[str, Any] = {"input": attached(DIGEST)}
    more |= {"parent": {"run_id": parent, "key": "k"}} if parent else {}
    more |= {"root": root} if root else {}
    return [started(**more)]


def mark(run_id: str, name: str) -> str:
    return run_mark(run_id, name) if name else f"bus/{run_id}"


ANY = st.sampled_from(IDS)
MAYBE = st.none() | ANY
OWNERS = st.sampled_from(["w1", "w2"])
LEASES = st.builds(
    Lease, run_id=st.sampled_from(["a2", "g2"]), owner=OWNERS, epoch=st.just(1), until=st.just(AT)
)
MARKS = st.builds(mark, ANY, st.text("ab", max_size=2))
VALUES = st.sampled_from([None, "1", "2"])
BATCHES = st.lists(
    st.sampled_from([note("x"), note("y"), RESUMED, ended(), NewEvent("lib.odd", {}, AT)]),
    min_size=1,
    max_size=2,
)
QUERIES = st.builds(
    RunQuery,
    after=MAYBE,
    tenant=st.sampled_from([None, None, "acme", "globex"]),
    parent_id=MAYBE,
    root_id=MAYBE,
)


def calls(tenant: str) -> st.SearchStrategy[tuple[str, Call]]:
    """Draw a call of a tenant: it starts runs under ids of its own, and asks for any."""
    kinds = (
        # A start under an id of another tenant is the one call that shows it: see the class.
        asks(
            "append",
            st.sampled_from(OWN[tenant]),
            st.builds(start, MAYBE, MAYBE) | st.builds(start, st.none(), st.none()),
            expected=st.just(0),
        ),
        asks("append", ANY, BATCHES, expected=st.sampled_from([None, 0, 1, 2, 3])),
        asks("read", ANY),
        asks("run", ANY),
        asks("runs", QUERIES),
        asks("claim", OWNERS, ttl_s=st.just(30), run_id=MAYBE, limit=st.integers(1, 3)),
        asks("renew", LEASES, ttl_s=st.just(60)),
        asks("release", LEASES, idle_at=st.just(1)),
        st.just(_feed),
        asks("mark", MARKS),
        asks("marks", st.sampled_from(["", "run/", "bus/g", "tenant/"])),
        asks("set_mark", MARKS, st.just("1")),
        asks("compare_and_set_mark", MARKS, expected=VALUES, value=VALUES),
        asks("erase", ANY),
        asks("tombstone", ANY),
        asks("blob_users", st.just(DIGEST), limit=st.integers(1, 3)),
    )
    return st.one_of(*(st.tuples(st.just(tenant), made) for made in kinds))


async def _feed(store: EventStore) -> Any:
    return (await store.feed(limit=100)).events


async def observed(tenants: dict[str, EventStore], made: list[tuple[str, Call]]) -> list[Any]:
    """Return what tenant acme has seen."""
    seen: list[Any] = []
    for tenant, call in made:
        if tenant not in tenants:
            continue
        try:
            answer = await call(tenants[tenant])
        except (LibError, ValueError) as error:
            answer = (type(error), str(error))
        if tenant == "acme":
            seen.append(answer)
    return seen


async def begin_both(views: dict[str, EventStore]) -> None:
    """Give each tenant two runs, of which another worker drives the second one, and a mark."""
    for name, view in views.items():
        for run_id in OWN[name][:2]:
            await view.append(run_id, [*start(None, None), note("z")], expected=0)
            await view.set_mark(mark(OWN["globex"][0], ""), name)
        await view.claim("w1", ttl_s=30, run_id=OWN[name][1])


@given(st.lists(calls("acme") | calls("globex"), min_size=6, max_size=24))
async def test_a_tenant_cannot_observe_what_another_one_does(
    made: list[tuple[str, Call]],
) -> None:
    shared, alone = MemoryEventStore(clock=ManualClock()), MemoryEventStore(clock=ManualClock())
    views = {name: TenantEventStore(shared, name) for name in OWN}
    apart = {"acme": TenantEventStore(alone, "acme")}
    for view in (*views.values(), *apart.values()):
        await view.setup()
    await begin_both({**views})
    await begin_both({**apart})

    assert await observed({**views}, made) == await observed({**apart}, made)

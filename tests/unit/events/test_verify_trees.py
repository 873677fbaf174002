"""Runs that do not agree with their parents, children or turns are found."""

import pytest

from lib.events import Event, MemoryEventStore, NewEvent
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.testing.event_store.kit import ended, started

from .verify_kit import Logs, asks, child, fill, found, hears, new, verified

TURN = new(k.TURN_REQUESTED, signal_id="turn-1")
ENDED_BY_HAND = new(k.TURN_COMPLETED, signal_id="turn-1", run_id="kid", outcome="COMPLETED")
TURN_ENDED = new(
    k.TURN_COMPLETED, key="turn-1", signal_id="turn-1", run_id="kid", outcome="COMPLETED"
)
OF_TURN = child("root", key="turn-1")
PARENT = [started(), asks("kid"), hears("kid")]


def turn_started(run_id: str) -> NewEvent:
    return new(k.TURN_STARTED, key="turn-1", run_id=run_id, algorithm="react", upto=2)


TREES: dict[str, tuple[Logs, list[tuple[str, int, str]]]] = {
    "sound": (
        {
            "root": [*PARENT, asks("kid2", "child/2")],
            "kid": [child("root"), asks("grandkid"), hears("grandkid", "FAILED"), ended()],
            "grandkid": [child("kid"), ended("FAILED")],
            "kid2": [child("root", key="child/2")],
        },
        [],
    ),
    "turns": (
        {
            "root": [started(), TURN, TURN, turn_started("kid"), TURN_ENDED, TURN],
            "kid": [OF_TURN, ended()],
        },
        [],
    ),
    "a turn that another run was started for": (
        {"root": [started(), TURN, turn_started("other")], "kid": [OF_TURN]},
        [("kid", 1, "parent")],
    ),
    "a turn without a request": (
        {"root": [started(), new(k.TURN_COMPLETED, signal_id="turn-1", run_id="kid")]},
        [("root", 2, "result")],
    ),
    "turns written by hand": (
        {"root": [started(), TURN, ENDED_BY_HAND], "kid": [OF_TURN, ended()]},
        [],
    ),
    "no parent": ({"kid": [child("root")]}, [("kid", 1, "parent")]),
    "a parent without a request": (
        {"root": [started()], "kid": [child("root")]},
        [("kid", 1, "parent")],
    ),
    "a parent that requested another": (
        {"root": [started(), asks("other")], "kid": [child("root")]},
        [("kid", 1, "parent")],
    ),
    "another root": (
        {"root": [started(), asks("kid")], "kid": [child("root", root="elsewhere")]},
        [("kid", 1, "parent")],
    ),
    "another tenant": (
        {"root": [started(), asks("kid")], "kid": [child("root", tenant="t")]},
        [("kid", 1, "parent")],
    ),
    "no child": ({"root": PARENT}, [("root", 3, "child")]),
    "a child that is still open": (
        {"root": PARENT, "kid": [child("root")]},
        [("root", 3, "child")],
    ),
    "a child with another outcome": (
        {"root": PARENT, "kid": [child("root"), ended("FAILED")]},
        [("root", 3, "child")],
    ),
    "a child of another": ({"root": PARENT, "kid": [started(), ended()]}, [("root", 3, "child")]),
}


@pytest.mark.parametrize(("logs", "faults"), TREES.values(), ids=list(TREES))
def test_parents_and_children_agree(logs: Logs, faults: list[tuple[str, int, str]]) -> None:
    assert verified(logs) == faults


def test_many_runs_and_many_parents_are_followed() -> None:
    roots = {
        f"root-{n}": [started(), asks(f"kid-{n}"), asks(f"late-{n}", "child/2")] for n in range(150)
    }
    kids = {f"kid-{n}": [child(f"root-{n}", root=f"root-{n}")] for n in range(150)}
    lates = {f"late-{n}": [child(f"root-{n}", key="child/2", root=f"root-{n}")] for n in range(149)}
    stranger = [child("root-149", key="child/3", root="root-149")]
    strangers = {"later": stranger, "late-149": stranger}

    assert verified({**roots, **kids, **lates, **strangers}) == [
        ("later", 1, "parent"),
        ("late-149", 1, "parent"),
    ]


async def test_an_erased_relative_is_no_fault_and_one_that_never_was_is() -> None:
    logs = {
        "root": [started(), asks("kid"), hears("kid"), asks("lost", "child/2")],
        "kid": [child("root"), asks("grandkid"), ended()],
        "grandkid": [child("kid"), ended()],
        "orphan": [child("never")],
        "mother": [started(), asks("none"), hears("none")],
    }
    store = MemoryEventStore()
    await fill(store, logs)
    await store.erase("kid")
    assert found(await verify_store(store)) == [("orphan", 1, "parent"), ("mother", 3, "child")]


class Vanishing(MemoryEventStore):
    """Erases a parent between two looks at it."""

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Event]:
        events = await super().read(run_id, after=after, limit=limit)
        if run_id == "kid":
            await self.erase("root")
        return events


async def test_a_parent_that_is_erased_just_now_is_no_fault() -> None:
    store = Vanishing()
    await fill(store, {"root": [started(), asks("kid")], "kid": [child("root")]})

    assert (await verify_store(store)).faults == []

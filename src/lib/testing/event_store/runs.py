"""The contract of an event store: the list of runs, and the workers that hold their leases."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lib.errors import RunNotFound
from lib.events import EventStore, Lease, RunInfo, RunQuery
from lib.events.runs import MAX_LEASE_S, fold
from lib.testing.event_store.kit import AT, StoreTests, Using, all_events, begin, ended, note

_YEAR_S = 365 * 86_400.0


class RunsContract(StoreTests):
    """Listing and erasing runs."""

    def test_the_listed_run_agrees_with_its_log(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            parent = {"run_id": "parent", "key": "child/1"}
            later = AT + timedelta(seconds=9)
            await begin(store, "run", tenant="t", user="u", root="root", parent=parent)
            await store.append("run", [note(at=later)], expected=1)
            listed = await store.run("run")

            expected = RunInfo(
                run_id="run",
                root_id="root",
                parent_id="parent",
                algorithm="react",
                tenant="t",
                user="u",
                created_at=AT,
                updated_at=later,
                head=2,
            )
            assert listed == expected
            assert await store.runs() == [expected]

            await store.append("run", [ended("LIMITED")], expected=2)
            listed = await store.run("run")

            closed = replace(
                expected, head=3, status="closed", outcome="LIMITED", ready=False, updated_at=AT
            )
            assert listed == closed == fold(await store.read("run"))

        using(body)

    def test_a_run_that_does_not_exist_is_none(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            assert await store.run("run") is None
            assert await store.runs() == []

        using(body)

    @pytest.mark.parametrize(
        ("query", "names"),
        [
            (RunQuery(), ["z", "a", "m", "b", "c"]),
            (RunQuery(tenant="t"), ["a", "b"]),
            (RunQuery(status="open"), ["z", "a", "c"]),
            (RunQuery(status="closed"), ["m", "b"]),
            (RunQuery(root_id="z"), ["z", "m"]),
            (RunQuery(roots=True), ["z", "a", "b", "c"]),
            (RunQuery(since=AT + timedelta(seconds=1)), ["b", "c"]),
            (RunQuery(after="m"), ["b", "c"]),
            (RunQuery(parent_id="z"), ["m"]),
            (RunQuery(parent_id="m"), []),
            (RunQuery(parent_id="z", status="open"), []),
            (RunQuery(idle_since=AT), []),
            (RunQuery(idle_since=AT + timedelta(microseconds=1)), ["z", "a", "m", "b"]),
            (RunQuery(idle_since=AT + timedelta(seconds=1), status="open"), ["z", "a"]),
            (RunQuery(idle_since=AT + timedelta(seconds=2), after="m"), ["b", "c"]),
            (RunQuery(limit=2), ["z", "a"]),
            (RunQuery(limit=0), []),
            (RunQuery(after="z", limit=2), ["a", "m"]),
            (RunQuery(after="z", tenant="t", status="closed", limit=1), ["b"]),
            (RunQuery(user="u"), ["a", "c"]),
            (RunQuery(user="u", tenant="t"), ["a"]),
            (RunQuery(user="nothing"), []),
            (RunQuery(algorithm="other"), ["b", "c"]),
            (RunQuery(algorithm="react", limit=2), ["z", "a"]),
            (RunQuery(outcome="COMPLETED"), ["m", "b"]),
            (RunQuery(outcome="FAILED"), []),
            (RunQuery(outcome="COMPLETED", status="open"), []),
            (RunQuery(newest_first=True), ["c", "b", "m", "a", "z"]),
            (RunQuery(newest_first=True, limit=2), ["c", "b"]),
            (RunQuery(newest_first=True, after="b"), ["m", "a", "z"]),
            (RunQuery(newest_first=True, after="b", limit=1), ["m"]),
            (RunQuery(newest_first=True, after="z"), []),
            (RunQuery(newest_first=True, after="c", tenant="t"), ["b", "a"]),
            (RunQuery(newest_first=True, algorithm="react", status="open"), ["a", "z"]),
        ],
    )
    def test_runs_are_listed_in_order_and_filtered_by_the_query(
        self, using: Using, query: RunQuery, names: list[str]
    ) -> None:
        async def body(store: EventStore) -> None:
            later = AT + timedelta(seconds=1)
            await begin(store, "z")
            await begin(store, "a", tenant="t", user="u")
            await begin(store, "m", end=True, root="z", parent={"run_id": "z", "key": "k"})
            await begin(store, "b", end=True, tenant="t", at=later, algorithm="other")
            await begin(store, "c", at=later, user="u", algorithm="other")
            await store.append("z", [note()], expected=1)

            assert [info.run_id for info in await store.runs(query)] == names

        using(body)

    def test_a_list_after_a_missing_run_is_refused(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run")
            with pytest.raises(RunNotFound) as caught:
                await store.runs(RunQuery(after="other"))

            assert caught.value.run_id == "other"

        using(body)

    def test_an_erased_run_is_listed_nowhere(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            kept = await begin(store, "kept", notes=1)
            await begin(store, "run", notes=2)

            assert await store.erase("run") is True
            assert await store.erase("run") is False
            assert (await store.read("run"), await store.run("run")) == ([], None)
            assert await all_events(store) == kept
            assert [info.run_id for info in await store.runs()] == ["kept"]

        using(body)


class LeaseContract(StoreTests):
    """Claiming runs."""

    def test_ready_runs_are_claimed_oldest_first_and_once(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            for name in ("c", "a", "b"):
                await begin(store, name)
            await begin(store, "closed", end=True)
            until = using.clock.now() + timedelta(seconds=30)
            first = await store.claim("me", ttl_s=30)
            rest = await store.claim("you", ttl_s=30, limit=5)

            assert first == [Lease(run_id="c", owner="me", epoch=1, until=until)]
            assert [(lease.run_id, lease.owner) for lease in rest] == [("a", "you"), ("b", "you")]
            assert await store.claim("me", ttl_s=30, limit=5) == []
            listed = await store.run("c")
            assert listed is not None
            assert (listed.owner, listed.lease_until, listed.head) == ("me", until, 1)

        using(body)

    def test_one_run_is_claimed_by_name_unless_held_closed_or_missing(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "a")
            await begin(store, "b")
            await begin(store, "closed", end=True)
            [lease] = await store.claim("me", ttl_s=30, run_id="b")

            assert lease.run_id == "b"
            for name in ("b", "closed", "missing"):
                assert await store.claim("you", ttl_s=30, run_id=name) == []

        using(body)

    def test_only_runs_of_the_requested_algorithms_are_claimed(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            for name, algorithm in (("a", "react"), ("b", "session"), ("c", "debate")):
                await begin(store, name, algorithm=algorithm)
            none = await store.claim("me", ttl_s=30, limit=9, algorithms=())
            others = await store.claim("me", ttl_s=30, limit=9, algorithms={"swarm", "%", ""})
            named = await store.claim("me", ttl_s=30, run_id="a", algorithms=["session"])
            some = await store.claim("me", ttl_s=30, limit=9, algorithms=["debate", "session"])
            rest = await store.claim("me", ttl_s=30, limit=9)

            assert (none, others, named) == ([], [], [])
            assert [lease.run_id for lease in some] == ["b", "c"]
            assert [lease.run_id for lease in rest] == ["a"]

        using(body)

    def test_runs_of_other_algorithms_do_not_use_up_the_limit(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            for number in range(20):
                await begin(store, f"other-{number}", algorithm="other")
            await begin(store, "run")
            [lease] = await store.claim("me", ttl_s=30, algorithms=["react"])
            using.clock.advance(30)
            [taken] = await store.claim("you", ttl_s=30, algorithms=["react"])

            assert (lease.run_id, taken.run_id, taken.takeover) == ("run", "run", True)

        using(body)

    def test_skipped_runs_are_not_claimed_and_do_not_use_up_the_limit(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            for name in ("a", "ä\0'b", "c", "d"):
                await begin(store, name)
            await begin(store, "e", algorithm="other")
            options: dict[str, Any] = {
                "ttl_s": 30,
                "skip": {"a", "ä\0'b", "none", "\0", "\udcff", ""},
            }
            named = await store.claim("me", run_id="a", **options)
            first = await store.claim("me", algorithms=["react"], limit=1, **options)
            rest = await store.claim("me", limit=9, **options)
            using.clock.advance(31)
            ended = await store.claim("me", ttl_s=30, limit=9, skip=["c", "d", "d"])

            assert named == []
            assert [lease.run_id for lease in first] == ["c"]
            assert [lease.run_id for lease in rest] == ["d", "e"]
            assert [(one.run_id, one.takeover) for one in ended] == [
                ("a", False),
                ("ä\0'b", False),
                ("e", True),
            ]

        using(body)

    def test_thousands_of_runs_can_be_skipped(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            for number in range(40):
                await begin(store, f"run-{number}")
            skip = [f"run-{number}" for number in range(39)] + [f"none-{n}" for n in range(9_000)]
            [lease] = await store.claim("me", ttl_s=30, limit=3, skip=skip)

            assert lease.run_id == "run-39"

        using(body)

    def test_workers_that_claim_at_once_never_get_the_same_run(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            names = [f"run-{number}" for number in range(12)]
            for name in names:
                await begin(store, name)
            claims = [store.claim(f"worker-{n}", ttl_s=30, limit=3) for n in range(6)]
            claimed = [lease.run_id for leases in await asyncio.gather(*claims) for lease in leases]

            assert len(claimed) == len(set(claimed))
            rest = await store.claim("last", ttl_s=30, limit=20)
            assert sorted(claimed + [lease.run_id for lease in rest]) == sorted(names)

        using(body)

    def test_a_lease_that_ran_out_is_taken_over_and_lost_to_its_owner(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run")
            [lost] = await store.claim("me", ttl_s=30)
            using.clock.advance(29.9)
            too_soon = await store.claim("you", ttl_s=30)
            using.clock.advance(0.1)
            [taken] = await store.claim("you", ttl_s=30)

            assert too_soon == []
            until = using.clock.now() + timedelta(seconds=30)
            assert taken == Lease(run_id="run", owner="you", epoch=2, until=until, takeover=True)
            assert await store.renew(lost, ttl_s=30) is None
            await store.release(lost)
            listed = await store.run("run")
            assert listed is not None
            assert (listed.owner, listed.lease_until) == ("you", until)

        using(body)

    def test_a_renewed_lease_lasts_longer(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run")
            [lease] = await store.claim("me", ttl_s=30)
            using.clock.advance(20)
            renewed = await store.renew(lease, ttl_s=30)
            using.clock.advance(20)

            until = using.clock.now() + timedelta(seconds=10)
            assert renewed == replace(lease, until=until)
            assert await store.claim("you", ttl_s=30) == []
            assert await store.renew(replace(lease, run_id="missing"), ttl_s=30) is None

        using(body)

    def test_a_lease_taken_by_a_clock_that_is_far_ahead_holds_nothing(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            names = ["listed", "named", "renewed"]
            for name in names:
                await begin(store, name)
            using.clock.advance(-_YEAR_S)
            [renewed] = await store.claim("wrong", ttl_s=30, run_id="renewed")
            using.clock.advance(2 * _YEAR_S)
            wrong = await store.claim("wrong", ttl_s=30, run_id="listed")
            wrong += await store.claim("wrong", ttl_s=30, run_id="named")
            wrong += [await store.renew(renewed, ttl_s=30) or renewed]
            using.clock.advance(-_YEAR_S)
            [named] = await store.claim("right", ttl_s=30, run_id="named")
            listed = await store.claim("right", ttl_s=30, limit=9)

            assert sorted(lease.run_id for lease in [named, *listed]) == names
            assert {lease.takeover for lease in [named, *listed]} == {True}
            for lease in wrong:
                assert await store.renew(lease, ttl_s=30) is None
                await store.release(lease)
            assert {info.owner for info in await store.runs()} == {"right"}

        using(body)

    @pytest.mark.parametrize("ttl_s", [MAX_LEASE_S, 9e9])
    def test_a_lease_lasts_a_day_at_most_and_holds_for_clocks_that_are_a_little_behind(
        self, using: Using, ttl_s: float
    ) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run")
            [lease] = await store.claim("me", ttl_s=ttl_s)
            until = using.clock.now() + timedelta(seconds=MAX_LEASE_S)
            renewed = await store.renew(lease, ttl_s=ttl_s)
            listed = await store.run("run")
            using.clock.advance(-1800)
            behind = await store.claim("you", ttl_s=30)
            using.clock.advance(1800 + MAX_LEASE_S - 1)
            later = await store.claim("you", ttl_s=30, run_id="run")
            using.clock.advance(1)
            over = await store.claim("you", ttl_s=30)

            assert listed is not None
            assert renewed == lease
            assert (lease.until, listed.lease_until) == (until, until)
            assert (behind, later) == ([], [])
            assert [taken.run_id for taken in over] == ["run"]

        using(body)

    def test_a_released_run_is_free_for_the_next(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run")
            [lease] = await store.claim("me", ttl_s=30)
            await store.release(lease)
            listed = await store.run("run")
            [taken] = await store.claim("you", ttl_s=30)

            assert listed is not None
            assert (listed.owner, listed.lease_until, listed.ready) == (None, None, True)
            assert (taken.epoch, taken.takeover) == (2, False)

        using(body)

    def test_a_run_that_waits_is_not_claimed_until_something_is_appended(
        self, using: Using
    ) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run")
            [lease] = await store.claim("me", ttl_s=30)
            await store.append("run", [note()], expected=1)
            await store.release(lease, idle_at=2)
            listed = await store.run("run")
            idle = await store.claim("me", ttl_s=30)
            await store.append("run", [note()], expected=None)
            ready = await store.run("run")
            [lease] = await store.claim("me", ttl_s=30)

            assert listed is not None
            assert listed.ready is False
            assert idle == []
            assert ready is not None
            assert ready.ready is True
            assert lease.run_id == "run"

        using(body)

    def test_a_run_that_got_a_signal_before_its_release_stays_ready(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run")
            [lease] = await store.claim("me", ttl_s=30)
            await store.append("run", [note()], expected=None)
            await store.release(lease, idle_at=1)

            assert [lease.run_id for lease in await store.claim("you", ttl_s=30)] == ["run"]

        using(body)

    def test_a_waiting_run_can_be_claimed_by_name(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run")
            [lease] = await store.claim("me", ttl_s=30)
            await store.release(lease, idle_at=1)

            assert [lease.epoch for lease in await store.claim("me", ttl_s=1, run_id="run")] == [2]

        using(body)

    def test_a_lease_outlives_appends_and_the_end_of_its_run(self, using: Using) -> None:
        async def body(store: EventStore) -> None:
            await begin(store, "run")
            [lease] = await store.claim("me", ttl_s=30)
            await store.append("run", [note(), ended()], expected=1)
            held = await store.run("run")
            await store.release(lease, idle_at=3)
            free = await store.run("run")

            folded = fold(await store.read("run"))
            assert held == replace(folded, owner="me", lease_until=lease.until)
            assert free == folded

        using(body)

"""The pieces that every store is made of: payloads, times, projections and wake-ups."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import lib.events
from lib.events import Event
from lib.events import kinds as k
from lib.events.codec import (
    decode_data,
    decode_time,
    encode_data,
    encode_time,
    event_from_json,
    event_to_json,
)
from lib.events.runs import fold
from lib.events.stores.sqlite import SQLiteEventStore
from lib.events.wakeups import Wakeups
from lib.testing.event_store.kit import AT


def test_the_driver_of_a_store_is_loaded_on_first_use() -> None:
    names: Any = lib.events
    assert names.SQLiteEventStore is SQLiteEventStore
    with pytest.raises(
        AttributeError, match=r"^module 'lib.events' has no attribute 'RedisStore'$"
    ):
        _ = names.RedisStore


def test_an_event_is_exported_without_what_it_lacks_and_read_back() -> None:
    bare = Event("run", 1, "user.note", {"x": [1]}, AT)
    full = Event("run", 2, "user.note", {}, AT, "t", "u")

    assert event_to_json(bare) == {
        "run_id": "run",
        "seq": 1,
        "kind": "user.note",
        "at": "2026-05-04T03:02:01.123456+00:00",
        "data": {"x": [1]},
    }
    assert event_to_json(full) == {
        "run_id": "run",
        "seq": 2,
        "kind": "user.note",
        "at": "2026-05-04T03:02:01.123456+00:00",
        "data": {},
        "tenant": "t",
        "user": "u",
    }
    assert [event_from_json(event_to_json(event)) for event in (bare, full)] == [bare, full]


def test_payloads_are_written_in_one_way_only() -> None:
    assert encode_data({"b": (1, 2), "a": {"d": None, "c": "é\ud800"}}) == (
        '{"a":{"c":"é\\ud800","d":null},"b":[1,2]}'
    )


@pytest.mark.parametrize("text", ["[]", "1", "null", "{", "", '{"x": NaN}', b"\xff"])
def test_a_payload_that_is_no_object_cannot_be_read(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_data(text)


def test_a_payload_that_is_no_dict_is_refused_by_its_type() -> None:
    payload: Any = ["secret"]
    with pytest.raises(TypeError, match=r"^expected a dict as the payload of an event, got list$"):
        encode_data(payload)


@pytest.mark.parametrize(
    ("at", "micros"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), -1),
        (AT, 1777863721123456),
    ],
)
def test_times_are_microseconds(at: datetime, micros: int) -> None:
    assert encode_time(at) == micros
    assert decode_time(micros) == at


def test_a_log_without_events_is_no_run() -> None:
    with pytest.raises(ValueError, match="at least one event"):
        fold([])


@pytest.mark.parametrize(
    ("kind", "signal"),
    [
        (k.CANCEL_REQUESTED, True),
        (k.EVAL_SCORE, True),
        ("user.note", True),
        (k.RUN_STARTED, False),
        (k.TOOL_COMPLETED, False),
        ("lib.of.a.newer.release", False),
    ],
)
def test_the_kinds_that_are_signals(kind: str, signal: bool) -> None:
    assert k.is_signal(kind) is signal


def test_every_result_belongs_to_a_kind_of_request() -> None:
    families = {kind.rpartition(".")[0] for kind in k.REQUESTS}

    assert {kind.rpartition(".")[0] for kind in k.RESULTS} == families


async def test_a_wake_up_before_the_wait_is_not_lost_and_counts_once() -> None:
    wakeups = Wakeups()
    with wakeups.listen("run") as listener:
        wakeups.committed("run", signal=False)
        wakeups.committed("run", signal=False)
        assert await listener.wait() is True
        assert await listener.wait(0) is False


async def test_a_foreign_commit_wakes_all_listeners() -> None:
    wakeups = Wakeups()
    with wakeups.listen("a") as one, wakeups.listen("b", signals_only=True) as two:
        wakeups.foreign()
        assert [await one.wait(0), await two.wait(0)] == [True, True]


async def test_demand_lasts_as_long_as_there_is_a_listener() -> None:
    wakeups = Wakeups()
    demanded = asyncio.create_task(wakeups.demanded())
    await asyncio.sleep(0)  # noqa: TID251 - lets it begin
    assert (wakeups.wanted, demanded.done()) == (False, False)
    with wakeups.listen("a"):
        with wakeups.listen("a"), wakeups.listen():
            assert wakeups.wanted
        assert wakeups.wanted
        await demanded
    assert not wakeups.wanted

"""Brave Search: how long it is waited for when its limits are reached."""

from typing import Any

import pytest

from lib.testing.http import Response
from lib.tools.builtin.search.brave import Window, wait_s, windows

from .brave_kit import SteppingClock, served


async def test_a_second_search_within_the_second_waits_for_the_next() -> None:
    clock = SteppingClock()

    found, server = await served(["rust", "oxide"], per_second=1, clock=clock)

    assert [len(pages) for pages in found] == [2, 2]
    assert clock.slept == [1.0]
    assert (len(server.requests), server.searches) == (3, 2)


async def test_there_is_one_retry_and_no_more() -> None:
    limited = Response.of({"error": {"code": "RATE_LIMITED"}}, 429)

    found, server = await served(script=[limited, limited])

    assert (found[0].code, len(server.requests)) == ("rate_limited", 2)
    assert "search again later" in found[0].message


async def test_there_is_no_retry_that_the_time_limit_forbids() -> None:
    clock = SteppingClock()

    found, server = await served(["rust", "oxide"], per_second=1, clock=clock, timeout_s=0.9)

    assert found[1].code == "rate_limited"
    assert (clock.slept, len(server.requests)) == ([], 2)


async def test_a_month_that_is_used_up_is_not_waited_for() -> None:
    clock = SteppingClock()

    found, server = await served(["rust", "oxide"], per_month=1, clock=clock)

    assert (found[1].code, clock.slept, len(server.requests)) == ("rate_limited", [], 2)
    assert "this month are used up" in found[1].message


async def test_a_plan_without_a_quota_is_never_used_up() -> None:
    found, _ = await served(["rust"] * 3, per_second=1, per_month=0)

    assert [len(pages) for pages in found] == [2, 2, 2]


POLICY = {"x-ratelimit-policy": "1;w=1, 15000;w=2592000", "x-ratelimit-limit": "1, 15000"}


@pytest.mark.parametrize(
    ("headers", "delay_s"),
    [
        ({}, 1.0),
        ({**POLICY, "x-ratelimit-remaining": "0, 1000", "x-ratelimit-reset": "1, 1419704"}, 1.0),
        ({**POLICY, "x-ratelimit-remaining": "0, 9", "x-ratelimit-reset": "7, 1419704"}, 7.0),
        ({**POLICY, "x-ratelimit-remaining": "1, 1000", "x-ratelimit-reset": "9, 9"}, 1.0),
        ({**POLICY, "x-ratelimit-remaining": "1, 0", "x-ratelimit-reset": "1, 1419704"}, None),
        ({**POLICY, "x-ratelimit-remaining": "0, 0", "x-ratelimit-reset": "1, 2"}, None),
        (
            {
                "x-ratelimit-limit": "1,0",
                "x-ratelimit-remaining": "0,0",
                "x-ratelimit-reset": "2,1419704",
            },
            2.0,
        ),
        ({**POLICY, "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"}, 1.0),
        ({**POLICY, "x-ratelimit-remaining": "many", "x-ratelimit-reset": "9, 9"}, 1.0),
        ({**POLICY, "x-ratelimit-remaining": "0, 0", "x-ratelimit-reset": "-1, ²"}, 1.0),
        ({**POLICY, "x-ratelimit-remaining": "0," * 9_000, "x-ratelimit-reset": "1"}, 1.0),
    ],
)
def test_the_wait_is_read_from_the_headers(headers: dict[str, str], delay_s: float | None) -> None:
    assert wait_s(headers, None) == delay_s


@pytest.mark.parametrize(
    ("meta", "delay_s"),
    [
        ({"quota_limit": 2000, "quota_current": 2000}, None),
        ({"quota_limit": 2000, "quota_current": 15}, 1.0),
        ({"quota_limit": 0, "quota_current": 15}, 1.0),
        ({"quota_limit": None, "quota_current": 15}, 1.0),
        ({"quota_limit": "1", "quota_current": "1"}, 1.0),
        ([], 1.0),
        (None, 1.0),
    ],
)
def test_the_body_of_a_429_tells_the_quota_too(meta: Any, delay_s: float | None) -> None:
    assert wait_s({}, {"error": {"meta": meta}}) == delay_s
    assert wait_s({}, {"error": 3}) == 1.0


def test_windows_stand_in_one_order() -> None:
    headers = {**POLICY, "x-ratelimit-remaining": "1, 1000", "x-ratelimit-reset": "1, 1419704"}

    assert windows(headers) == [Window(1, 1, 1, 1), Window(2_592_000, 15_000, 1_000, 1_419_704)]

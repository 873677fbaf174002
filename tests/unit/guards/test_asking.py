"""Guards of a stage run in order, and one that fails blocks."""

import asyncio
import logging

import pytest

from lib.guards import GuardContent, Stage, Verdict, check_all

from .guard_kit import guard_content


async def test_without_guards_nothing_is_checked() -> None:
    assert (await check_all([], guard_content("x"))).blocked is None


async def test_a_cancelled_check_is_cancelled() -> None:
    class Waits:
        name = "waits"
        stages: frozenset[Stage] = frozenset({"output"})

        async def check(self, content: GuardContent) -> Verdict:
            await asyncio.Event().wait()
            return Verdict(allowed=True)

    task = asyncio.create_task(check_all([Waits()], guard_content("x")))
    await asyncio.sleep(0)  # noqa: TID251 - a turn for the task
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_a_guard_raises_is_logged_without_its_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Quotes:
        name = "quotes"
        stages: frozenset[Stage] = frozenset({"output"})

        async def check(self, content: GuardContent) -> Verdict:
            raise ValueError(f"bad: {content.text}")

    with caplog.at_level(logging.ERROR):
        assert (await check_all([Quotes()], guard_content("SECRET-4711"))).blocked

    assert "SECRET-4711" not in caplog.text
    assert "ValueError" in caplog.text
    assert "test_asking.py:" in caplog.text


async def test_a_long_reason_is_cut() -> None:
    class Talks:
        name = "talks"
        stages: frozenset[Stage] = frozenset({"output"})

        async def check(self, content: GuardContent) -> Verdict:
            return Verdict(allowed=False, reason="x" * 500, provider="acme")

    checks = await check_all([Talks()], guard_content("x"))

    assert checks.made[0].to_json("k") | {"content_hash": ""} == {
        "key": "k",
        "guard": "talks",
        "stage": "output",
        "verdict": "blocked",
        "content_hash": "",
        "reason": "x" * 200,
        "provider": "acme",
    }
    assert checks.blocked == f"blocked by the guard 'talks': {'x' * 200}"

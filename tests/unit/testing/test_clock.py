import asyncio

from lib.testing.clock import ManualClock


async def test_sleepers_wake_when_their_time_has_come_and_not_before() -> None:
    clock = ManualClock()
    woken: list[str] = []

    async def sleeper(name: str, delay_s: float) -> None:
        await clock.sleep(delay_s)
        woken.append(name)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sleeper("now", 0))
        tasks.create_task(sleeper("soon", 1))
        tasks.create_task(sleeper("later", 2))
        leaver = tasks.create_task(sleeper("never", 2))
        await asyncio.sleep(0)  # noqa: TID251 - lets them fall asleep
        assert (woken, clock.sleepers) == (["now"], 3)
        leaver.cancel()
        clock.advance(1.5)
        await asyncio.sleep(0)  # noqa: TID251 - lets them wake
        assert (woken, clock.monotonic()) == (["now", "soon"], 1.5)
        clock.advance(0.5)
    assert woken == ["now", "soon", "later"]

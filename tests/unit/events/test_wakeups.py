"""Wake-ups: a listener looks again in time, but not at each commit of another process."""

import asyncio

from lib.events.wakeups import Wakeups

SHORT_S, LONG_S = 0.02, 30.0


async def test_a_paused_listener_wakes_once_for_other_processes_afterwards() -> None:
    wakeups, loop = Wakeups(), asyncio.get_running_loop()
    with wakeups.listen("run") as wake:
        for _ in range(3):
            wakeups.foreign()
            began = loop.time()
            asyncio.get_running_loop().call_later(SHORT_S / 2, wakeups.foreign)
            assert await wake.wait(LONG_S, rest_s=SHORT_S)
            assert loop.time() - began >= SHORT_S * 0.9
        assert not await wake.wait(SHORT_S, rest_s=SHORT_S / 2)


async def test_a_paused_listener_wakes_for_a_commit_to_its_run() -> None:
    wakeups = Wakeups()
    async with asyncio.timeout(200):
        with wakeups.listen("run") as wake:
            wakeups.committed("run", signal=False)
            wakeups.foreign()
            assert await wake.wait(rest_s=LONG_S)
            asyncio.get_running_loop().call_later(SHORT_S, wake.wake)
            assert await wake.wait(LONG_S, rest_s=LONG_S)
            wakeups.committed("other", signal=False)
            assert not await wake.wait(SHORT_S, rest_s=SHORT_S * 2)


async def test_a_cancelled_pause_loses_no_wake_up() -> None:
    wakeups = Wakeups()
    with wakeups.listen("run") as wake:
        task = asyncio.create_task(wake.wait(rest_s=LONG_S))
        await asyncio.sleep(0)  # noqa: TID251 - lets it begin
        wakeups.foreign()
        task.cancel()
        await asyncio.wait([task])
        assert await wake.wait(0.0)
        assert not await wake.wait(0.0)

"""Checkpoints and pending traces survive a restart."""

from typing import Any

import pytest

from fakes.observed import ended, observed, until
from lib.errors import ExportError
from lib.events.store import run_mark
from lib.observe import Observer
from lib.observe.export.outbox import StoreOutbox

from .delivery_kit import Backend, Engine, main


async def killed(engine: Engine, *sinks: Any, **options: Any) -> None:
    """Let an observer learn of all that has happened, and die before it exports anything."""
    observer = Observer(engine, list(sinks), settle_s=1000, **options)
    await observer.__aenter__()
    await engine.bus.flush()
    await observer.__aexit__(ZeroDivisionError, None, None)


def test_pending_traces_of_a_dead_process_are_exported_by_the_next_observer():
    backend = Backend()

    async def body(engine: Engine) -> None:
        async with observed(engine, backend):
            pass  # from here on the group has a cursor
        await engine.has(ended("one"), ended("two"))
        await killed(engine, backend)
        assert backend.exports == []
        async with observed(engine, backend) as observer:
            await until(lambda: len(backend.exports) == 2)
            assert await observer.drain()
        next_one = StoreOutbox(engine.store, "lib.observe/backend", owner="next", claim_s=35)
        assert await next_one.pending() == []

    main(body)

    assert backend.exports == [["one"], ["two"]]


def test_checkpoints_survive_a_restart():
    backend = Backend()

    async def body(engine: Engine) -> list[int]:
        await engine.has(ended("one"))
        sent: list[int] = []
        for _ in range(3):
            async with observed(engine, backend) as observer:
                sent.append(await observer.backfill())
        return sent

    assert main(body) == [1, 0, 0]
    assert len(backend.spans) == 1


def test_another_destination_and_another_group_have_outboxes_of_their_own():
    async def body(engine: Engine) -> list[int]:
        await engine.has(ended("one"))
        sent: list[int] = []
        for destination, group in (("a", "x"), ("b", "x"), ("a", "y"), ("a", "x")):
            backend = Backend(destination=destination)
            async with observed(engine, backend, group=group) as observer:
                sent.append(await observer.backfill())
        return sent

    assert main(body) == [1, 1, 1, 0]


def test_two_sinks_of_one_destination_do_not_share_an_outbox():
    one, two = Backend(), Backend()

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        async with observed(engine, one, two) as observer:
            await observer.backfill()

    main(body)

    assert len(one.spans) == len(two.spans) == 1


def test_a_ledger_goes_with_its_run():
    backend = Backend()

    async def body(engine: Engine) -> None:
        await engine.has(ended("run"))
        async with observed(engine, backend) as observer:
            await observer.backfill()
            mark = run_mark("run", "observe/lib.observe/backend")
            assert await engine.store.mark(mark) is not None
            await engine.store.erase("run")
            assert await engine.store.mark(mark) is None
            assert await observer.backfill() == 0

    main(body)


def test_a_run_that_is_erased_while_it_is_exported_leaves_no_checkpoint():
    async def body(engine: Engine) -> None:
        async def erase() -> None:
            await engine.store.erase("run")

        backend = Backend(erase)
        await engine.has(ended("run"))
        async with observed(engine, backend) as observer:
            assert await observer.backfill() == 1
        assert await engine.store.mark(run_mark("run", "observe/lib.observe/backend")) is None

    main(body)


def test_traces_refused_for_a_wrong_key_arrive_once_the_key_is_right():
    wrong = ExportError("check the API key", permanent=True, setup=True)
    sink = Backend(*[wrong] * 4)

    async def body(engine: Engine) -> None:
        async with observed(engine, sink) as observer:
            await engine.has(ended("one"), ended("two"))
            assert not await observer.drain()
            assert len(sink.exports) < 4  # it is left alone meanwhile
            raise ZeroDivisionError

    async def later(engine: Engine) -> None:
        with pytest.raises(ZeroDivisionError):
            await body(engine)
        sink.trouble = []
        async with observed(engine, sink) as observer:
            assert await observer.drain()

    main(later)

    assert sorted(span.run_id for span in sink.spans) == ["one", "two"]


def test_an_observer_can_be_used_again():
    sink = Backend()

    async def body(engine: Engine) -> None:
        observer = Observer(engine, sink, settle_s=0)
        for name in ("one", "two"):
            async with observer:
                await engine.has(ended(name))
                assert await observer.drain()

    main(body)

    assert sink.exports == [["one"], ["two"]]


def test_an_observer_that_is_used_again_acks_its_pending_traces_once(
    caplog: pytest.LogCaptureFixture,
):
    sink = Backend(ExportError("down"), ExportError("still down"), ExportError("and still"))

    async def body(engine: Engine) -> list[tuple[str, int]]:
        observer = Observer(engine, sink, settle_s=0)
        async with observer:
            await engine.has(ended("one"), ended("two"))
            await observer.drain()
        caplog.clear()
        sink.trouble = []
        async with observer:
            assert await observer.drain()
        outbox = StoreOutbox(engine.store, "lib.observe/backend", owner="next", claim_s=35)
        return await outbox.pending()

    assert main(body) == []
    assert caplog.messages == []
    assert sorted(span.run_id for span in sink.spans) == ["one", "two"]

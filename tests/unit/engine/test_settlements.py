"""The settled result of a call of unknown outcome answers the next equal call."""

import pytest

from lib.algorithms import React
from lib.engine import NotPending, Result, unknown_calls
from lib.engine.api.check import request_check
from lib.errors import InvalidEvent
from lib.events import Event, MemoryEventStore
from lib.events import kinds as k
from lib.events.verify import verify_store
from lib.observe import spans_from_events

from .run_kit import join_results
from .test_repeats import call, interrupted, payment


async def settled(
    *, happened: bool, **more: object
) -> tuple[Result, list[Event], list[int | float]]:
    """Interrupt a payment, let the model repeat it, settle it, and return how the run ends."""
    pay, made = payment()
    store = MemoryEventStore()
    steps = [call(1, amount=5), call(2, amount=5), join_results]

    async with await interrupted(store, steps, pay) as engine:
        started = await engine.start("go", idempotency_key="k")
        await engine.wait_while_driven(started.id)
        (waiting,) = await started.pending()
        assert waiting.key == "tool/2/c2"
        (unknown,) = [each async for each in unknown_calls(store)]
        assert (unknown.run_id, unknown.key) == (started.id, "tool/1/c1")
        with pytest.raises(NotPending):
            await started.settle("tool/2/c2", happened=True)
        with pytest.raises(InvalidEvent):
            await started.settle("tool/1/c1", happened="yes")  # pyright: ignore[reportArgumentType] - on purpose
        await started.settle("tool/1/c1", happened=happened, user="ada", **more)
        result = await started.result()
        with pytest.raises(NotPending):
            await started.settle("tool/1/c1", happened=not happened)
        assert [each async for each in unknown_calls(store)] == []
        report = await verify_store(store, checks=[request_check([React()], store)])
        assert report.faults == []
        log = await store.read(started.id)
    assert spans_from_events(log)
    return result, log, made


@pytest.mark.parametrize(
    ("result", "answer"),
    [("paid, no. 17", "paid, no. 17"), ({"no": 17}, '{"no":17}'), (None, "not called again")],
)
async def test_a_call_that_happened_is_not_made_again_and_the_model_reads_its_result(
    result: object, answer: str
) -> None:
    ended, log, made = await settled(happened=True, result=result)

    assert made == [5]
    assert ended.outcome == "COMPLETED"
    assert answer in ended.output
    (settlement,) = [event for event in log if event.kind == k.CALL_SETTLED]
    assert settlement.user == "ada"


async def test_a_call_that_did_not_happen_is_made_without_another_question() -> None:
    ended, _, made = await settled(happened=False)

    assert made == [5, 5]
    assert ended.output.endswith("paid")
    assert ended.spend.tool_calls == 2


async def test_a_settlement_answers_one_call_and_a_third_call_is_made() -> None:
    pay, made = payment()
    store = MemoryEventStore()
    steps = [call(1, amount=5), call(2, amount=5), call(3, amount=5), join_results]

    async with await interrupted(store, steps, pay) as engine:
        started = await engine.start("go", idempotency_key="k")
        await engine.wait_while_driven(started.id)
        await started.settle("tool/1/c1", happened=True, result="paid before")
        result = await started.result()
        assert "paid before" in result.output
        assert result.output.endswith("paid")
    assert made == [5, 5]


@pytest.mark.parametrize("second", [True, False])
async def test_the_first_of_two_concurrent_settlements_wins(*, second: bool) -> None:
    pay, made = payment()
    store = MemoryEventStore()
    steps = [call(1, amount=5), call(2, amount=5), join_results]

    async with await interrupted(store, steps, pay) as engine:
        started = await engine.start("go", idempotency_key="k")
        await engine.wait_while_driven(started.id)
        answers = [
            {"happened": True, "result": "paid before"},
            {"happened": second, "result": "something else"},
        ]
        signals = [
            await engine.event(
                k.CALL_SETTLED, {"key": "tool/1/c1", "signal_id": f"s{number}", **answer}
            )
            for number, answer in enumerate(answers)
        ]
        await store.append(started.id, signals, expected=None)
        await engine.resume(started.id)
        result = await started.result()
        report = await verify_store(store, checks=[request_check([React()], store)])
        assert report.faults == []
        log = await store.read(started.id)
    assert len([event for event in log if event.kind == k.CALL_SETTLED]) == 2
    assert made == [5]
    assert "paid before" in result.output
    assert "something else" not in result.output

"""Runs are scored by their handle and by the engine, at any time, and through the redactor."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from lib.engine import Engine, Run
from lib.errors import RunNotFound
from lib.evals import Score, score_of
from lib.events import Event
from lib.events import kinds as k
from lib.llm import ScriptedClient
from lib.privacy import PatternRedactor
from lib.testing.agents import make_engine

AT = datetime(2026, 2, 3, tzinfo=UTC)


async def scores(engine: Engine, run_id: str) -> Sequence[Event]:
    return [e for e in await engine.store.read(run_id) if e.kind == k.EVAL_SCORE]


async def test_every_spelling_of_a_score_is_stored_the_same() -> None:
    score = Score(name="helpful", value=0.8, source="human", comment="quick", meta={"n": 1})
    fields: dict[str, Any] = {"source": "human", "comment": "quick", "meta": {"n": 1}, "at": AT}

    async with make_engine(ScriptedClient(["hi"])) as engine:
        started = await engine.start("go")
        await started.result()  # late scores are taken, too
        await started.score(score.model_copy(update={"at": AT}))
        await started.score("helpful", 0.8, **fields)
        await started.score(name="helpful", value=0.8, **fields)
        await engine.score(started.id, score.model_copy(update={"at": AT}))
        await engine.score(started.id, "helpful", 0.8, **fields)
        await engine.run(started.id).score("helpful", value=0.8, **fields)
        found = await scores(engine, started.id)
        assert [score_of(event) for event in found] == [score_of(found[0])] * 6
        assert score_of(found[0]) == score.model_copy(update={"at": AT})
        assert len({event.data["signal_id"] for event in found}) == 6
        assert (await started.info()).outcome == "COMPLETED"


async def test_scores_pass_the_redactor() -> None:
    async with make_engine(ScriptedClient(["hi"]), redactor=PatternRedactor()) as engine:
        started = await engine.start("go")
        await started.result()
        await started.score("helpful", "ask bo@example.org", comment="or eve@example.org")
        [event] = await scores(engine, started.id)
    assert "example.org" not in f"{event.data}"
    assert event.data["name"] == "helpful"


async def test_a_score_of_a_span_and_of_a_judgement_with_an_id_and_a_user() -> None:
    async with make_engine(ScriptedClient(["hi"])) as engine:
        started = await engine.start("go")
        await started.result()
        for _ in range(2):
            await started.score("ok", value=False, span_id="ab", signal_id="s", user="eve")
        for event in await scores(engine, started.id):
            expected = {"name": "ok", "value": False, "span_id": "ab", "signal_id": "s"}
            assert (event.data, event.user) == (expected, "eve")


async def test_an_invalid_score_is_refused_and_nothing_is_written() -> None:
    wrong: list[tuple[type[Exception], Any, dict[str, Any]]] = [
        (TypeError, None, {}),
        (TypeError, "helpful", {}),
        (TypeError, None, {"value": 1}),
        (TypeError, "helpful", {"name": "helpful", "value": 1}),
        (TypeError, Score(name="helpful", value=1), {"comment": "more"}),
        (ValueError, " ", {"value": 1}),
        (ValueError, "helpful", {"value": float("nan")}),
        (ValueError, "helpful", {"value": [1]}),
        (ValueError, "helpful", {"value": 1, "source": "a cat"}),
        (ValueError, "helpful", {"value": 1, "at": datetime(2026, 1, 1)}),  # noqa: DTZ001 - no zone
        (ValueError, 7, {"value": 1}),
        (TypeError, "helpful", {"value": 1, "user": 7}),
        (TypeError, "helpful", {"value": 1, "span_id": 7}),
    ]

    async with make_engine(ScriptedClient(["hi"])) as engine:
        started = await engine.start("go")
        await started.result()
        for error, score, fields in wrong:
            with pytest.raises(error):
                await started.score(score, **fields)
        assert await scores(engine, started.id) == []
        with pytest.raises(RunNotFound):
            await engine.score("nowhere", "helpful", 1)


async def test_a_tenant_scores_its_own_runs_and_no_other() -> None:
    async with make_engine(ScriptedClient(["hi"])) as engine:
        started: Run = await engine.start("go", tenant="acme")
        await started.result()
        await engine.run(started.id, tenant="acme").score("helpful", 1)
        with pytest.raises(RunNotFound):
            await engine.run(started.id, tenant="other").score("helpful", 1)
        assert len(await scores(engine, started.id)) == 1

"""`/v1/runs/{run_id}/scores`: judgements of a run."""

from __future__ import annotations

import hashlib

from starlette.types import ASGIApp

from lib.evals import score_of
from lib.events import Event
from lib.events import kinds as k
from lib_server.bodies import AddScore, Empty, ScoreList, ScoreView
from lib_server.routing import AnyRoute, Call, Route, answer


def scores_in(log: list[Event]) -> list[ScoreView]:
    """Return the judgements in a log, oldest first; one that was repeated counts once."""
    found: dict[str, ScoreView] = {}
    for event in log:
        score = score_of(event) if event.kind == k.EVAL_SCORE else None
        if score is None or score.at is None:
            continue
        found.setdefault(
            str(event.data.get("signal_id", event.seq)),
            ScoreView(
                name=score.name,
                value=score.value,
                comment=score.comment,
                source=score.source,
                span_id=event.data.get("span_id"),
                user=event.user,
                at=score.at,
            ),
        )
    return list(found.values())


async def _add(call: Call[Empty, AddScore]) -> ASGIApp:
    run, _ = await call.run()
    body = call.body
    signal_id = None
    if body.key is not None:
        name = f"score/{call.principal.user}/{body.key}"
        signal_id = hashlib.sha256(name.encode()).hexdigest()[:32]
    await run.score(
        name=body.name,
        value=body.value,
        comment=body.comment,
        source=body.source,
        span_id=body.span_id,
        signal_id=signal_id,
        user=call.principal.user,
    )
    return answer(ScoreList(scores=scores_in(await call.store.read(run.id))), 201)


async def _list(call: Call[Empty, None]) -> ASGIApp:
    _, info = await call.run()
    return answer(ScoreList(scores=scores_in(await call.store.read(info.run_id))))


_PATH = "/v1/runs/{run_id}/scores"

ROUTES: list[AnyRoute] = [
    Route(
        method="POST",
        path=_PATH,
        handler=_add,
        summary="Judge a run",
        tag="scores",
        right="run",
        body=AddScore,
        answers={201: ScoreList},
    ),
    Route(
        method="GET",
        path=_PATH,
        handler=_list,
        summary="List the judgements of a run",
        tag="scores",
        right="read",
        answers={200: ScoreList},
    ),
]

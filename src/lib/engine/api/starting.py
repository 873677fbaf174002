"""The first event of a run: appended once, however often the start is repeated."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from lib._util.json import canonical, digest
from lib._util.trace_context import TraceContext, current_context, trace_context
from lib.engine.arguments import require_nonempty_key, require_optional_text, type_label
from lib.engine.core.budget import Budget
from lib.engine.logs import best_effort_after_commit, log_run
from lib.engine.runtime.services import EngineAPI
from lib.errors import Conflict, IdempotencyMismatch, RunErased
from lib.events import EventStore
from lib.events import kinds as k

_log = logging.getLogger("lib.engine")

NOTHING: Final[Mapping[str, Any]] = {}


def require_budget(*budgets: object) -> None:
    """Refuse what is neither a `Budget` nor None.

    Raises:
        TypeError: one is of another type.
    """
    for budget in budgets:
        if budget is not None and not isinstance(budget, Budget):
            raise TypeError(f"expected a Budget, got {type_label(budget)}: use Budget(tokens=…)")


def check_start(
    *, tenant: object, user: object, idempotency_key: object, budgets: Iterable[object]
) -> None:
    """Refuse a start that could not be logged, before anything of it is stored.

    Raises:
        TypeError: a name is no text, or a budget is no `Budget`.
        ValueError: the tenant or the key is empty.
    """
    require_optional_text(tenant=tenant, user=user, idempotency_key=idempotency_key)
    require_nonempty_key(idempotency_key)
    if tenant == "":
        raise ValueError("expected a tenant's id, got an empty text: None is for runs of none")
    require_budget(*budgets)


def joined_trace(traceparent: str | None, tracestate: str | None) -> TraceContext | None:
    """Return the application's span that these headers name, None for none.

    Without `traceparent` it is the one within which this code runs. A malformed one names none:
    it may come from any client of the application, and is no reason to refuse a run.
    """
    if traceparent is None:
        return current_context()
    found = trace_context(traceparent, tracestate)
    if found is None and traceparent:
        _log.debug("a run starts in no trace: its traceparent is malformed")
    return found


def start_id(engine: EngineAPI, key: str | None, tenant: str | None) -> str:
    """Return the id of a run that is started: within a tenant, the same for the same key."""
    if key is None:
        return engine.new_id()
    store_id = engine.store.store_id
    salt = (store_id,) if store_id else ()  # older stores keep the ids that they have
    return digest("start", *salt, canonical(tenant), key)[:32]


async def begin_run(
    engine: EngineAPI,
    run_id: str,
    data: dict[str, Any],
    config: Mapping[str, Any] = NOTHING,
    *,
    key: str | None,
    tenant: str | None,
    user: str | None,
    trace: TraceContext | None = None,
) -> bool:
    """Start a root run unless it is there, and have it driven; return False if it was there.

    Args:
        engine: stores and drives.
        run_id: the run; see `start_id`.
        data: the request; the same request under the same key is the same run.
        config: what the run remembers of its algorithm beside that.
        key: makes the start repeatable within the tenant.
        tenant: the owner of the run.
        user: the person or service that starts it.
        trace: the application's span within which it is started. It is no part of the request,
            which the same key may repeat within another trace.

    Raises:
        IdempotencyMismatch: the key has started another request.
        RunErased: the run that the key has started has been erased.
    """
    # Of the redacted input: a digest of what must not be kept would let it be guessed.
    request = digest(canonical((await engine.event(k.RUN_STARTED, data)).data))
    data = {**data, "config": {**config, **data.get("config", {})}}
    if key is not None:
        data["request"] = request
    if trace is not None:
        data |= trace.to_json()
    event = await engine.event(k.RUN_STARTED, data, tenant=tenant, user=user)
    try:
        log = await engine.store.append(run_id, [event], expected=0)
    except Conflict:
        await _check_same(engine.store, run_id, request, key or run_id)
        await engine.resume(run_id)
        return False
    else:
        log_run(logging.INFO, run_id, "starts: %s", data["algorithm"])
        # It is in the log: an error raised now would make the caller start another run.
        with best_effort_after_commit(
            run_id, "it has been started, and could not be driven at once"
        ):
            await engine.start_driving(run_id, log)
        return True


async def _check_same(store: EventStore, run_id: str, request: str, key: str) -> None:
    first = await store.read(run_id, limit=1)
    if not first:
        raise RunErased(run_id)
    if first[0].data.get("request") != request:
        raise IdempotencyMismatch(key, run_id=run_id)

"""What a tool does on the way, put into the result of its call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import TypeVar, cast

from lib._util.operations import Notebook
from lib.engine.core.settle import Draft
from lib.engine.handler import Context
from lib.events import Event
from lib.events import kinds as k

F = TypeVar("F", bound=Callable[..., Awaitable[Sequence[Draft]]])

_RESULTS = frozenset({k.TOOL_COMPLETED, k.TOOL_FAILED})


def noting_operations(handle: F) -> F:
    """Wrap a handler's `handle` so that searches inside it stand in the result, as `operations`."""

    @wraps(handle)
    async def noted(handler: object, request: Event, context: Context) -> Sequence[Draft]:
        notebook = Notebook(context.clock)
        with notebook.open():
            drafts = await handle(handler, request, context)
        operations = notebook.to_json()
        if not operations:
            return drafts
        return [
            replace(draft, data={**draft.data, "operations": operations})
            if draft.kind in _RESULTS
            else draft
            for draft in drafts
        ]

    return cast("F", noted)

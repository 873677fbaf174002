"""Changes of lists and resources, which reach listeners here at once, elsewhere soon."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from lib._util.clock import Clock
from lib._util.json import canonical, digest, parse
from lib._util.tasks import cancelled
from lib.errors import StoreError
from lib.events.store import Marks
from lib.mcp.sdk import types
from lib.mcp.state import ExpiringMarks

_log = logging.getLogger("lib.mcp")

_KEPT_S: Final = 60.0
_MAX_PENDING: Final = 10_000

Kind = Literal["tools", "prompts", "resources", "resource"]


class Change(NamedTuple):
    """A change of a list, or of the resource of a URI, for all tenants or for one."""

    kind: Kind
    uri: str = ""
    tenant: str | None = None

    def notification(self, meta: dict[str, Any] | None) -> types.ServerNotification:
        """Return the notification of it."""
        params = types.NotificationParams(_meta=meta)
        match self.kind:
            case "tools":
                return types.ToolListChangedNotification(params=params)
            case "prompts":
                return types.PromptListChangedNotification(params=params)
            case "resources":
                return types.ResourceListChangedNotification(params=params)
            case "resource":
                updated = types.ResourceUpdatedNotificationParams(uri=self.uri, _meta=meta)
                return types.ResourceUpdatedNotification(params=updated)


@dataclass(eq=False)
class ChangeListener:
    """Keeps the changes that a client wants, each once, until they are taken; 10,000 at most."""

    wanted: Callable[[Change], bool]
    _pending: dict[Change, None] = field(default_factory=dict[Change, None])
    _event: asyncio.Event = field(default_factory=asyncio.Event)
    _ended: bool = False

    def tell(self, change: Change) -> None:
        """Keep a change, if it is wanted."""
        if self.wanted(change) and len(self._pending) < _MAX_PENDING:
            self._pending[change] = None
            self._event.set()

    def end(self) -> None:
        """Let `next` return nothing from now on."""
        self._ended = True
        self._event.set()

    async def next(self) -> list[Change]:
        """Return the changes since the last time, at least one; none after `end`."""
        await self._event.wait()
        if self._ended:
            return []
        self._event.clear()
        taken = [*self._pending]
        self._pending.clear()
        return taken


class Changes:
    """Tells listeners of changes; while there are some, it looks for those of other processes."""

    def __init__(self, marks: Marks, *, clock: Clock, poll_s: float = 1.0) -> None:
        """Take the marks of the store that the processes of the server share."""
        self._recent = ExpiringMarks(marks, "mcp/changes/", clock=clock)
        self._clock = clock
        self._poll_s = poll_s
        self._listeners = set[ChangeListener]()
        self._latest: dict[str, str] = {}
        self._looking: asyncio.Task[None] | None = None

    def tell(self, change: Change) -> None:
        """Tell the listeners of this process."""
        for listener in self._listeners:
            listener.tell(change)

    async def publish(self, change: Change) -> None:
        """Tell the listeners of every process over the store."""
        self.tell(change)
        name, value = (
            digest(change.kind, change.uri, canonical(change.tenant)),
            canonical([secrets.token_hex(8), *change]),
        )
        self._latest[name] = value
        await self._recent.put(name, value, ttl_s=_KEPT_S)

    @asynccontextmanager
    async def listen(self, wanted: Callable[[Change], bool]) -> AsyncGenerator[ChangeListener]:
        """Yield what keeps the changes from now on."""
        latest = await self._recent.all()
        listener = ChangeListener(wanted)
        self._listeners.add(listener)
        if self._looking is None:
            self._latest = latest
            self._looking = asyncio.create_task(self._look(), name="lib.mcp.changes")
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            looking = self._looking
            if not self._listeners:
                self._looking = None
                await cancelled(looking)

    async def _look(self) -> None:
        while True:
            await self._clock.sleep(self._poll_s)
            try:
                found = await self._recent.all()
            except StoreError:
                _log.exception("cannot look for changes that other processes have published")
                continue
            before, self._latest = self._latest, found
            for name, value in found.items():
                if before.get(name) != value:
                    self.tell(Change(*parse(value)[1:]))

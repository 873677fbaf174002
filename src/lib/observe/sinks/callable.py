"""The sink that hands spans to a function."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from lib._util.contexts import AsyncClosable
from lib.errors import ExportError
from lib.observe.sink import SinkTraits
from lib.observe.sinks.thread import OneThread
from lib.observe.span import Span


class CallableSink(AsyncClosable):
    """Calls a function with the spans of each export.

    A coroutine function runs on the event loop, any other one in a thread, where it may block.
    """

    def __init__(self, export: Callable[[Sequence[Span]], Any | Awaitable[Any]]) -> None:
        """Take the function; what it returns is ignored."""
        self._export = export
        self.traits: SinkTraits = SinkTraits(destination=f"CallableSink {_name(export)}")
        self._thread = OneThread(f"CallableSink {_name(export)}")

    async def export(self, spans: Sequence[Span]) -> None:
        """Call the function, unless there are no spans.

        Raises:
            ExportError: the function raised, or the call before has not returned yet.
        """
        if not spans:
            return
        try:
            if inspect.iscoroutinefunction(self._export):
                await self._export(spans)
            else:
                result = await self._thread.run(lambda: self._export(spans))
                if inspect.isawaitable(result):
                    await result
        except ExportError:
            raise
        except Exception as error:  # around a sink: whatever it raises, it did not deliver
            raise ExportError(f"{_name(self._export)} raised {type(error).__name__}") from error


def _name(export: Callable[..., Any]) -> str:
    return getattr(export, "__qualname__", type(export).__qualname__)

"""What models are told of an engine's tools, for traces: a log holds their names and a digest."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from lib.engine.handler import Offers
from lib.engine.redaction import Redaction
from lib.errors import RedactionFailed
from lib.events import kinds as k

_log = logging.getLogger("lib.engine")


class ToolDefinitions:
    """Tells the definitions of tools as models get them, as long as they are what the log says."""

    def __init__(self, offers: Iterable[Offers], redacted: Redaction) -> None:
        """Take the tools, and what is done to whatever leaves the engine for a log.

        Args:
            offers: those of the engine's handlers, and those of each agent.
            redacted: the engine's redaction.
        """
        self._offers = tuple(offers)
        self._redacted = redacted
        self._known: dict[str, Sequence[Mapping[str, Any]] | None] = {}

    def __call__(
        self, names: Sequence[str], tools_digest: str
    ) -> Sequence[Mapping[str, Any]] | None:
        """Return the definitions of these tools, redacted.

        Args:
            names: of the tools.
            tools_digest: of what the model was told of them.

        Returns:
            None if the tools of this engine are others, or cannot be redacted.
        """
        if tools_digest in self._known:
            return self._known[tools_digest]
        for offers in self._offers:
            if offers.digest_of(names) == tools_digest:
                self._known[tools_digest] = told = self._told(offers, names)
                return told
        return None  # not remembered: logs hold any number of others

    def _told(self, offers: Offers, names: Sequence[str]) -> Sequence[Mapping[str, Any]] | None:
        told = [
            {
                "type": "function",
                "name": spec.name,
                "description": spec.description,
                "parameters": spec.input_schema,
            }
            for spec in offers.chosen(names)
        ]
        try:
            redacted = self._redacted(k.LLM_REQUESTED, {"definitions": told})
        except RedactionFailed:
            _log.warning("traces show tools by name only: their definitions cannot be redacted")
            return None
        return cast("Sequence[Mapping[str, Any]]", redacted["definitions"])

"""Langfuse, as far as a sink uses it, at version 4 of its ingestion."""

from __future__ import annotations

import base64
import math
import re
from datetime import datetime
from typing import Any, Final, cast

from fakes.otlp_receiver import Request, Response
from fakes.trace_servers.base import Refused, TraceServer, too_many
from lib._util.clock import SYSTEM_CLOCK, Clock

PUBLIC_KEY: Final = "pk-lf-0123456789"
SECRET_KEY: Final = "sk-lf-9876543210"

_NEWEST: Final = 4
_MAX_PAGE: Final = 1000
_PAGE: Final = 50
_FIELDS: Final = frozenset(
    {
        "core",
        "basic",
        "time",
        "io",
        "metadata",
        "model",
        "usage",
        "prompt",
        "metrics",
        "trace_context",
    }
)
_ENVIRONMENT: Final = re.compile(r"(?!langfuse)[a-z0-9_-]{1,40}")


class LangfuseServer(TraceServer):
    """Keeps a span that comes again beside the one before, and counts both.

    Exports without `x-langfuse-ingestion-version: 4` are taken, and not seen by readers.

    Attributes:
        lag: spans are seen after so many further reads.
        scores: what is held, by id, name and day.
        page: how many observations a page has at most.
        scores_a_minute: how many scores are taken in a minute, None for all; the free plan has 30.
    """

    def __init__(
        self,
        *,
        lag: int = 0,
        page: int = _MAX_PAGE,
        scores_a_minute: int | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Begin with nothing; minutes pass by the clock."""
        super().__init__(
            path="/api/public/otel/v1/traces",
            on_repeat="append",
            accepted=Response.of({}),
            routes={
                ("POST", "/api/public/scores"): self._score,
                ("GET", "/api/public/v2/observations"): self._observations,
            },
        )
        self.lag, self.page = lag, page
        self.scores: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.scores_a_minute = scores_a_minute
        self._clock, self._minute_ends, self._in_minute = clock, 0.0, 0
        self._unseen: dict[int, int] = {}

    @property
    def host(self) -> str:
        """The arguments of a sink."""
        return self.base_url

    def refuse(self, request: Request) -> None:
        pair = base64.b64encode(f"{PUBLIC_KEY}:{SECRET_KEY}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {pair}":
            raise Refused(401, {"message": "Invalid credentials", "error": "UnauthorizedError"})

    def refuse_export(self, request: Request) -> None:
        version = request.headers.get("x-langfuse-ingestion-version", "0")
        if not version.isdigit() or int(version) > _NEWEST:
            raise Refused(400, {"message": "unsupported ingestion version"})

    # -- scores --------------------------------------------------------------------------------

    def _score(self, request: Request) -> Response:
        left_s = self._left_of_minute()
        if self._in_minute == self.scores_a_minute:
            return too_many(str(math.ceil(left_s)))
        self._in_minute += 1
        body = request.json()
        if not isinstance(body, dict):
            raise Refused(400, {"message": "Invalid request data", "error": "InvalidRequestError"})
        score = cast(dict[str, Any], body)
        _check(score)
        day = datetime.fromisoformat(score["timestamp"]).date().isoformat()
        self.scores[score["id"], score["name"], day] = score
        return Response.of({"id": score["id"]})

    def _left_of_minute(self) -> float:
        now = self._clock.monotonic()
        if now >= self._minute_ends:
            self._minute_ends, self._in_minute = now + 60, 0
        return self._minute_ends - now

    # -- reading -------------------------------------------------------------------------------

    def _observations(self, request: Request) -> Response:
        query = {name: values[0] for name, values in request.query.items()}
        fields = set(query.get("fields", "core,basic").split(","))
        limit = int(query.get("limit", _PAGE))
        if not fields <= _FIELDS or not 0 < limit <= _MAX_PAGE:
            raise Refused(400, {"message": "Invalid request data"})
        seen = [span for span in self._seen() if span.trace_id.hex() == query["traceId"]]
        start, size = int(query.get("cursor", 0)), min(limit, self.page)
        data = [
            {"id": span.span_id.hex(), "traceId": span.trace_id.hex(), "type": "SPAN"}
            for span in seen[start : start + size]
        ]
        more = {"cursor": str(start + size)} if start + size < len(seen) else {}
        return Response.of({"data": data, "meta": more})

    def _seen(self) -> list[Any]:
        """Return the spans that have been ingested; asking is what time passes by."""
        if not self._is_current():
            return []
        waits = [self._unseen.setdefault(id(span), self.lag) for span in self.spans]
        self._unseen = {key: max(0, left - 1) for key, left in self._unseen.items()}
        return [span for span, left in zip(self.spans, waits, strict=True) if not left]

    def _is_current(self) -> bool:
        exports = [one for one in self.requests if one.path.endswith("/v1/traces")]
        return all(one.headers.get("x-langfuse-ingestion-version") for one in exports)


def _check(score: dict[str, Any]) -> None:
    """Refuse a score that the schema of the server does not know."""
    value, kind = score.get("value"), score.get("dataType")
    fits = {
        "NUMERIC": isinstance(value, int | float) and not isinstance(value, bool),
        "BOOLEAN": value in (0, 1) and not isinstance(value, bool),
        "CATEGORICAL": isinstance(value, str),
    }
    has_ids = all(isinstance(score.get(name), str) for name in ("id", "traceId", "name"))
    environment = _ENVIRONMENT.fullmatch(score.get("environment", "default"))
    if not (fits.get(str(kind)) and has_ids and score["name"] and environment):
        raise Refused(400, {"message": "Invalid request data", "error": "InvalidRequestError"})

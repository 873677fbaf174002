"""The sink for Langfuse."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, cast

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.errors import ExportError
from lib.evals import Score
from lib.observe import attributes as a
from lib.observe.dialect import Dialect
from lib.observe.dialects import LANGFUSE, Enriched
from lib.observe.otlp.sender import OTLPSender
from lib.observe.sink import OnTaken, SinkTraits
from lib.observe.sinks.otel import OTelSink, RemoteParentAs
from lib.observe.sinks.rest import (
    Reply,
    RestAPI,
    address_of,
    checked_key,
    checked_url,
    send_each,
)
from lib.observe.sinks.scores import timed
from lib.observe.span import Span

_TRACES: Final = "/api/public/otel/v1/traces"
_SCORES: Final = "/api/public/scores"
_OBSERVATIONS: Final = "/api/public/v2/observations"
_PAGE: Final = 1000
_MAX_PAGES: Final = 200
_MAX_ENVIRONMENT: Final = 40
_INGESTION_S: Final = 5.0
"""Seconds that `stored_span_ids` waits after an export, for accepted spans to become visible."""


class LangfuseSink(OTelSink):
    """Sends spans and scores to Langfuse, in its cloud or on a server of your own.

    Langfuse keeps both of two spans with one id and counts both, so each is sent once, when it has
    ended. `stored_span_ids` returns what it has, for an observer whose export was cut off.
    """

    def __init__(
        self,
        public_key: str,
        secret_key: str,
        host: str = "https://cloud.langfuse.com",
        *,
        environment: str | None = None,
        tags: Sequence[str] = (),
        http: Any = None,
        clock: Clock = SYSTEM_CLOCK,
        dialect: Dialect | None = None,
        batch_size: int = 512,
        remote_parent: RemoteParentAs = "link",
        **kw: Any,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            public_key: of the project, `pk-lf-…`.
            secret_key: of the project, `sk-lf-…`.
            host: the address, without `/api/public`.
            environment: of all traces and scores. Langfuse takes lower-case letters, digits, "-"
                and "_", at most 40, and not "langfuse" in front: it is made to fit.
            tags: of all traces.
            http: an `httpx2.AsyncClient` to use; it is not closed.
            clock: the time, against which a date in `Retry-After` counts.
            dialect: what attributes are called, None for Langfuse's own names.
            batch_size: how many spans to send in one request, at most.
            remote_parent: see `OTelSink`; "parent" only if the application's own spans go to the
                same project.
            kw: further arguments of `OTelSink`.

        Raises:
            ValueError: a key is empty or malformed, or `host` or `tags` is.
        """
        if ":" in checked_key(public_key, "public_key"):
            raise ValueError("public_key has a colon, which no public key has")
        pair = f"{public_key}:{checked_key(secret_key, 'secret_key')}"
        auth = {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        base = checked_url(host, "host")
        self._environment = None if environment is None else normalized(environment)
        more = {a.ENVIRONMENT: self._environment, a.TAGS: _checked_tags(tags)}
        sender = OTLPSender(
            base + _TRACES,
            # Without the version, spans are seen some ten minutes later.
            headers={**auth, "x-langfuse-ingestion-version": "4"},
            http=http,
            batch_size=batch_size,
            clock=clock,
        )
        super().__init__(
            sender,
            dialect=Enriched(dialect or LANGFUSE, {k: v for k, v in more.items() if v}),
            batch_size=batch_size,
            clock=clock,
            remote_parent=remote_parent,
            **kw,
        )
        project = hashlib.sha256(public_key.encode()).hexdigest()[:12]
        self.traits: SinkTraits = replace(
            self.traits,
            destination=f"langfuse {address_of(base)} {project}",
            scores_as_spans=False,
        )
        # The process before this one may have ended in the middle of an export.
        self._readable_at = clock.monotonic() + _INGESTION_S
        self._rest = RestAPI("Langfuse", base, auth, http=http, clock=clock)

    async def export(self, spans: Sequence[Span], *, on_taken: OnTaken | None = None) -> None:
        """Send the spans that have ended; `on_taken` gets the ids of what has been taken.

        Raises:
            ExportError: they were not delivered, or not all of them.
        """
        try:
            await super().export(spans, on_taken=on_taken)
        except BaseException:  # being cancelled does not keep them from arriving either
            self._readable_at = self._clock.monotonic() + _INGESTION_S
            raise

    async def score(
        self, trace_id: str, scores: Sequence[Score], *, span_id: str | None = None
    ) -> None:
        """Send scores of a trace or of an observation in it, one request each.

        A repeat changes a score in place, if its time is of the same day (UTC): Langfuse takes
        another day's for another score. They may come before the trace. Several are under way at
        once.

        Args:
            trace_id: of the trace.
            scores: one without a time has the present.
            span_id: of the observation that was judged, None for the trace.

        Raises:
            ExportError: one was not delivered.
        """
        trace_id = self._sent_trace_id(trace_id)

        async def send(score: Score) -> None:
            body = _score_body(timed(score, self._clock), trace_id, span_id, self._environment)
            reply = await self._rest.call("POST", _SCORES, body=body)
            if reply.status == 207:  # noqa: PLR2004 - HTTP: some of what came was refused
                raise ExportError("Langfuse refused a score", permanent=True)

        await send_each(scores, send)

    async def stored_span_ids(self, trace_id: str) -> frozenset[str]:
        """Return the ids of the spans of a trace that Langfuse has.

        It waits until what this sink, or a process before, may have sent last can be seen: some
        seconds, once. A server before version 4 cannot tell, and need not: it merges spans of one
        id.

        Raises:
            ExportError: it gave no answer, or one that cannot be read.
        """
        await self._clock.sleep(max(0.0, self._readable_at - self._clock.monotonic()))
        found: set[str] = set()
        query = {"traceId": self._sent_trace_id(trace_id), "fields": "core", "limit": str(_PAGE)}
        for _ in range(_MAX_PAGES):
            reply = await self._rest.call("GET", _OBSERVATIONS, query=query, also=(404,))
            if reply.status == 404:  # noqa: PLR2004 - HTTP
                return frozenset()
            found.update(_ids(reply))
            cursor = _cursor(reply)
            if cursor is None:
                return frozenset(found)
            query["cursor"] = cursor
        raise ExportError(f"Langfuse has more than {_PAGE * _MAX_PAGES} observations of one trace")

    async def aclose(self) -> None:
        """Close the connections, unless `http` was given; safe to repeat."""
        await self._rest.aclose()
        await super().aclose()


def normalized(environment: str) -> str:
    """Return the name of an environment as Langfuse takes it; "default" if nothing is left.

    Source: Langfuse documentation, "Environments", as of November 2026.
    """
    fitting = re.sub(r"[^a-z0-9_-]", "-", environment.strip().lower())
    while fitting.startswith("langfuse"):
        fitting = fitting.removeprefix("langfuse").lstrip("-_")
    return fitting[:_MAX_ENVIRONMENT] or "default"


def score_id(trace_id: str, span_id: str | None, name: str) -> str:
    """Return the id under which Langfuse keeps a score: SHA-256 of `trace|span|name`, as hex."""
    return hashlib.sha256(f"{trace_id}|{span_id or ''}|{name}".encode()).hexdigest()


def _score_body(
    score: Score, trace_id: str, span_id: str | None, environment: str | None
) -> dict[str, Any]:
    value, kind = _value(score)
    body = {
        "id": score_id(trace_id, span_id, score.name),
        "traceId": trace_id,
        "observationId": span_id,
        "name": score.name,
        "value": value,
        "dataType": kind,
        "comment": score.comment,
        "metadata": {**score.meta, "lib.source": score.source},
        "environment": environment,
        "timestamp": _timestamp(cast(datetime, score.at)),
    }
    return {name: value for name, value in body.items() if value is not None}


def _value(score: Score) -> tuple[float | str, str]:
    if isinstance(score.value, bool):
        return int(score.value), "BOOLEAN"
    if isinstance(score.value, str):
        return score.value, "CATEGORICAL"
    return score.value, "NUMERIC"


def _timestamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _checked_tags(tags: Sequence[str]) -> list[str]:
    # Callers without types hand over anything, which pyright does not expect.
    if isinstance(tags, str) or not all(isinstance(tag, str) and tag for tag in tags):  # pyright: ignore[reportUnnecessaryIsInstance] - not all callers are typed
        raise ValueError("tags are a list of texts that are not empty")
    return list(tags)


def _ids(reply: Reply) -> Iterator[str]:
    match reply.value:
        case {"data": [*observations]}:
            for one in observations:
                match one:
                    case {"id": str(found)}:
                        yield found
                    case _:
                        raise ExportError("Langfuse names an observation without an id")
        case _:
            raise ExportError("Langfuse answered what is no list of observations")


def _cursor(reply: Reply) -> str | None:
    match reply.value:
        case {"meta": {"cursor": str(cursor)}} if cursor:
            return cursor
        case _:
            return None

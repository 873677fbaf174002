"""The sink for Arize Phoenix."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.errors import ExportError
from lib.evals import Score, ScoreSource
from lib.observe.dialect import Dialect
from lib.observe.dialects import OPENINFERENCE
from lib.observe.otlp.sender import OTLPSender
from lib.observe.sink import SinkTraits
from lib.observe.sinks.otel import OTelSink, RemoteParentAs
from lib.observe.sinks.rest import RestAPI, address_of, checked_key, checked_url

_log = logging.getLogger("lib.observe")

_TRACES: Final = "/v1/traces"
_PROJECT: Final = "openinference.project.name"
_RESERVED: Final = "note"
_WAITS_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Between the attempts to judge a span that is not ingested yet."""

_KINDS: Final[Mapping[ScoreSource, str]] = {"code": "CODE", "llm": "LLM", "human": "HUMAN"}


class PhoenixSink(OTelSink):
    """Sends spans and scores to Arize Phoenix.

    Phoenix keeps the first of two spans with one id and says nothing of the second, so each is sent
    once, when it has ended; sending it again is harmless.
    """

    def __init__(
        self,
        endpoint: str = "http://localhost:6006/v1/traces",
        project: str | None = None,
        api_key: str | None = None,
        http: Any = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        dialect: Dialect | None = None,
        resource_attributes: dict[str, Any] | None = None,
        batch_size: int = 512,
        remote_parent: RemoteParentAs = "link",
        **kw: Any,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            endpoint: for traces; it ends with `/v1/traces`.
            project: where traces go; None for PHOENIX_PROJECT_NAME, or "default" without it.
            api_key: None for PHOENIX_API_KEY, or for a server that asks for none.
            http: an `httpx2.AsyncClient` to use; it is not closed.
            clock: the time, and how to wait for spans that are not ingested yet.
            dialect: what attributes are called, None for OpenInference.
            resource_attributes: more of the resource.
            batch_size: how many spans to send in one request, at most.
            remote_parent: see `OTelSink`; "parent" only if the application's own spans go to the
                same project.
            kw: further arguments of `OTelSink`.

        Raises:
            ValueError: the key is empty or malformed, or `endpoint` is.
        """
        url = checked_url(endpoint, "endpoint")
        if not url.endswith(_TRACES):
            raise ValueError(f"endpoint does not end with {_TRACES}")
        key = os.environ.get("PHOENIX_API_KEY") or None if api_key is None else api_key
        auth = {} if key is None else {"authorization": f"Bearer {checked_key(key, 'api_key')}"}
        named = project or os.environ.get("PHOENIX_PROJECT_NAME") or "default"
        sender = OTLPSender(url, headers=auth, http=http, batch_size=batch_size, clock=clock)
        super().__init__(
            sender,
            dialect=dialect or OPENINFERENCE,
            resource_attributes={**(resource_attributes or {}), _PROJECT: named},
            batch_size=batch_size,
            clock=clock,
            remote_parent=remote_parent,
            **kw,
        )
        self.traits: SinkTraits = replace(
            self.traits,
            destination=f"phoenix {address_of(url.removesuffix(_TRACES))} {named}",
            scores_as_spans=False,
        )
        api = url.removesuffix(_TRACES)
        self._rest = RestAPI("Phoenix", api, auth, http=http, clock=clock)

    async def score(
        self, trace_id: str, scores: Sequence[Score], *, span_id: str | None = None
    ) -> None:
        """Send scores as annotations of a span, or of the trace; a repeat changes them in place.

        A span that is not ingested yet is awaited, some seconds at most. Then Phoenix is to keep
        them until it is, which it does for ten minutes; that is logged.

        Args:
            trace_id: of the trace.
            scores: what was judged; Phoenix keeps its own time.
            span_id: of the span that was judged, None for the trace.

        Raises:
            ExportError: they were not delivered; or one has the name "note", which is Phoenix's
                own: then the others were.
        """
        trace_id = self._sent_trace_id(trace_id)
        kind, judged = ("trace", trace_id) if span_id is None else ("span", span_id)
        sent = [
            {f"{kind}_id": judged, **_annotation(score)}
            for score in scores
            if score.name != _RESERVED
        ]
        if sent:
            await self._annotate(f"/v1/{kind}_annotations", {"data": sent})
        if len(sent) < len(scores):
            raise ExportError(
                f"Phoenix has no scores called {_RESERVED!r}: give it another name",
                permanent=True,
                taken_scores=[score.name for score in scores].index(_RESERVED),
            )

    async def aclose(self) -> None:
        """Close the connections, unless `http` was given; safe to repeat."""
        await self._rest.aclose()
        await super().aclose()

    async def _annotate(self, path: str, body: Any) -> None:
        for wait_s in _WAITS_S:
            if await self._accepts(path, body):
                return
            await self._clock.sleep(wait_s)
        if not await self._accepts(path, body):
            await self._rest.call("POST", path, query={"sync": "false"}, body=body)
            _log.info("scores are queued at Phoenix, not confirmed: it has not ingested their span")

    async def _accepts(self, path: str, body: Any) -> bool:
        reply = await self._rest.call("POST", path, query={"sync": "true"}, body=body, also=(404,))
        return reply.status != 404  # noqa: PLR2004 - HTTP


def _annotation(score: Score) -> dict[str, Any]:
    result = {**_value(score), "explanation": score.comment}
    return {
        "name": score.name,
        "annotator_kind": _KINDS[score.source],
        "result": {name: value for name, value in result.items() if value is not None},
        "metadata": dict(score.meta),
        # Beside what people note in Phoenix under the same name, not instead of it.
        "identifier": f"lib:{score.name}",
    }


def _value(score: Score) -> dict[str, Any]:
    if isinstance(score.value, str):
        return {"label": score.value}
    if isinstance(score.value, bool):
        return {"score": float(score.value), "label": str(score.value).lower()}
    return {"score": score.value}

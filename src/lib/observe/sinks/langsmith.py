"""The sink for LangSmith."""

from __future__ import annotations

import os
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.errors import ExportError
from lib.evals import Score
from lib.observe import attributes as a
from lib.observe.dialect import Dialect
from lib.observe.dialects import LANGSMITH
from lib.observe.dialects.langsmith import with_exception_event
from lib.observe.otlp.sender import OTLPSender
from lib.observe.sink import SinkTraits
from lib.observe.sinks.otel import OTelSink, RemoteParentAs
from lib.observe.sinks.rest import RestAPI, address_of, checked_key, checked_url, send_each
from lib.observe.span import Span

_API_URL: Final = "https://api.smith.langchain.com"
_ENDPOINT: Final = f"{_API_URL}/otel"
_TRACES: Final = "/v1/traces"
_OTEL: Final = "/otel"
_WAITS_S: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Between the attempts to judge a run that is not ingested yet."""

_FEEDBACK_IDS: Final = uuid.UUID("7d1c2a68-52f4-5b0e-9d1f-3c0f6a4f7b52")
_DECIMALS: Final = 4
_PRICED: Final = frozenset({"llm", "embedding"})


class LangSmithSink(OTelSink):
    """Sends spans and scores to LangSmith.

    LangSmith drops a span without a word if its parent does not come within some hours, whatever
    it answered: give this sink whole traces, and no sampling inside of them. What it does with a
    second span of one id is not documented, so each is sent once, when it has ended.
    """

    _max_starts: ClassVar[int] = 10_000

    def __init__(
        self,
        api_key: str,
        project: str | None = None,
        endpoint: str = _ENDPOINT,
        *,
        provider: str | None = None,
        api_url: str = _API_URL,
        http: Any = None,
        clock: Clock = SYSTEM_CLOCK,
        dialect: Dialect | None = None,
        batch_size: int = 512,
        remote_parent: RemoteParentAs = "link",
        **kw: Any,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            api_key: `lsv2_…`.
            project: where traces go; None for LANGSMITH_PROJECT, or "default" without it.
            endpoint: of OpenTelemetry, with or without `/v1/traces`. Where it is the default,
                LANGSMITH_ENDPOINT counts, as in LangSmith's SDK: the address of a server without
                `/otel`.
            provider: of the models, such as "openai", where spans do not say it themselves:
                LangSmith looks prices up by provider and model.
            api_url: of the REST API, for scores. Where `endpoint` is another than LangSmith's cloud
                and ends with `/otel`, that server's, unless you say otherwise.
            http: an `httpx2.AsyncClient` to use; it is not closed.
            clock: the time, and how to wait for runs that are not ingested yet.
            dialect: what attributes are called, None for LangSmith's own names.
            batch_size: how many spans to send in one request, at most.
            remote_parent: see `OTelSink`; "parent" only if the application's own spans go to the
                same project.
            kw: further arguments of `OTelSink`.

        Raises:
            ValueError: the key is empty or malformed, or the project or a URL is.
        """
        auth = {"x-api-key": checked_key(api_key, "api_key")}
        base = _endpoint(endpoint)
        if api_url == _API_URL and base.endswith(_OTEL):
            api_url = base.removesuffix(_OTEL)  # the key goes to no other server
        self._project = _checked_project(project or os.environ.get("LANGSMITH_PROJECT"))
        sender = OTLPSender(
            base + _TRACES,
            headers={**auth, "Langsmith-Project": self._project},
            http=http,
            batch_size=batch_size,
            clock=clock,
        )
        super().__init__(
            sender,
            dialect=dialect or LANGSMITH,
            batch_size=batch_size,
            clock=clock,
            remote_parent=remote_parent,
            **kw,
        )
        self.traits: SinkTraits = replace(
            self.traits,
            destination=f"langsmith {address_of(base)} {self._project}",
            scores_as_spans=False,
            needs_root=True,
        )
        self._provider = provider
        self._session_id: str | None = None
        self._starts: OrderedDict[str, datetime] = OrderedDict()
        api = checked_url(api_url, "api_url")
        self._rest = RestAPI("LangSmith", api, auth, http=http, clock=clock)

    async def score(
        self, trace_id: str, scores: Sequence[Score], *, span_id: str | None = None
    ) -> None:
        """Send scores as feedback on the run that a span became; a repeat changes it in place.

        A run that is not ingested yet is waited for, some seconds at most. Feedback does not extend
        how long LangSmith keeps a trace, which it would charge for. Of feedback that is there
        already, LangSmith does not change the `extra`: it keeps the first meta of a score.

        Args:
            trace_id: of the trace.
            scores: LangSmith takes its own time for one that has none.
            span_id: of the span that was judged. Required: run ids come from span ids.

        Raises:
            ExportError: one was not delivered.
            ValueError: there is no `span_id`.
        """
        trace_id = self._sent_trace_id(trace_id)
        if span_id is None:
            raise ValueError("LangSmith keeps feedback on runs, which are spans: give span_id")

        async def send(score: Score) -> None:
            feedback = _feedback(score, trace_id, span_id, self._starts.get(span_id))
            for wait_s in _WAITS_S:
                if await self._accepts(feedback):
                    return
                await self._clock.sleep(wait_s)
            if not await self._accepts(feedback):
                self._session_id = None  # the project may have been made anew
                raise ExportError("LangSmith has not ingested the run yet that a score is of")

        await send_each(scores, send)

    async def aclose(self) -> None:
        """Close the connections, unless `http` was given; safe to repeat."""
        await self._rest.aclose()
        await super().aclose()

    def _outgoing(self, span: Span) -> Span:
        self._starts[span.span_id] = span.start
        if len(self._starts) > self._max_starts:
            self._starts.popitem(last=False)
        span = with_exception_event(span)
        if self._provider is None or span.kind not in _PRICED:
            return span
        return replace(span, attributes={a.PROVIDER: self._provider, **span.attributes})

    async def _accepts(self, feedback: dict[str, Any]) -> bool:
        """Create feedback, or update it; return False while the run, or its project, is unknown."""
        session_id = self._session_id or await self._find_session()
        if session_id is None:
            return False
        self._session_id = session_id
        body = {**feedback, "session_id": session_id}
        reply = await self._rest.call("POST", "/feedback", body=body, also=(404, 409))
        if reply.status == 409:  # noqa: PLR2004 - HTTP: it is there already
            changes = {
                name: feedback[name] for name in ("score", "value", "comment") if name in feedback
            }
            await self._rest.call("PATCH", f"/feedback/{feedback['id']}", body=changes)
        return reply.status != 404  # noqa: PLR2004 - HTTP

    async def _find_session(self) -> str | None:
        """Return the id of the project, which there is once a span has been ingested into it."""
        query = {"limit": "1", "name": self._project}
        reply = await self._rest.call("GET", "/sessions", query=query)
        match reply.value:
            case []:
                return None
            case [{"id": str(found)}, *_]:
                return found
            case _:
                raise ExportError("LangSmith answered what is no list of projects")


def run_id_of(span_id: str) -> str:
    """Return the id of the run that LangSmith makes of a span.

    Source: langsmith 0.14.17, `integrations/otel`: the span id, right-aligned in a UUID.
    """
    return str(uuid.UUID(int=int(span_id, 16)))


def feedback_id(trace_id: str, span_id: str, name: str) -> str:
    """Return the id under which LangSmith keeps a score, the same for every repeat."""
    return str(uuid.uuid5(_FEEDBACK_IDS, f"{trace_id}|{span_id}|{name}"))


def _endpoint(endpoint: str) -> str:
    """Return where spans go, without the path for traces."""
    configured = os.environ.get("LANGSMITH_ENDPOINT")
    if endpoint != _ENDPOINT or not configured:
        return checked_url(endpoint, "endpoint").removesuffix(_TRACES)
    server = checked_url(configured, "LANGSMITH_ENDPOINT").removesuffix(_TRACES).removesuffix(_OTEL)
    return server + _OTEL


def _feedback(
    score: Score, trace_id: str, span_id: str, run_start: datetime | None
) -> dict[str, Any]:
    at = None if score.at is None else _timestamp(score.at)
    feedback = {
        "id": feedback_id(trace_id, span_id, score.name),
        "run_id": run_id_of(span_id),
        # LangSmith finds the run faster with it, and without it, too.
        "start_time": None if run_start is None else _timestamp(run_start),
        "key": score.name,
        "comment": score.comment,
        "created_at": at,
        "modified_at": at,
        "feedback_source": {
            "type": "model" if score.source == "llm" else "api",
            "metadata": {"lib.source": score.source},
        },
        "extra": dict(score.meta) or None,
        "extend_trace_retention": False,
        **_value(score),
    }
    return {name: value for name, value in feedback.items() if value is not None}


def _timestamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _value(score: Score) -> dict[str, Any]:
    if isinstance(score.value, str):
        return {"value": score.value}
    if isinstance(score.value, bool):
        return {"score": score.value}
    return {"score": round(score.value, _DECIMALS)}  # as the SDK does


def _checked_project(project: str | None) -> str:
    name = project or "default"
    if not (name.isascii() and name.isprintable()) or name != name.strip():
        raise ValueError(
            f"project={name!r} cannot stand in a header: take letters, digits and the like of ASCII"
        )
    return name

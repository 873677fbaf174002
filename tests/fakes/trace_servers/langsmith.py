"""LangSmith, as far as a sink uses it, in November 2026."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fakes.otlp_receiver import Request, Response
from fakes.trace_servers.base import Refused, TraceServer

API_KEY: Final = "lsv2_pt_0123456789"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FEEDBACK: Final = "/feedback"
_SOURCES: Final = frozenset({"api", "model", "app"})


class LangSmithServer(TraceServer):
    """Links a run to its parent when that comes, and drops those whose parent never does.

    Attributes:
        lag: a run, and a new project, is known after so many further calls of the REST API.
        feedback: what is held, by id.
        projects: their ids by name.
        asks_for_start: whether feedback is refused without the start of its run.
    """

    def __init__(self, *, lag: int = 0, asks_for_start: bool = False) -> None:
        """Begin with nothing."""
        super().__init__(
            path="/otel/v1/traces",
            on_repeat="first",
            accepted=Response.of({}),
            routes={
                ("GET", "/sessions"): self._sessions,
                ("POST", _FEEDBACK): self._create,
                ("PATCH", _FEEDBACK): self._update,
            },
        )
        self.lag, self.asks_for_start = lag, asks_for_start
        self.feedback: dict[str, dict[str, Any]] = {}
        self.projects: dict[str, str] = {}
        self._expired: set[bytes] = set()
        self._calls_at_export = 0

    @property
    def endpoint(self) -> str:
        """The URL to which a sink sends spans."""
        return f"{self.base_url}/otel"

    @property
    def runs(self) -> dict[str, Any]:
        """The visible spans by run id: those of which every ancestor has come."""
        spans = {span.span_id: span for span in self.spans if span.span_id not in self._expired}

        def linked(span: Any) -> bool:
            parent = span.parent_span_id
            return not parent or (parent in spans and linked(spans[parent]))

        return {run_id(span.span_id): span for span in spans.values() if linked(span)}

    def expire(self) -> None:
        """Let the time pass in which a parent may still come."""
        seen = {span.span_id for span in self.runs.values()}
        self._expired |= {span.span_id for span in self.spans if span.span_id not in seen}

    def refuse(self, request: Request) -> None:
        if request.headers.get("x-api-key") != API_KEY:
            raise Refused(401, {"detail": "Invalid token"})

    def refuse_export(self, request: Request) -> None:
        project = request.headers.get("langsmith-project", "default")
        self.projects.setdefault(project, str(uuid.uuid5(uuid.NAMESPACE_DNS, project)))
        self._calls_at_export = len(self.calls)

    @property
    def _ingested(self) -> bool:
        return bool(self.exports) and len(self.calls) - self._calls_at_export > self.lag

    # -- the REST API --------------------------------------------------------------------------

    def _sessions(self, request: Request) -> Response:
        name = request.query["name"][0]
        project = self.projects.get(name) if self._ingested else None
        return Response.of([{"id": project, "name": name}] if project else [])

    def _create(self, request: Request) -> Response:
        body = request.json()
        uuid.UUID(body["id"])
        if body.get("session_id") not in self.projects.values():
            raise Refused(422, {"detail": "session_id is required"})
        if body["feedback_source"]["type"] not in _SOURCES:
            raise Refused(422, {"detail": "unknown source"})
        if not self._ingested or body["run_id"] not in self.runs:
            raise Refused(404, {"detail": "Run not found"})
        if self.asks_for_start and not _is_start(body.get("start_time"), self.runs[body["run_id"]]):
            raise Refused(422, {"detail": "start_time is not that of the run"})
        if body["id"] in self.feedback:
            raise Refused(409, {"detail": "Feedback already exists"})
        self.feedback[body["id"]] = body
        return Response.of(body)

    def _update(self, request: Request) -> Response:
        held = self.feedback.get(request.path.removeprefix(f"{_FEEDBACK}/"))
        changes = request.json()
        if held is None:
            raise Refused(404, {"detail": "Feedback not found"})
        if not changes.keys() <= {"score", "value", "correction", "comment"}:
            raise Refused(422, {"detail": "unknown field"})
        held.update(changes)
        return Response.of({"message": "feedback updated"})


def _is_start(start_time: Any, span: Any) -> bool:
    if not isinstance(start_time, str):
        return False
    since = datetime.fromisoformat(start_time) - _EPOCH
    return since // timedelta(microseconds=1) == span.start_time_unix_nano // 1000


def run_id(span_id: bytes) -> str:
    """Return the id of the run that a span becomes."""
    return str(uuid.UUID(bytes=span_id.rjust(16, b"\x00")))

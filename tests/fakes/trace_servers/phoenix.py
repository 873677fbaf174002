"""Arize Phoenix, as far as a sink uses it, as version 20.26.1 behaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, cast

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from fakes.otlp_receiver import Request, Response, attributes_of
from fakes.trace_servers.base import Refused, TraceServer

_KINDS: Final = frozenset({"LLM", "CODE", "HUMAN"})
_DEFAULT: Final = "default"

Key: TypeAlias = tuple[str, str, str]


class PhoenixServer(TraceServer):
    """Keeps the first of two spans with one id, wherever in the database that is.

    Attributes:
        lag: spans can be annotated after so many further calls of the REST API.
        annotations: what is held, by span or trace, name and identifier.
        queued: annotations that wait for their span.
        projects: the project of each trace, by its id.
    """

    def __init__(self, *, lag: int = 0, api_key: str | None = None) -> None:
        """Begin with nothing; a key turns authentication on."""
        super().__init__(
            path="/v1/traces",
            on_repeat="first",
            accepted=Response(headers={"content-type": "application/x-protobuf"}),
            routes={
                ("POST", "/v1/span_annotations"): lambda request: self._annotate(request, "span"),
                ("POST", "/v1/trace_annotations"): lambda request: self._annotate(request, "trace"),
            },
        )
        self.lag = lag
        self.annotations: dict[Key, dict[str, Any]] = {}
        self.queued: list[dict[str, Any]] = []
        self.projects: dict[str, str] = {}
        self._api_key = api_key
        self._unknown: dict[bytes, int] = {}

    def refuse(self, request: Request) -> None:
        authorization = request.headers.get("authorization")
        if self._api_key is not None and authorization != f"Bearer {self._api_key}":
            raise Refused(401, "Invalid token")

    def refuse_export(self, request: Request) -> None:
        if request.headers.get("content-type") != "application/x-protobuf":
            raise Refused(415, "Unsupported content type")
        try:
            export = ExportTraceServiceRequest.FromString(request.body)
        except (DecodeError, ValueError):
            raise Refused(422, "Request body is invalid ExportTraceServiceRequest") from None
        for resource in export.resource_spans:
            named = attributes_of(resource.resource).get("openinference.project.name", _DEFAULT)
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.projects.setdefault(span.trace_id.hex(), named)

    def _keep(self, spans: Sequence[Any]) -> None:
        stored_ids = {span.span_id for span in self.spans}
        fresh: list[Any] = []
        for span in spans:
            if span.span_id not in stored_ids:
                stored_ids.add(span.span_id)
                fresh.append(span)
        super()._keep(fresh)
        self._unknown |= {span.span_id: self.lag for span in fresh}

    # -- annotations ---------------------------------------------------------------------------

    def _annotate(self, request: Request, what: str) -> Response:
        annotations = [_checked(one, what) for one in cast(list[Any], request.json()["data"])]
        stored_ids = self._ids_of(what)
        self._unknown = {one: max(0, left - 1) for one, left in self._unknown.items()}
        if any(one["name"] == "note" for one in annotations):
            raise Refused(400, "The name 'note' is reserved for trace and span notes.")
        if request.query.get("sync") != ["true"]:
            self.queued += annotations
            return Response.of({"data": []})
        missing = [one[f"{what}_id"] for one in annotations if one[f"{what}_id"] not in stored_ids]
        if missing:
            raise Refused(404, f"{what.title()}s with IDs {', '.join(missing)} do not exist.")
        return Response.of({"data": [{"id": self._hold(one, what)} for one in annotations]})

    def settle(self) -> None:
        """Attach what is queued to the spans and traces that are there now."""
        waiting, self.queued = self.queued, []
        for one in waiting:
            what = "span" if "span_id" in one else "trace"
            if one[f"{what}_id"] in self._ids_of(what):
                self._hold(one, what)
            else:
                self.queued.append(one)

    def expire(self) -> None:
        """Let the ten minutes pass for which what is queued waits for its span."""
        self.settle()
        self.queued.clear()

    def _ids_of(self, what: str) -> set[str]:
        ingested = [span for span in self.spans if not self._unknown[span.span_id]]
        return {getattr(span, f"{what}_id").hex() for span in ingested}

    def _hold(self, annotation: dict[str, Any], what: str) -> str:
        key = (annotation[f"{what}_id"], annotation["name"], annotation.get("identifier", ""))
        self.annotations[key] = annotation
        return f"{what}-{list(self.annotations).index(key)}"


def _checked(annotation: dict[str, Any], what: str) -> dict[str, Any]:
    """Return an annotation, or refuse one that the schema does not know."""
    result = cast(dict[str, Any], annotation.get("result") or {})
    if (
        annotation.get("annotator_kind") not in _KINDS
        or not isinstance(annotation.get("name"), str)
        or not isinstance(annotation.get(f"{what}_id"), str)
        or not isinstance(result.get("score", 0.0), int | float)
        or not isinstance(result.get("label", ""), str)
    ):
        raise Refused(422, {"detail": [{"type": "missing"}]})
    return annotation

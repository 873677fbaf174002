"""OpenAPI 3.1 from the route table; `/v1/openapi.json` and `lib-server openapi` show it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from lib_server.bodies import (
    ApprovalList,
    BlobView,
    Decide,
    Empty,
    RunView,
    SessionView,
    TurnView,
)
from lib_server.problems import (
    KINDS,
    MEDIA_TYPE,
    CanonicalErrorBody,
    OpenAIErrorBody,
    ProblemBody,
)
from lib_server.routing import JSON, AnyRoute

_PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")
_TEMPLATE: Final = "#/components/schemas/{model}"
_COMMON: Final = (
    "malformed",
    "foreign_origin",
    "foreign_host",
    "headers_too_large",
    "timeout",
    "internal",
)
_OF_STORE: Final = ("unavailable", "not_started", "overloaded")
_OF_CALLER: Final = ("unauthenticated", "forbidden", "rate_limited")
_OF_BODY: Final = ("too_large", "unsupported_media_type", "invalid")
_MISSING: Final = {
    "agent": "agent_not_found",
    "digest": "blob_not_found",
    "key_id": "key_not_found",
    "model": "agent_not_found",
    "response_id": "run_not_found",
    "run_id": "run_not_found",
    "session_id": "session_not_found",
}
"""The problem that nothing has the id that a parameter of a path is."""

_LEADS_TO: Final[Mapping[type[BaseModel], Mapping[str, str]]] = {
    RunView: {"run_id": "id"},
    TurnView: {"run_id": "run_id"},
    SessionView: {"session_id": "id"},
    BlobView: {"digest": "digest"},
    ApprovalList: {"run_id": "approvals/0/run_id", "key": "approvals/0/key"},
}
"""The parameters of paths that fields of an answer are."""

_BODIES: Final[Mapping[tuple[type[BaseModel], Any], Any]] = {
    (ApprovalList, Decide): {
        "decision": "approve",
        "arguments_digest": "$response.body#/approvals/0/arguments_digest",
    }
}
"""The body of a request that fields of an answer make, by the models of both."""

_ERRORS: Final[Mapping[str, tuple[type[BaseModel], str]]] = {
    "problem": (ProblemBody, MEDIA_TYPE),
    "openai": (OpenAIErrorBody, JSON),
    "a2a": (CanonicalErrorBody, JSON),
}

_Key = tuple[type[BaseModel], JsonSchemaMode]
_Places = Mapping[Any, Mapping[str, Any]]


def problems_of(route: AnyRoute) -> list[str]:
    """Return the codes of all problems that a route may answer with, sorted."""
    codes = {*route.problems, *_COMMON, *_OF_STORE}
    if route.right is not None:
        codes.update(_OF_CALLER)
    if route.right == "any":
        codes.remove("forbidden")
    if route.body is not None or route.content:
        codes.update(_OF_BODY)
    if route.query is not None or route.body is not None:
        codes.add("invalid")
    names = _PARAMETER.findall(route.path)
    if names:
        codes.add("not_found")
    codes.update(_MISSING[name] for name in names if name in _MISSING)
    return sorted(codes)


def document(routes: Sequence[AnyRoute], *, version: str, base_path: str = "") -> dict[str, Any]:
    """Return the document that describes these routes.

    Args:
        routes: of the server.
        version: of the server.
        base_path: where the server is mounted.
    """
    models = sorted(_models(routes), key=lambda key: (key[0].__name__, key[1]))
    places, schemas = models_json_schema(models, ref_template=_TEMPLATE)
    links = _links(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = _PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, places, links)
    return {
        "openapi": "3.1.0",
        "info": {"title": "lib-server", "version": version},
        "servers": [{"url": base_path or "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas.get("$defs", {}),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _models(routes: Iterable[AnyRoute]) -> set[_Key]:
    found: set[_Key] = {(_ERRORS[route.errors][0], "serialization") for route in routes}
    for route in routes:
        if route.query is not None:
            found.add((route.query, "validation"))
        if route.body is not None:
            found.add((route.body, "validation"))
        answers: set[_Key] = {(each, "serialization") for each in route.answers.values() if each}
        found |= answers
    return found


def _links(routes: Iterable[AnyRoute]) -> dict[Any, dict[str, Any]]:
    """Return the operations that an answer leads to, by its model."""
    return {
        model: {
            operation_id(route): _link(model, route)
            for route in routes
            if set(_PARAMETER.findall(route.path)) == fields.keys()
        }
        for model, fields in _LEADS_TO.items()
    }


def _link(model: type[BaseModel], route: AnyRoute) -> dict[str, Any]:
    fields = _LEADS_TO[model]
    parameters = {name: f"$response.body#/{field}" for name, field in fields.items()}
    link: dict[str, Any] = {"operationId": operation_id(route), "parameters": parameters}
    if (body := _BODIES.get((model, route.body))) is not None:
        link["requestBody"] = body
    return link


def _operation(
    route: AnyRoute, places: _Places, links: Mapping[Any, Mapping[str, Any]]
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": operation_id(route),
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": _parameters(route),
        "responses": _responses(route, places, links),
    }
    if route.right is not None:
        operation["security"] = [{"bearer": []}]
        if route.right != "any":
            operation["x-scope"] = route.right
    else:
        operation["security"] = []
    if route.events:
        operation["x-sse-events"] = dict(route.events)
    if route.body is not None:
        content: dict[str, Any] = {JSON: {"schema": places[route.body, "validation"]}}
        operation["requestBody"] = {"required": _needs_body(route.body), "content": content}
    elif route.content:
        schema = {} if route.content == JSON else {"type": "string", "format": "binary"}
        content = {route.content: {"schema": schema}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def operation_id(route: AnyRoute) -> str:
    """Return the name of an operation for generated clients, such as `post_v1_runs`."""
    words = re.findall(r"\w+", f"{route.method} {route.path}")
    if route.path.endswith("/"):
        words.append("slash")
    return "_".join(words).lower()


def _needs_body(model: type[BaseModel]) -> bool:
    return any(field.is_required() for field in model.model_fields.values())


def _parameters(route: AnyRoute) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1, "maxLength": 512},
        }
        for name in _PARAMETER.findall(route.path)
    ]
    query = route.query or Empty
    schema = query.model_json_schema(ref_template=_TEMPLATE)
    for name, each in schema.get("properties", {}).items():
        required = name in schema.get("required", ())
        found.append({"name": name, "in": "query", "required": required, "schema": each})
    for name, header in route.headers.items():
        schema = {"type": "string", "pattern": f"^{header.pattern}$"}
        found.append({"name": name, "in": "header", "description": header.line, "schema": schema})
    return found


def _responses(
    route: AnyRoute, places: _Places, links: Mapping[Any, Mapping[str, Any]]
) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, model in sorted(route.answers.items()):
        response: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        if model is not None:
            response["content"] = {JSON: {"schema": places[model, "serialization"]}}
        if model in links:
            response["links"] = links[model]
        if route.events and status == HTTPStatus.OK:
            response.setdefault("content", {})["text/event-stream"] = {"schema": {}}
        responses[str(status)] = response
    shape, media_type = _ERRORS[route.errors]
    schema = places[shape, "serialization"]
    by_status: dict[int, list[str]] = {}
    for code in problems_of(route):
        by_status.setdefault(KINDS[code].status, []).append(code)
    for status, codes in sorted(by_status.items()):
        response = responses.setdefault(str(status), {})
        response["description"] = ", ".join(codes)
        response.setdefault("content", {})[media_type] = {"schema": schema}
    return responses

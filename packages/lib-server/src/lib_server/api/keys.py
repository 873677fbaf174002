"""`/v1/keys`: the API keys of the server, of which each administrator sees its tenant's."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.types import ASGIApp

from lib_server.auth.keys import ApiKeys, KeyNotFound, KeyRecord
from lib_server.bodies import CreateKey, Empty, KeyList, KeyView, NewKeyView
from lib_server.problems import Problem
from lib_server.routing import AnyRoute, Call, Route, answer


def _keys(call: Call[Any, Any]) -> ApiKeys:
    keys = call.services.keys
    if keys is None:
        raise Problem("unsupported", "this server has no ApiKeyAuthenticator: give it auth=")
    return keys


def _fields(record: KeyRecord) -> dict[str, Any]:
    times = {
        name: None if value is None else datetime.fromtimestamp(value, UTC)
        for name in ("created_at", "expires_at", "revoked_at", "last_used_at")
        for value in [getattr(record, name)]
    }
    owner = {"tenant": record.tenant, "user": record.user, "scopes": sorted(record.scopes)}
    return {"id": record.key_id, "name": record.name, **owner, **times}


async def _of_caller(call: Call[Any, Any]) -> list[KeyRecord]:
    """Return the keys that the caller administers: all, or those of its tenant."""
    tenant = call.principal.tenant
    found = await _keys(call).list()
    return [each for each in found if tenant is None or each.tenant == tenant]


async def _list(call: Call[Empty, None]) -> ASGIApp:
    found = await _of_caller(call)
    return answer(KeyList(keys=[KeyView(**_fields(each)) for each in reversed(found)]))


async def _create(call: Call[Empty, CreateKey]) -> ASGIApp:
    body, own = call.body, call.principal.tenant
    if own is not None and body.tenant not in (None, own):
        detail = "expected the tenant of your own credential, or none"
        raise Problem("invalid", errors=[("/tenant", detail)])
    try:
        new = await _keys(call).create(
            tenant=body.tenant if own is None else own,
            user=body.user,
            scopes=body.scopes,
            name=body.name,
            expires_at=body.expires_at,
        )
    except ValueError as error:
        raise Problem("invalid", str(error)) from None
    return answer(NewKeyView(key=new.key, **_fields(new.record)), 201)


async def _revoke(call: Call[Empty, None]) -> ASGIApp:
    key_id = call.path("key_id")
    found = [each for each in await _of_caller(call) if each.key_id == key_id]
    if not found:
        raise Problem("key_not_found", "no API key has this id")
    try:
        record = await _keys(call).revoke(key_id)
    except KeyNotFound:
        raise Problem("key_not_found", "no API key has this id") from None
    return answer(KeyView(**_fields(record)))


ROUTES: list[AnyRoute] = [
    Route(
        method="GET",
        path="/v1/keys",
        handler=_list,
        summary="List the API keys, newest first, revoked ones too, without their secrets",
        tag="credentials",
        right="admin",
        answers={200: KeyList},
        problems=["unsupported"],
    ),
    Route(
        method="POST",
        path="/v1/keys",
        handler=_create,
        summary="Create an API key; the answer holds it, this once",
        tag="credentials",
        right="admin",
        body=CreateKey,
        answers={201: NewKeyView},
        problems=["unsupported"],
    ),
    Route(
        method="DELETE",
        path="/v1/keys/{key_id}",
        handler=_revoke,
        summary="Revoke an API key for good; every server refuses it a few seconds later",
        tag="credentials",
        right="admin",
        answers={200: KeyView},
        problems=["unsupported"],
    ),
]

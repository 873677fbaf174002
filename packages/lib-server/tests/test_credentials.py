"""`/v1/me` and `/v1/keys`: the caller, and the keys that an administrator may see and change."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from server_kit import OneKey, as_, echo_agent, serving

from lib.events import MemoryEventStore
from lib_server import ApiKeyAuthenticator, ApiKeys, FirstOf, Server
from lib_server.auth.principal import Scope


@asynccontextmanager
async def with_keys(**owners: tuple[str | None, Scope]) -> AsyncGenerator[dict[str, Any]]:
    """Serve, with a key for each of these names; yield a client, and headers by name."""
    store = MemoryEventStore()
    await store.setup()
    keys = ApiKeys(store)
    yielded: dict[str, Any] = {}
    for name, (tenant, scope) in owners.items():
        new = await keys.create(tenant=tenant, scopes=[scope], name=name)
        yielded[name] = {"authorization": f"Bearer {new.key}"}
    auth = FirstOf(ApiKeyAuthenticator(store, max_age_s=0, refusal_step_s=0))
    async with serving(Server(echo_agent(), auth=auth)) as up:
        yield {"client": up.client, **yielded}


async def test_a_caller_sees_its_own_credential_whatever_its_scopes() -> None:
    async with with_keys(ann=("acme", "approve")) as server:
        client: httpx2.AsyncClient = server["client"]
        me = await client.get("/v1/me", headers=server["ann"])
        without = await client.get("/v1/me")

    body = me.json()
    assert (me.status_code, body["tenant"], body["scopes"]) == (200, "acme", ["approve"])
    assert body["key_id"] in server["ann"]["authorization"]
    assert (body["manages_keys"], body["expires_at"]) == (False, None)
    assert (without.status_code, without.json()["code"]) == (401, "unauthenticated")


async def test_a_server_without_credentials_has_no_keys() -> None:
    async with serving(Server(echo_agent())) as up:
        me = (await up.client.get("/v1/me")).json()
        listed = await up.client.get("/v1/keys")

    assert (me["key_id"], me["manages_keys"]) == ("local", False)
    assert me["scopes"] == ["admin", "approve", "read", "run"]
    assert (listed.status_code, listed.json()["code"]) == (501, "unsupported")


async def test_a_key_is_created_shown_once_used_and_revoked() -> None:
    async with with_keys(root=(None, "admin")) as server:
        client: httpx2.AsyncClient = server["client"]
        root = server["root"]
        wanted = {"name": "bot", "tenant": "acme", "user": "bot@acme", "scopes": ["read"]}
        made = await client.post("/v1/keys", json=wanted, headers=root)
        key = made.json()["key"]
        me = await client.get("/v1/me", headers={"authorization": f"Bearer {key}"})
        listed = await client.get("/v1/keys", headers=root)
        revoked = await client.delete(f"/v1/keys/{made.json()['id']}", headers=root)
        again = await client.delete(f"/v1/keys/{made.json()['id']}", headers=root)
        late = await client.get("/v1/me", headers={"authorization": f"Bearer {key}"})

    assert made.status_code == 201
    assert (me.json()["tenant"], me.json()["user"]) == ("acme", "bot@acme")
    assert [each["name"] for each in listed.json()["keys"]] == ["bot", "root"]
    assert key not in listed.text
    assert "digest" not in listed.text
    assert revoked.json()["revoked_at"] is not None
    assert again.json() == revoked.json()
    assert late.status_code == 401


async def test_an_administrator_of_a_tenant_sees_and_changes_its_keys_only() -> None:
    async with with_keys(
        root=(None, "admin"), ann=("acme", "admin"), uma=("umbrella", "read")
    ) as server:
        client: httpx2.AsyncClient = server["client"]
        every = (await client.get("/v1/keys", headers=server["root"])).json()["keys"]
        own = (await client.get("/v1/keys", headers=server["ann"])).json()["keys"]
        ids = {each["name"]: each["id"] for each in every}
        foreign = [
            await client.delete(f"/v1/keys/{key_id}", headers=server["ann"])
            for key_id in (ids["uma"], ids["root"], "nothing12345")
        ]
        made = await client.post("/v1/keys", json={"name": "b"}, headers=server["ann"])
        beyond = [
            await client.post("/v1/keys", json={"tenant": "umbrella"}, headers=server["ann"]),
            await client.get("/v1/keys", headers=server["uma"]),
        ]
        still = await client.get("/v1/me", headers=server["uma"])

    assert [each["name"] for each in own] == ["ann"]
    assert {(each.status_code, each.json()["code"]) for each in foreign} == {(404, "key_not_found")}
    assert made.json()["tenant"] == "acme"
    assert [each.status_code for each in beyond] == [422, 403]
    assert still.status_code == 200


async def test_a_key_that_cannot_be_is_refused() -> None:
    bad: list[dict[str, Any]] = [
        {"scopes": []},
        {"scopes": ["everything"]},
        {"tenant": "../etc"},
        {"user": "a\u0000b"},
        {"name": "x" * 201},
        {"name": "a\nb"},
        {"expires_at": "2020-01-01T00:00:00Z"},
        {"expires_at": "2099-01-01T00:00:00"},
        {"key": "mine"},
    ]
    async with with_keys(root=(None, "admin")) as server:
        client: httpx2.AsyncClient = server["client"]
        answers = [await client.post("/v1/keys", json=b, headers=server["root"]) for b in bad]
        listed = (await client.get("/v1/keys", headers=server["root"])).json()["keys"]

    assert [each.status_code for each in answers] == [422] * len(bad)
    assert len(listed) == 1


async def test_an_authenticator_of_another_kind_has_no_keys() -> None:
    async with serving(Server(echo_agent(), auth=OneKey("admin"))) as up:
        listed = await up.client.get("/v1/keys", headers=as_("acme"))

    assert (listed.status_code, listed.json()["code"]) == (501, "unsupported")

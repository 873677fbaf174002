"""Two tenants at one server, each with what it has seen of the other: no byte crosses.

A seed chooses what each of them does: its own work, and requests that name runs, sessions, calls,
cursors, digests and keys of the other. The answer to such a request is exactly the answer to one
that names nothing, and no answer holds a text that belongs to the other tenant.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import string
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from server_kit import Up, echo_agent, serving, streaming

from lib import Agent, Engine
from lib.events import MemoryBlobStore, MemoryEventStore
from lib.llm import FunctionClient, Message, Reply, ToolCall
from lib.tools import tool
from lib_server import ApiKeyAuthenticator, ApiKeys, Server
from lib_server.auth.keys import NewKey, digest

SEEDS = 100 if os.environ.get("LIB_TEST_LONG") else 3
STEPS = 60
FORGED = ("x-tenant", "x-tenant-id", "x-user", "x-forwarded-user", "x-remote-user", "tenant")
UNSTABLE = {"x-request-id", "date", "content-length"}


@tool(approval=True)
def refund(order: str) -> str:
    """Pay an order back."""
    return f"paid back {order}"


def pays_back(messages: Any) -> Reply | str:
    conversation: list[Message] = list(messages)
    if conversation[-1].role == "tool":
        return "done"
    return Reply(parts=(ToolCall("call-1", "refund", {"order": conversation[-1].text}),))


@dataclass
class Owned:
    """Things that a tenant has made: the other tenant uses them for forging."""

    texts: set[str] = field(default_factory=set[str])
    runs: list[str] = field(default_factory=list[str])
    waiting: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    sessions: list[str] = field(default_factory=list[str])
    uploads: dict[str, bytes] = field(default_factory=dict[str, bytes])
    idempotency: list[str] = field(default_factory=list[str])
    names: list[str] = field(default_factory=list[str])


class Tenant:
    """One tenant's client, which knows all ids of the other tenant."""

    def __init__(self, up: Up, name: str, key: NewKey, dice: random.Random) -> None:
        self.name, self.key, self._up, self._dice = name, key, up, dice
        self.own = Owned(texts={name, f"user@{name}", key.key, key.record.key_id})
        self.other: Tenant
        self._words = 0
        self._written = set[str]()  # texts of the other tenant, in what this one has stored itself

    # -- requests ------------------------------------------------------------------------------

    async def send(
        self, method: str, path: str, headers: dict[str, str] | None = None, **body: Any
    ) -> httpx2.Response:
        """Send a request, at times with headers that claim to be of the other tenant."""
        sent = {"authorization": f"Bearer {self.key.key}", **(headers or {})}
        if self._dice.random() < 0.3:
            sent |= dict.fromkeys(self._dice.sample(FORGED, 2), self.other.name)
            sent["cookie"] = f"key={self.other.key.record.key_id}"
        answer = await self._up.client.request(method, path, headers=sent, **body)
        self.check(answer.text, repr((path, body)))
        self.check(repr(answer.headers), repr(path))
        assert answer.status_code < 500, (method, path, answer.text)
        return answer

    def check(self, seen: str, sent: str) -> None:
        """Fail if a text of the other tenant is seen that this one has not sent itself."""
        others = self.other.own.texts - self._written
        leaked = [each for each in others if each in seen and each not in sent]
        assert not leaked, f"{self.name} has seen {leaked} of {self.other.name}"

    async def compare(
        self, named: str, request: Callable[[str], Awaitable[httpx2.Response]]
    ) -> None:
        """Send a request about an id of the other tenant, and the same about the id of nothing."""
        ghost = self._ghost(named)
        foreign, missing = await request(named), await request(ghost)
        assert facts(foreign, named) == facts(missing, ghost)

    def _ghost(self, named: str) -> str:
        kinds = (string.digits, "abcdef", string.ascii_lowercase, string.ascii_uppercase)
        return "".join(
            next((self._dice.choice(kind) for kind in kinds if char in kind), char)
            for char in named
        )

    def _word(self) -> str:
        self._words += 1
        word = f"{self.name}-word-{self._words}-{self._dice.getrandbits(64):016x}"
        self.own.texts.add(word)
        return word

    def _picked(self, of: list[Any]) -> Any:
        return self._dice.choice(of) if of else None

    # -- its own work --------------------------------------------------------------------------

    async def start(self) -> None:
        agent, key = self._dice.choice(["echo", "payer"]), self._word()
        mine = self._picked(self.other.own.idempotency) if self._dice.random() < 0.5 else None
        headers = {"idempotency-key": mine or key}
        body = {"agent": agent, "input": self._word()}
        answer = await self.send("POST", "/v1/runs", headers, json=body)
        if mine is None:
            self.own.idempotency.append(key)
        else:
            assert answer.status_code in {201, 422}, answer.text  # 422: it has used it before
        if answer.status_code == 201:
            run = answer.json()
            assert run["tenant"] == self.name
            self._made(run["id"], agent)
            await self._settled(run["id"])

    async def start_named(self) -> None:
        """Start a run under a name of the body, which both tenants use for their own."""
        name = self._picked(self.other.own.names) or f"shared-{self._dice.getrandbits(32)}"
        body = {"agent": "echo", "input": "the same", "key": name}
        answer = await self.send("POST", "/v1/runs", json=body)
        if answer.status_code == 201:
            self.own.names.append(name)
            self._made(answer.json()["id"], "echo")
        assert answer.json()["id"] in self.own.runs

    def _made(self, run_id: str, agent: str) -> None:
        assert run_id not in self.other.own.runs
        self.own.runs.append(run_id)
        self.own.texts.add(run_id)

    async def _settled(self, run_id: str) -> None:
        """Wait until a run has ended, or waits for a person."""
        stream = {"authorization": f"Bearer {self.key.key}"}
        async with streaming(self._up.client, f"/v1/runs/{run_id}/events", **stream) as events:
            async for event in events:
                self.check(repr(event), "")
                if event.event == "lib.approval.requested":
                    break
        page = (await self.send("GET", f"/v1/runs/{run_id}/approvals")).json()["approvals"]
        self.own.waiting += page
        self.own.texts |= {each["arguments_digest"] for each in page}

    async def look(self) -> None:
        """Read all lists, page by page: they hold what is its own, and all of it."""
        found: list[str] = []
        cursor = ""
        while cursor is not None:
            query = f"&cursor={cursor}" if cursor else ""
            page = (await self.send("GET", f"/v1/runs?limit=7&roots=true{query}")).json()
            assert {each["tenant"] for each in page["runs"]} <= {self.name}
            found += [each["id"] for each in page["runs"] if each["agent"] in {"echo", "payer"}]
            cursor = page["next_cursor"]
        assert set(found) >= set(self.own.runs)
        listed = (await self.send("GET", "/v1/approvals?limit=200")).json()["approvals"]
        assert {each["run_id"] for each in listed} <= set(self.own.runs)
        assert (await self.send("GET", "/v1/unknown-calls")).json()["calls"] == []

    async def decide(self) -> None:
        call = self._picked(self.own.waiting)
        if call is not None:
            self.own.waiting.remove(call)
            path = f"/v1/runs/{call['run_id']}/approvals/{call['key']}"
            body = {
                "decision": self._dice.choice(["approve", "deny"]),
                "arguments_digest": call["arguments_digest"],
                "comment": self._word(),
            }
            assert (await self.send("POST", path, json=body)).status_code == 200

    async def score(self) -> None:
        if run := self._picked(self.own.runs):
            digest_ = self._any_digest()
            self._written.add(digest_)
            reference = {"blob": {"sha256": digest_, "size": 3, "media_type": "a/b"}}
            body = {"name": "n", "value": True, "comment": f"{self._word()} {reference}"}
            await self.send("POST", f"/v1/runs/{run}/scores", json=body)

    async def talk(self) -> None:
        if not self.own.sessions or self._dice.random() < 0.3:
            body = {"agent": "echo"}
            made = (await self.send("POST", "/v1/sessions", json=body)).json()
            self.own.sessions.append(made["id"])
            self.own.texts.add(made["id"])
        path = f"/v1/sessions/{self._picked(self.own.sessions)}/messages"
        answer = await self.send("POST", path, json={"input": self._word()})
        if answer.status_code == 202:
            turn = answer.json()
            self.own.texts |= {turn["id"], turn["run_id"]}
            await self._settled(turn["run_id"])
            await self.send("GET", path)

    async def upload(self) -> None:
        content = self._word().encode() * 200
        headers = {"content-type": "text/plain"}
        digest_ = (await self.send("POST", "/v1/blobs", headers, content=content)).json()["digest"]
        self.own.uploads[digest_] = content
        self.own.texts.add(digest_)
        again = await self.send("GET", f"/v1/blobs/{digest_}")
        assert again.content == content

    # -- what it tries with things of the other tenant -----------------------------------------

    def _any_digest(self) -> str:
        return self._picked(list(self.other.own.uploads)) or "0" * 64

    async def forge_run(self) -> None:
        if (run := self._picked(self.other.own.runs)) is None:
            return
        key = self._dice.choice(["llm/1/tools/0", *(c["key"] for c in self.other.own.waiting)])
        decision = {"decision": "approve", "arguments_digest": "0" * 64}
        for call in self.other.own.waiting:
            decision["arguments_digest"] = call["arguments_digest"]
        place = {"last-event-id": str(self._dice.choice([0, 1, 3, 10**6]))}
        stream = {"accept": "text/event-stream", **place}
        score = {"name": "n", "value": 1.0}
        forgeries: list[tuple[str, str, dict[str, str] | None, dict[str, Any]]] = [
            ("GET", "", None, {}),
            ("GET", "/result", None, {}),
            ("GET", "/events", None, {}),
            ("GET", "/events", stream, {}),
            ("GET", "/events?after=1", place, {}),
            ("POST", "/cancel", None, {"json": {}}),
            ("GET", "/approvals", None, {}),
            ("POST", f"/approvals/{key}", None, {"json": decision}),
            ("POST", f"/unknown-calls/{key}", None, {"json": {"happened": True}}),
            ("GET", "/scores", None, {}),
            ("POST", "/scores", None, {"json": score}),
        ]
        method, path, headers, body = self._dice.choice(forgeries)
        await self.compare(
            run, lambda named: self.send(method, f"/v1/runs/{named}{path}", headers, **body)
        )

    async def forge_call(self) -> None:
        """Decide a call of its own run by key and digest of the other tenant's."""
        mine, theirs = self._picked(self.own.waiting), self._picked(self.other.own.waiting)
        if mine is not None and theirs is not None:
            body = {"decision": "approve", "arguments_digest": theirs["arguments_digest"]}
            path = f"/v1/runs/{mine['run_id']}/approvals/{mine['key']}"
            answer = await self.send("POST", path, json=body)
            assert answer.json()["code"] == "digest_mismatch"

    async def forge_session(self) -> None:
        ids = [*self.other.own.sessions, *self.other.own.runs]
        if named := self._picked(ids):
            forgeries: list[tuple[str, str, dict[str, Any]]] = [
                ("GET", "", {}),
                ("GET", "/messages", {}),
                ("POST", "/messages", {"json": {"input": "hi"}}),
                ("DELETE", "", {}),
            ]
            method, path, body = self._dice.choice(forgeries)
            await self.compare(
                named, lambda each: self.send(method, f"/v1/sessions/{each}{path}", **body)
            )

    async def forge_cursor(self) -> None:
        named = self._picked([*self.other.own.runs, *self.other.own.sessions])
        if named is not None:
            query = self._dice.choice(
                [
                    "runs?cursor={}",
                    "runs?order=oldest&limit=1&cursor={}",
                    "runs?session={}",
                    "runs?session={}&cursor={}",
                    "runs?agent={}",
                    "approvals?cursor={}",
                    "unknown-calls?limit=1&cursor={}",
                ]
            )
            await self.compare(
                named, lambda each: self.send("GET", f"/v1/{query.replace('{}', each)}")
            )

    async def forge_user(self) -> None:
        await self.compare(
            f"user@{self.other.name}", lambda each: self.send("GET", f"/v1/runs?user={each}")
        )

    async def forge_digest(self) -> None:
        if not self.other.own.uploads:
            return
        named = self._any_digest()
        await self.compare(named, lambda each: self.send("GET", f"/v1/blobs/{each}"))

        async def use(each: str) -> httpx2.Response:
            upload = {"digest": each, "media_type": "text/plain"}
            part = {"type": "file", "upload": upload}
            body = {"agent": "echo", "input": [{"role": "user", "content": [part]}]}
            return await self.send("POST", "/v1/runs", json=body)

        await self.compare(named, use)

    async def forge_key(self) -> None:
        """Send the id of the other tenant's key with its own secret, and that key's digest."""
        theirs, mine = self.other.key, self.key
        spliced = mine.key.replace(mine.record.key_id, theirs.record.key_id)
        for token in (spliced, digest(theirs.key, None), theirs.record.digest, self.other.name):
            answer = await self.send("GET", "/v1/runs", {"authorization": f"Bearer {token}"})
            assert answer.status_code in {401, 429}

    async def forge_body(self) -> None:
        for name in ("tenant", "user", "tenant_id", "parent_id", "run_id"):
            body = {"input": "x", name: self.other.name}
            assert (await self.send("POST", "/v1/runs", json=body)).status_code == 422


def facts(answer: httpx2.Response, named: str) -> tuple[Any, ...]:
    """Return all that an answer shows beside the id that was sent and the id of the request."""
    headers = [(name, value) for name, value in answer.headers.items() if name not in UNSTABLE]
    body: Any = answer.text.replace(named, "ID")
    if "json" in answer.headers.get("content-type", ""):
        body = json.loads(body)
        body.pop("request_id", None)
    return answer.status_code, headers, body


@asynccontextmanager
async def two_tenants(seed: int) -> AsyncGenerator[tuple[Tenant, Tenant]]:
    store = MemoryEventStore()
    payer = Agent(FunctionClient(pays_back), tools=[refund], name="payer")
    agents = [echo_agent(name="echo"), payer]
    engine = Engine(store, agents=agents, blobs=MemoryBlobStore())
    auth = ApiKeyAuthenticator(max_age_s=0, refusal_step_s=0)
    async with serving(Server(engine, auth=auth)) as up:
        keys, made = ApiKeys(store), list[Tenant]()
        for name in ("acme", "umbrella"):
            key = await keys.create(
                tenant=name, user=f"user@{name}", scopes=["read", "run", "approve"]
            )
            made.append(Tenant(up, name, key, random.Random(f"{seed} {name}")))
        first, second = made
        first.other, second.other = second, first
        yield first, second


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_nothing_of_one_tenant_reaches_the_other(seed: int) -> None:
    dice = random.Random(seed)

    async def act(tenant: Tenant) -> None:
        actions = [
            *(tenant.start, tenant.start, tenant.start_named, tenant.look, tenant.decide),
            *(tenant.score, tenant.talk, tenant.upload),
            *(tenant.forge_run, tenant.forge_run, tenant.forge_run, tenant.forge_call),
            *(tenant.forge_session, tenant.forge_cursor, tenant.forge_digest),
            *(tenant.forge_user, tenant.forge_key, tenant.forge_body),
        ]
        await tenant_dice[tenant.name].choice(actions)()

    tenant_dice = {name: random.Random(f"{dice.random()}") for name in ("acme", "umbrella")}
    async with two_tenants(seed) as tenants:
        for tenant in tenants:
            await asyncio.gather(tenant.start(), tenant.talk(), tenant.upload())
        for _ in range(STEPS):
            await asyncio.gather(*(act(tenant) for tenant in tenants))
        for tenant in tenants:
            await tenant.look()

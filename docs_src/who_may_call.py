import asyncio

import httpx2

from lib import Agent
from lib.events import MemoryEventStore
from lib.llm import FunctionClient
from lib_server import ApiKeyAuthenticator, ApiKeys, Server

echo = Agent(FunctionClient(lambda messages: f"You wrote: {messages[-1].text}"), name="echo")


async def main() -> None:
    store = MemoryEventStore()  # or open_store("postgresql://…"): the keys are kept there
    server = Server([echo], store=store, auth=ApiKeyAuthenticator())
    transport = httpx2.ASGITransport(server)  # in place of a socket
    async with server, httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        keys = ApiKeys(store)
        acme = await keys.create(tenant="acme", user="shop", scopes=["read", "run"])
        other = await keys.create(tenant="umbrella", scopes=["read"])

        async def call(method: str, path: str, key: str) -> httpx2.Response:
            headers = {"Authorization": f"Bearer {key}"}
            body = {"agent": "echo", "input": "Where is order 7?"} if method == "POST" else None
            answer = await http.request(method, path, json=body, headers=headers)
            print(method, answer.status_code, *answer.headers.get_list("www-authenticate"))
            return answer

        started = await call("POST", "/v1/runs", acme.key)
        run = f"/v1/runs/{started.json()['id']}"
        await call("GET", run, acme.key)
        await call("GET", run, other.key)  # a run of another tenant is missing
        await call("POST", "/v1/runs", other.key)  # and its key may only read

        await call("GET", run, acme.key[:-1])  # no key at all

        await keys.revoke(acme.record.key_id)
        for record in await keys.list():
            state = "valid" if record.revoked_at is None else "revoked"
            print(record.tenant, record.user, sorted(record.scopes), state)


if __name__ == "__main__":
    asyncio.run(main())

import asyncio

import httpx2

from lib import Agent
from lib.llm import FunctionClient
from lib_server import Server


def agents() -> list[Agent]:
    """Return what `lib-server serve serve_agents:agents` serves."""
    return [Agent(FunctionClient(lambda messages: f"You wrote: {messages[-1].text}"), name="echo")]


async def main() -> None:
    server = Server(agents)
    transport = httpx2.ASGITransport(server)  # in place of a socket
    async with server, httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        order = {"agent": "echo", "input": "Where is order 7?"}
        key = {"Idempotency-Key": "k-7"}
        started = await http.post("/v1/runs", json=order, headers=key)
        again = await http.post("/v1/runs", json=order, headers=key)
        print(started.status_code, again.status_code, again.headers["Idempotent-Replayed"])

        run = f"/v1/runs/{started.json()['id']}"
        result = (await http.get(f"{run}/result", params={"wait_s": 60})).json()
        print(result["outcome"], result["text"])

        stream = await http.get(f"{run}/events?after=2", headers={"Accept": "text/event-stream"})
        print([line for line in stream.text.splitlines() if line.startswith(("id:", "event:"))])

        missing = await http.get("/v1/runs/nothing")
        print(missing.json()["code"])


if __name__ == "__main__":
    asyncio.run(main())

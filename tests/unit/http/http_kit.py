"""A real server that counts its connections, and clients of it."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from lib.errors import InvalidReply, LLMError
from lib.http.client import HTTPClient


class Server(ThreadingHTTPServer):
    """Answers one embedding a text, keeps connections open and knows how many are."""

    daemon_threads = True
    request_queue_size = 100

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.changed = threading.Condition()
        self.connections = self.open = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def count(self, change: int) -> None:
        with self.changed:
            self.open += change
            self.connections += max(change, 0)
            self.changed.notify_all()

    def has_none_open(self) -> bool:
        """Wait until each connection is closed; minutes at most."""
        with self.changed:
            return self.changed.wait_for(lambda: not self.open, 200)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        cast(Server, self.server).count(1)
        super().setup()

    def finish(self) -> None:
        super().finish()
        cast(Server, self.server).count(-1)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if body.get("stream"):
            chunk = {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}
            self.answer("text/event-stream", f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n")
        elif "messages" in body:
            choice = {"message": {"content": "hi"}, "finish_reason": "stop"}
            self.answer("application/json", json.dumps({"choices": [choice]}))
        else:
            texts = range(len(body["input"]))
            data = [{"index": place, "embedding": [1.0, 2.0]} for place in texts]
            self.answer("application/json", json.dumps({"data": data}))

    def answer(self, media_type: str, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Keep quiet."""


def make_client(**options: Any) -> HTTPClient:
    defaults: dict[str, Any] = {"timeout_s": 200.0, "max_bytes": 10_000}
    return HTTPClient(**defaults | options, failure=LLMError, unreadable=InvalidReply)


async def embed(client: HTTPClient, url: str, texts: int = 1) -> int:
    """Return how many embeddings came back."""
    content = json.dumps({"input": ["a"] * texts}).encode()
    async with client.post(url, content, {}) as answer:
        return len(json.loads(await answer.read())["data"])

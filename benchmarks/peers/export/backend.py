"""The backend of `benchmarks/export.py`: run as a program it takes what is posted."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from typing import Any, Self


async def sink() -> None:
    """Take whatever is posted; say on GET /seen how many spans of different ids that were."""
    state: dict[str, Any] = {"bodies": [], "delay_s": 0.0}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            fields = dict(line.lower().partition(": ")[::2] for line in head.decode().split("\r\n"))
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            answer = b""
            if head.startswith(b"GET /seen"):
                answer = json.dumps(seen(state["bodies"])).encode()
                state["bodies"].clear()
            elif head.startswith(b"GET /delay"):
                state["delay_s"] = float(head.split()[1].rpartition(b"/")[2])
            else:
                state["bodies"].append((body, fields.get("content-encoding")))
                await asyncio.sleep(state["delay_s"])  # noqa: TID251 - a backend takes its time
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\n"
                b"content-length: %d\r\n\r\n%b" % (len(answer), answer)
            )

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def seen(bodies: Sequence[tuple[bytes, str | None]]) -> dict[str, int]:
    import zlib

    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    ids: set[bytes] = set()
    for body, encoding in bodies:
        plain = zlib.decompress(body, zlib.MAX_WBITS | 16) if encoding else body
        for resource in ExportTraceServiceRequest.FromString(plain).resource_spans:
            for scope in resource.scope_spans:
                ids.update(span.span_id for span in scope.spans)
    return {"spans": len(ids), "bytes": sum(len(body) for body, _ in bodies)}


class Backend:
    def __enter__(self) -> Self:
        command = [sys.executable, __file__]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout
        self.base = f"http://127.0.0.1:{int(self.process.stdout.readline())}"
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(self.base + path) as answer:
            return json.loads(answer.read() or b"null")

    @property
    def url(self) -> str:
        return f"{self.base}/v1/traces"


if __name__ == "__main__":
    asyncio.run(sink())

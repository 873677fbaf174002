"""Stand-ins for the tracing backends that cannot be had in a test, on real loopback sockets.

Each takes spans over OTLP and scores over its REST API, and is as unpleasant as the real one: what
comes is ingested later, what comes twice is doubled or ignored, orphans vanish. They were written
from the code and the documents of November 2026; Phoenix was run beside its stand-in.
"""

from fakes.trace_servers.base import TraceServer
from fakes.trace_servers.langfuse import LangfuseServer
from fakes.trace_servers.langsmith import LangSmithServer
from fakes.trace_servers.phoenix import PhoenixServer

__all__ = ["LangSmithServer", "LangfuseServer", "PhoenixServer", "TraceServer"]

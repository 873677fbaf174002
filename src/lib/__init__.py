"""Put LLM agents in front of customers: durable runs, one vector contract, traces from the log.

`import lib` loads nothing but this page. Import what you use: `lib.engine`, `lib.llm`,
`lib.tools`, `lib.vector`, `lib.observe`, `lib.ingest`, `lib.events`.
"""

from __future__ import annotations

__version__ = "0.3.1"

__all__ = ["__version__"]

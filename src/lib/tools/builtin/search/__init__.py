"""Web search: one protocol, one provider a file, and the tool that asks a provider."""

from __future__ import annotations

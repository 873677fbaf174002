"""The responses wire of OpenAI, whose server can keep conversations."""

from __future__ import annotations

from lib.llm.responses.client import OpenAIClient

__all__ = ["OpenAIClient"]

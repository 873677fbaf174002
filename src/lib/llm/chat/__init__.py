"""The chat completions wire of OpenAI, which most other servers speak too."""

from __future__ import annotations

from lib.llm.chat.client import ChatClient

__all__ = ["ChatClient"]

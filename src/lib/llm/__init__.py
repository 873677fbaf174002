"""Messages, and the models that answer them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lib.errors import InvalidReply, LLMError, ScriptError, UnsupportedModality
from lib.llm.client import (
    Delta,
    LLMClient,
    Output,
    Reply,
    Stop,
    ToolCallDelta,
    ToolSpec,
    Usage,
    check_modalities,
    reply_from_json,
    reply_to_json,
    usage_from_json,
    usage_to_json,
)
from lib.llm.messages import Message, Role, message_from_json, message_to_json
from lib.llm.parts import (
    Attachment,
    Audio,
    BlobRef,
    File,
    Image,
    Opaque,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    part_from_json,
    part_to_json,
)
from lib.llm.pieces import deltas_of, estimate_tokens
from lib.llm.prices import PriceBook

if TYPE_CHECKING:
    from lib.llm.chat import ChatClient
    from lib.llm.genai_prices import GenAIPrices
    from lib.llm.models import open_client
    from lib.llm.output import output_schema, parse_output
    from lib.llm.responses import OpenAIClient
    from lib.llm.scripted import Call, CutOff, FunctionClient, ScriptedClient

__all__ = [
    "Attachment",
    "Audio",
    "BlobRef",
    "Call",
    "ChatClient",
    "CutOff",
    "Delta",
    "File",
    "FunctionClient",
    "GenAIPrices",
    "Image",
    "InvalidReply",
    "LLMClient",
    "LLMError",
    "Message",
    "Opaque",
    "OpenAIClient",
    "Output",
    "Part",
    "PriceBook",
    "Reply",
    "Role",
    "ScriptError",
    "ScriptedClient",
    "Stop",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolCallDelta",
    "ToolResult",
    "ToolSpec",
    "UnsupportedModality",
    "Usage",
    "check_modalities",
    "deltas_of",
    "estimate_tokens",
    "message_from_json",
    "message_to_json",
    "open_client",
    "output_schema",
    "parse_output",
    "part_from_json",
    "part_to_json",
    "reply_from_json",
    "reply_to_json",
    "usage_from_json",
    "usage_to_json",
]

_LAZY = {
    "Call": "scripted",
    "ChatClient": "chat",
    "CutOff": "scripted",
    "FunctionClient": "scripted",
    "GenAIPrices": "genai_prices",
    "OpenAIClient": "responses",
    "ScriptedClient": "scripted",
    "open_client": "models",
    "output_schema": "output",
    "parse_output": "output",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only what is used is loaded

    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)

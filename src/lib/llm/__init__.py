"""Messages, and the models that answer them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lib._util.lazy import lazy_exports
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
from lib.llm.prices import PriceBook
from lib.llm.replies import deltas_of, estimate_tokens

if TYPE_CHECKING:
    from lib.llm.anthropic import AnthropicClient
    from lib.llm.bedrock import BedrockClient
    from lib.llm.chat import ChatClient
    from lib.llm.gemini import GeminiClient
    from lib.llm.genai_prices import GenAIPrices
    from lib.llm.mistral import MistralClient
    from lib.llm.models import open_client
    from lib.llm.ollama import OllamaClient
    from lib.llm.output import output_schema, parse_output
    from lib.llm.resilient import ResilientClient
    from lib.llm.responses import OpenAIClient
    from lib.llm.scripted import Call, CutOff, FunctionClient, ScriptedClient

__all__ = [
    "AnthropicClient",
    "Attachment",
    "Audio",
    "BedrockClient",
    "BlobRef",
    "Call",
    "ChatClient",
    "CutOff",
    "Delta",
    "File",
    "FunctionClient",
    "GeminiClient",
    "GenAIPrices",
    "Image",
    "InvalidReply",
    "LLMClient",
    "LLMError",
    "Message",
    "MistralClient",
    "OllamaClient",
    "Opaque",
    "OpenAIClient",
    "Output",
    "Part",
    "PriceBook",
    "Reply",
    "ResilientClient",
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

if not TYPE_CHECKING:  # type checkers are to see misspelt names
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "AnthropicClient": "lib.llm.anthropic",
            "BedrockClient": "lib.llm.bedrock",
            "Call": "lib.llm.scripted",
            "ChatClient": "lib.llm.chat",
            "CutOff": "lib.llm.scripted",
            "FunctionClient": "lib.llm.scripted",
            "GeminiClient": "lib.llm.gemini",
            "GenAIPrices": "lib.llm.genai_prices",
            "MistralClient": "lib.llm.mistral",
            "OllamaClient": "lib.llm.ollama",
            "OpenAIClient": "lib.llm.responses",
            "ResilientClient": "lib.llm.resilient",
            "ScriptedClient": "lib.llm.scripted",
            "open_client": "lib.llm.models",
            "output_schema": "lib.llm.output",
            "parse_output": "lib.llm.output",
        },
    )

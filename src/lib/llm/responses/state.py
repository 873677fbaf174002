"""The handle on a conversation that a server keeps, and the errors that say it is gone.

A handle is `{"id": the response's id, "server": the host that gave it}`. OpenAI answers one that it
does not know with 400 and the code `previous_response_not_found`, one of an organization without
retention with 400 about the parameter, others with 404.

Source: OpenAI, "Conversation state" (developers.openai.com, 2026-11); errors as
lmstudio-bug-tracker#1188, digitalocean/gradient-python#96 and microsoft/vscode#317158 quote them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast

from lib._util.json import parse
from lib.errors import LLMError
from lib.http.failures import reported_error, status_error
from lib.llm.api import fields
from lib.llm.messages import Message

_PARAMETER: Final = "previous_response_id"
_LOST: Final = frozenset({"previous_response_not_found", "previous_response_id_not_found"})
_GONE: Final = frozenset({404, 410})
_UNOPENED: Final = "invalid_encrypted_content"
_WRAPPINGS: Final = 3
_FINAL: Final = frozenset(
    {"bio_policy", "data_residency_mismatch", "empty_image_file", "failed_to_download_image"}
    | {"image_content_policy_violation", "image_file_not_found", "image_file_too_large"}
    | {"image_parse_error", "image_too_large", "image_too_small", "invalid_base64_image"}
    | {"invalid_image", "invalid_image_format", "invalid_image_mode", "invalid_image_url"}
    | {"invalid_prompt", "misalignment_policy_violation", "unsupported_image_media_type"}
)
"""Codes of a failed response that stay true with every attempt."""


def handle(response_id: str, server: str) -> dict[str, Any]:
    """Return the handle on a conversation, for `Reply.state`."""
    return {"id": response_id, "server": server}


def split(
    messages: Sequence[Message], state: Mapping[str, Any] | None, server: str
) -> tuple[str, Sequence[Message]]:
    """Return the id of the response that stands for the first messages, and the other ones.

    A handle of another server, or one after which nothing is new, stands for nothing: "".
    """
    if state is None or state.get("server") != server:
        return "", messages
    covers, previous = state.get("covers"), fields.text(state, "id")
    if not previous or not isinstance(covers, int) or not 0 < covers < len(messages):
        return "", messages
    return previous, messages[covers:]


def refused(
    status: int, start: bytes, headers: Mapping[str, str], now: datetime, *, previous: str
) -> LLMError:
    """Return the error of an answer whose status is not 200.

    Args:
        status: of the answer.
        start: of its content.
        headers: of the answer.
        now: what a date in Retry-After counts from.
        previous: the id that the request went on from, "" for none.
    """
    error = status_error(status, start, headers, now, LLMError)
    lost = status in _GONE or _names_the_handle(_parsed(start))
    error.state_lost = bool(previous) and lost
    return error


def is_unopened(start: bytes) -> bool:
    """Return True if the server refuses reasoning since it cannot open its seal.

    OpenAI does so after a change of organization, and has done so without (openai/codex#8119).
    """
    return any(fields.text(each, "code") == _UNOPENED for each in _wrapped(_parsed(start)))


def reported(report: Any, *, previous: str) -> LLMError:
    """Return the error that a server reports inside of an answer."""
    error = reported_error(report, LLMError)
    if not _FINAL.isdisjoint([fields.text(each, "code") for each in _wrapped(report)]):
        error.retryable = False
    error.state_lost = bool(previous) and (error.status in _GONE or _names_the_handle(report))
    return error


def ignored() -> LLMError:
    """Return the error of a server that has answered without the conversation of the handle."""
    return LLMError("the server does not go on from the response that was named", state_lost=True)


def _parsed(start: bytes) -> Any:
    try:
        return parse(start)
    except (ValueError, RecursionError):
        return None


def _names_the_handle(report: Any) -> bool:
    return any(
        fields.text(each, "code") in _LOST or each.get("param") == _PARAMETER
        for each in _wrapped(report)
    )


def _wrapped(report: Any) -> list[Mapping[str, Any]]:
    """Return the error object and those inside of it, however a server has wrapped it."""
    found: list[Mapping[str, Any]] = []
    while isinstance(report, dict) and len(found) < _WRAPPINGS:
        found.append(cast(Mapping[str, Any], report))
        report = found[-1].get("error")
    return found

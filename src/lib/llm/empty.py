"""Replies that say nothing, and what a model is sent after one. Pure."""

from __future__ import annotations

import re
from typing import Final

from lib.llm.client import Reply
from lib.llm.messages import Message
from lib.llm.parts import Text, Thinking

ASK_AGAIN: Final = Message.user(
    "Your last reply was empty: it had no text and no tool call. Reply again."
)
"""Stands in the conversation instead of the empty reply, which providers refuse; logs hold its
digest, so it never changes."""

# Whitespace, control characters, and what Unicode calls default-ignorable; the Braille blank, too.
_UNSEEN: Final = re.compile(
    "[\\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000e0000-\U000e0fff]*"
)


def is_empty(reply: Reply) -> bool:
    """Tell whether a reply has nothing that a reader could see: at most thinking and whitespace.

    Tool calls and attachments are something, and so is a part of a type that is not known here.
    """
    if not all(isinstance(part, Text | Thinking) for part in reply.parts):
        return False
    return _UNSEEN.fullmatch(reply.text) is not None

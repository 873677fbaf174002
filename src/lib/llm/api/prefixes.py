"""Thinking that is bound to what stands before it in a request.

Claude models from Fable 5.1 on take thinking back only behind the same instructions, tools and
messages. Else the request is refused (accounts since 2026-08-31) or the thinking is dropped, and so
is all thinking behind it. A conversation that only grows keeps that rule; one that a policy has
cut, or whose instructions or tools have changed, does not. So the seal of a reply's thinking has a
digest of the request, and thinking whose digest does not fit any more stays out.

Source: Anthropic, "Preserved thinking" and "Prefix checks on thinking blocks"
(platform.claude.com, 2026-11).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from lib._util.json import canonical
from lib.llm.messages import Message

Block: TypeAlias = dict[str, Any]
_MARKS: Final = frozenset({"cache_control", "cachePoint"})


@dataclass(frozen=True, slots=True)
class Bound:
    """A block of thinking on its way back.

    Attributes:
        block: in the form of the wire.
        prefix: the digest of the request that it answered; "" in older logs, which goes anywhere.
    """

    block: Block
    prefix: str


class Prefix:
    """The digest of a request up to a place, as the request grows; marks of the cache count not."""

    def __init__(self, *conditions: Iterable[Block]) -> None:
        """Begin with the instructions and the tools."""
        self._hash = hashlib.blake2b(digest_size=9)
        self._role = ""
        for number, blocks in enumerate(conditions):
            self.add(f"{number}", blocks)

    def add(self, role: str, blocks: Iterable[Block]) -> None:
        """Take blocks of a message: neighbours of one role are one message, as on the wire."""
        if role != self._role:
            self._role = role
            self._add(role)
        for block in blocks:
            if unmarked := {name: block[name] for name in block if name not in _MARKS}:
                self._add(unmarked)

    def digest(self) -> str:
        """Return the digest of all that was added."""
        return self._hash.hexdigest()

    def _add(self, value: Any) -> None:
        self._hash.update(canonical(value).encode())


def bound_messages(
    entries: Iterable[tuple[str, Sequence[Block | Bound]]], prefix: Prefix, *, needed_from: int
) -> list[Block]:
    """Return the messages without empty ones, neighbours of one role as one.

    Args:
        entries: the role and the blocks of each message.
        prefix: begins with the instructions and the tools; holds the whole request afterwards.
        needed_from: the entry from which on thinking stays whatever stands before it.
    """
    out: list[Block] = []
    for number, (role, blocks) in enumerate(entries):
        kept = _fitting(blocks, prefix, needed=number >= needed_from)
        if not kept:
            continue
        prefix.add(role, kept)
        if out and out[-1]["role"] == role:
            out[-1]["content"].extend(kept)
        else:
            out.append({"role": role, "content": kept})
    return out


def _fitting(blocks: Sequence[Block | Bound], prefix: Prefix, *, needed: bool) -> list[Block]:
    kept: list[Block] = []
    for each in blocks:
        if not isinstance(each, Bound):
            kept.append(each)
        elif needed or each.prefix in ("", prefix.digest()):
            kept.append(each.block)
    return kept


def request_digest(*conditions: Iterable[Block], messages: Iterable[Block]) -> str:
    """Return the digest of a whole request, which its reply's thinking is bound to."""
    prefix = Prefix(*conditions)
    for message in messages:
        prefix.add(message["role"], message["content"])
    return prefix.digest()


def bound_name(name: str, digest: str) -> str:
    """Return the name of a seal with a digest."""
    return f"{name}~{digest}"


def needed_thinking(messages: Sequence[Message], thinking: Mapping[str, Any]) -> int:
    """Return the place from which on thinking has to be sent.

    Models with a budget for thinking (type "enabled") are older. They compare nothing, and
    refuse the results of their calls without the thinking that led to them.
    """
    if thinking.get("type") != "enabled":
        return len(messages)
    places = (at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user")
    return next(places, 0)

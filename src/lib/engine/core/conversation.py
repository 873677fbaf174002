"""A conversation that grows: a persistent sequence of messages with a digest of every prefix.

An append takes constant time and leaves the old value as it was, so a fold can be tried and thrown
away. The digest is a chain, `d[n] = sha256(d[n-1], message[n])`: equal digests mean that the
same messages would be sent, byte for byte, without keeping or hashing them again for every call.
It is computed on demand: most values of a fold are dropped before.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, overload

from lib._util.json import canonical, digest, quoted
from lib.llm import Attachment, Message, ToolResult, message_to_json
from lib.llm.replies import arguments_text

EMPTY_DIGEST = digest()
_RECALLED: Final = "recalled"
_MESSAGE_CHARS: Final = 500  # what takes as long as what is done for a message beside its text


class _Buffer:
    """The storage that histories with a common prefix share: it holds the longest of them.

    Attributes:
        digests: of each prefix of the messages, as far as they were needed.
        stored: the places of the messages whose content a blob store has.
    """

    __slots__ = ("digests", "messages", "stored")

    def __init__(self) -> None:
        """Make an empty one."""
        self.messages: list[Message] = []
        self.digests: list[str] = [EMPTY_DIGEST]
        self.stored: list[int] = []

    def add(self, messages: Iterable[Message]) -> None:
        """Append messages."""
        for message in messages:
            if _is_stored(message):
                self.stored.append(len(self.messages))
            self.messages.append(message)

    def copy(self, size: int) -> _Buffer:
        """Return a buffer of its own for a history of this size."""
        copied = _Buffer()
        copied.messages = self.messages[:size]
        copied.digests = self.digests[: size + 1]
        copied.stored = self.stored[: bisect_left(self.stored, size)]
        return copied


def _is_stored(message: Message) -> bool:
    for part in message.parts:  # noqa: SIM110 - a generator costs more than the rest of it
        if isinstance(part, Attachment) and part.blob is not None:
            return True
    return False


def recalled_message(text: str) -> Message:
    """Return a message for the model with what a memory has recalled.

    It has the user's role, and a mark that this is not what the user says now: guards have checked
    it when it was said, and people are not shown it in a conversation.
    """
    return replace(Message.user(text), extra={_RECALLED: True})


def is_recalled(message: Message) -> bool:
    """Return True if a memory has recalled what the message says."""
    return message.extra.get(_RECALLED) is True


def as_said(message: Message) -> Message:
    """Return a message that comes from outside, without that mark: no input passes by guards."""
    if _RECALLED not in message.extra:
        return message
    others = {name: value for name, value in message.extra.items() if name != _RECALLED}
    return replace(message, extra=others)


def without_calls(messages: Iterable[Message]) -> list[Message]:
    """Return a conversation as another agent can read it, whatever its provider and tools.

    Instructions and thinking are left out; calls and their results stand in the text.
    """
    readable: list[Message] = []
    names: Mapping[str, str] = {}
    for message in messages:
        if message.role == "user":
            readable.append(message)
            continue
        lines = [message.text] if message.role == "assistant" and message.text else []
        lines += [
            f"[called {each.name} with {arguments_text(each)}]" for each in message.tool_calls
        ]
        for part in message.parts:
            if isinstance(part, ToolResult):
                lines.append(f"[{names.get(part.call_id, 'it')} returned: {part.content}]")
        names = {call.id: call.name for call in message.tool_calls} or names
        if lines and readable and readable[-1].role == "assistant":
            lines = [readable.pop().text, *lines]
        if lines:
            readable.append(Message.assistant("\n".join(lines)))
    return readable


class History(Sequence[Message]):
    """An immutable sequence of messages; values with a common prefix share their memory."""

    __slots__ = ("_buffer", "_size")

    def __init__(self, buffer: _Buffer | None = None, size: int = 0) -> None:
        """Make an empty history; within this class, one of the first messages of a buffer."""
        self._buffer = buffer or _Buffer()
        self._size = size

    @property
    def digest(self) -> str:
        """The digest of all its messages."""
        self.hash_incrementally(math.inf)
        return self._buffer.digests[self._size]

    @property
    def stored(self) -> Sequence[int]:
        """The places of the messages that have an attachment whose content a blob store has."""
        places = self._buffer.stored
        return places[: bisect_left(places, self._size)]

    def hash_incrementally(self, most_chars: float) -> bool:
        """Hash some more messages; return True if any are left.

        Args:
            most_chars: stops after so many characters of JSON; a message counts as some hundreds,
                however short, and is hashed whole.
        """
        digests, messages = self._buffer.digests, self._buffer.messages
        while len(digests) <= self._size and most_chars > 0:
            rendered = _rendered(messages[len(digests) - 1])
            digests.append(digest(digests[-1], rendered))
            most_chars -= len(rendered) + _MESSAGE_CHARS
        return len(digests) <= self._size

    def append(self, message: Message) -> History:
        """Return this history with one more message."""
        return self.extend((message,))

    def extend(self, messages: Sequence[Message]) -> History:
        """Return this history with these messages after it."""
        buffer = self._buffer
        # The buffer belongs to the longest value. A branch copies what it shares, unless it adds
        # what is there already: a turn is folded where it is driven, and again for the next one.
        if len(buffer.messages) > self._size and not self._continues_with(messages):
            buffer = buffer.copy(self._size)
        if len(buffer.messages) == self._size:
            buffer.add(messages)
        return History(buffer, self._size + len(messages))

    def _continues_with(self, messages: Sequence[Message]) -> bool:
        """Return True if the buffer continues with these messages, byte for byte."""
        end = self._size + len(messages)
        there = self._buffer.messages[self._size : end]
        if len(there) < len(messages):
            return False
        try:
            return all(
                old is new or _rendered(old) == _rendered(new)
                for old, new in zip(there, messages, strict=True)
            )
        except ValueError:  # a number of too many digits: it cannot be sent, but folded
            return False

    def first(self, count: int) -> History:
        """Return the history of the first messages, all of them if there are no more."""
        return History(self._buffer, min(count, self._size))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Message]:
        return islice(self._buffer.messages, self._size)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        messages = self._buffer.messages
        if isinstance(index, slice):
            return [messages[place] for place in range(self._size)[index]]
        return messages[range(self._size)[index]]


def _rendered(message: Message) -> str:
    """Return the canonical JSON of a message."""
    if len(message.parts) == 1 and not message.extra:
        [part] = message.parts
        # Most messages are results of tools. Spelled out, they take a third of the time.
        if isinstance(part, ToolResult) and not (part.is_error or part.extra):
            call_id, content = quoted(part.call_id), quoted(part.content)
            result = f'{{"call_id":{call_id},"content":{content},"type":"tool_result"}}'
            return f'{{"parts":[{result}],"role":{quoted(message.role)}}}'
    return canonical(message_to_json(message))


@dataclass(frozen=True, slots=True)
class ProviderHandle:
    """A provider's handle on the part of a conversation that it keeps.

    Attributes:
        state: the provider's handle on it, as a reply has brought it.
        covers: how many messages it stands for, from the first one on.
        digest: of these messages. Where others stand in their place, the handle is not used.
    """

    state: Mapping[str, Any]
    covers: int
    digest: str


class Tail(Sequence[Message]):
    """The messages of a history from a place on, without a copy of them."""

    __slots__ = ("_begin", "_history")

    def __init__(self, history: History, begin: int) -> None:
        """Look at a history."""
        self._history, self._begin = history, begin

    def __len__(self) -> int:
        return len(self._history) - self._begin

    def __iter__(self) -> Iterator[Message]:
        return islice(self._history, self._begin, None)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        places = range(self._begin, len(self._history))
        if isinstance(index, slice):
            return tuple([self._history[place] for place in places[index]])
        return self._history[places[index]]


class Conversation(Sequence[Message]):
    """The state that a turn leaves to the next one: messages, digests and provider handle.

    Attributes:
        provider_handle: what a provider keeps of them.
        full: the same messages after the system message that they had, if any: where the next
            turn has it, too, it goes on with this, and nothing is copied or hashed again.
        agent: the member of a swarm that has it, "" for the run's own agent.
        view: what of it was sent last, for the algorithm that has made it; None for all of it.
    """

    __slots__ = ("_messages", "agent", "full", "provider_handle", "view")

    def __init__(
        self,
        messages: Sequence[Message] = (),
        provider_handle: ProviderHandle | None = None,
        *,
        full: History | None = None,
        agent: str = "",
        view: Any = None,
    ) -> None:
        """Keep all that; a `Tail` as it is."""
        self._messages = messages if isinstance(messages, Tail) else tuple(messages)
        self.provider_handle: ProviderHandle | None = provider_handle
        self.full: History | None = full
        self.agent: str = agent
        self.view: Any = view

    def extend(self, messages: Sequence[Message]) -> Conversation:
        """Return these messages and more, of which a provider keeps nothing."""
        full = History().extend(self._messages) if self.full is None else self.full
        before = len(full) - len(self)
        full = full.extend(messages)
        return Conversation(Tail(full, before), full=full, view=self.view)

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        return self._messages[index]


def begin_conversation(
    system: str, history: Sequence[Message], new_messages: Sequence[Message]
) -> tuple[History, ProviderHandle | None]:
    """Return the conversation that a run begins with, and what the provider holds of it.

    Args:
        system: instructions put before it, "" for none.
        history: what went before, a `Conversation` where a provider may hold it.
        new_messages: what comes after it.
    """
    first = [Message.system(system)] if system else []
    provider_handle = full = None
    if isinstance(history, Conversation):
        provider_handle, full = history.provider_handle, history.full
    if full is None or full[: len(full) - len(history)] != first:
        full = History().extend(first).extend(history)
    if (
        provider_handle is not None
        and full.first(provider_handle.covers).digest != provider_handle.digest
    ):
        provider_handle = None
    return full.extend(new_messages), provider_handle

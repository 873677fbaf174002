"""A conversation that grows: a persistent sequence of messages with a digest of every prefix.

An append takes constant time and leaves the old value as it was, so a fold can be tried and thrown
away. The digest is a chain, `d[n] = sha256(d[n-1], message[n])`: equal digests mean that the
same messages would be sent, byte for byte, without keeping or hashing them again for every call.
It is reckoned when somebody asks for it: most values of a fold are gone before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, overload

from lib._util.json import canonical, digest, quoted
from lib.llm import Message, ToolResult, message_to_json

EMPTY_DIGEST = digest()
_MESSAGE_CHARS: Final = 500  # what takes as long as what is done for a message beside its text


class History(Sequence[Message]):
    """An immutable sequence of messages; values that grew from one another share their memory."""

    __slots__ = ("_buffer", "_digests", "_size")

    def __init__(self) -> None:
        """Make an empty history."""
        self._buffer: list[Message] = []
        self._digests = [
            EMPTY_DIGEST
        ]  # of each prefix of the buffer, as far as they were asked for
        self._size = 0

    @property
    def digest(self) -> str:
        """The digest of all its messages."""
        self.reckon(math.inf)
        return self._digests[self._size]

    def reckon(self, most_chars: float) -> bool:
        """Reckon the digest further; tell whether any messages are left.

        Args:
            most_chars: after so many characters of JSON it is enough; a message counts as some
                hundreds, however short, and is not cut.
        """
        known = self._digests
        while len(known) <= self._size and most_chars > 0:
            rendered = _rendered(self._buffer[len(known) - 1])
            known.append(digest(known[-1], rendered))
            most_chars -= len(rendered) + _MESSAGE_CHARS
        return len(known) <= self._size

    def append(self, message: Message) -> History:
        """Return this history with one more message."""
        return self.extend((message,))

    def extend(self, messages: Sequence[Message]) -> History:
        """Return this history with these messages after it."""
        # The buffer belongs to the longest value; a second branch copies what it shares.
        own = len(self._buffer) == self._size
        grown = History()
        grown._buffer = self._buffer if own else self._buffer[: self._size]
        grown._digests = self._digests if own else self._digests[: self._size + 1]
        grown._buffer.extend(messages)
        grown._size = len(grown._buffer)
        return grown

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Message]:
        return iter(self._buffer[: self._size])

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self._buffer[: self._size][index]


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
class Held:
    """What a provider keeps of a conversation.

    Attributes:
        state: the provider's handle on it, as a reply has brought it.
        covers: how many messages it stands for, from the first one on.
        digest: of these messages. Where others stand in their place, the handle is not used.
    """

    state: Mapping[str, Any]
    covers: int
    digest: str


class Conversation(Sequence[Message]):
    """What a turn leaves to the next one: messages, and what is known of them.

    Attributes:
        held: what a provider keeps of them.
        grown: the same messages after the system message that they had, if any: where the next
            turn has it, too, it goes on with this, and nothing is hashed again.
    """

    __slots__ = ("_messages", "grown", "held")

    def __init__(
        self,
        messages: Sequence[Message] = (),
        held: Held | None = None,
        *,
        grown: History | None = None,
    ) -> None:
        """Keep all that."""
        self._messages = tuple(messages)
        self.held = held
        self.grown = grown

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        return self._messages[index]


def begun(
    system: str, history: Sequence[Message], given: Sequence[Message]
) -> tuple[History, Held | None]:
    """Return the conversation that a run begins with, and what the provider holds of it.

    Args:
        system: instructions put before it, "" for none.
        history: what went before, a `Conversation` where a provider may hold it.
        given: what is new.
    """
    first = [Message.system(system)] if system else []
    messages, held = History().extend(first), None
    if isinstance(history, Conversation):
        held, grown = history.held, history.grown
        if grown is not None and grown[: len(grown) - len(history)] == first:
            return grown.extend(given), held
    if held is not None:
        cut = max(held.covers - len(messages), 0)
        messages, history = messages.extend(history[:cut]), history[cut:]
        if messages.digest != held.digest:
            held = None
    return messages.extend(history).extend(given), held

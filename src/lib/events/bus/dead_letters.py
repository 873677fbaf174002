"""Dead letters: events whose deliveries to a group have failed, kept as marks of their runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, unquote

from lib._util.json import canonical, parse
from lib.errors import LibError
from lib.events.event import Event
from lib.events.store import EventStore, Marks, run_mark

_RUNS: Final = "run/"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """An event whose deliveries to a group have failed.

    Attributes:
        error: the type of the handler's exception, or `died` if the process of the handler died.
        message: that of the exception if it is an error of this library: those hold no content.
        deliveries: how often it has been delivered.
        at: when the bus gave up.
    """

    run_id: str
    seq: int
    group: str
    error: str
    message: str
    deliveries: int
    at: datetime

    @classmethod
    def of(
        cls, event: Event, group: str, error: Exception | None, *, deliveries: int, at: datetime
    ) -> DeadLetter:
        """Return the letter of an event; an error of None means that the handler's process died."""
        return cls(
            run_id=event.run_id,
            seq=event.seq,
            group=group,
            error="died" if error is None else type(error).__name__,
            message=str(error) if isinstance(error, LibError) else "",
            deliveries=deliveries,
            at=at,
        )

    @property
    def mark(self) -> str:
        """The name of the mark, which is erased with the run."""
        return run_mark(self.run_id, f"{_folder(self.group)}{self.seq}")

    def encode(self) -> str:
        """Return the value of the mark."""
        at = self.at.isoformat()
        value = {"error": self.error, "message": self.message, "deliveries": self.deliveries}
        return canonical({**value, "at": at})

    @classmethod
    def decode(cls, name: str, text: str, group: str) -> DeadLetter:
        """Return the letter that a mark holds."""
        run_id, _, rest = name.removeprefix(_RUNS).partition("/")
        data: dict[str, Any] = parse(text)
        return cls(
            run_id=unquote(run_id, errors="surrogatepass"),
            seq=int(rest.rpartition("/")[2]),
            group=group,
            error=data["error"],
            message=data["message"],
            deliveries=data["deliveries"],
            at=datetime.fromisoformat(data["at"]),
        )


def _folder(group: str) -> str:
    return f"dead/{quote(group, safe='')}/"


async def dead_letters(store: Marks, group: str) -> list[DeadLetter]:
    """Return the dead letters of a group, oldest first; reads the marks of all runs."""
    found = list[DeadLetter]()
    for name, text in (await store.marks(_RUNS)).items():
        if f"/{_folder(group)}" in name:
            found.append(DeadLetter.decode(name, text, group))
    return sorted(found, key=lambda letter: (letter.at, letter.run_id, letter.seq))


async def add(store: EventStore, letter: DeadLetter) -> None:
    """Store a dead letter, unless its run has been erased."""
    await store.set_mark(letter.mark, letter.encode())
    if await store.run(letter.run_id) is None:  # erased before, or meanwhile without this mark
        await remove(store, letter)


async def replace(store: Marks, letter: DeadLetter, new: DeadLetter) -> None:
    """Replace a dead letter after another failed delivery, unless it has been erased."""
    await store.compare_and_set_mark(letter.mark, expected=letter.encode(), value=new.encode())


async def remove(store: Marks, letter: DeadLetter) -> None:
    """Delete a dead letter, unless it has changed since it was read."""
    await store.compare_and_set_mark(letter.mark, expected=letter.encode(), value=None)


async def remove_erased(store: EventStore, group: str) -> None:
    """Delete the letters of erased runs, which a process leaves that dies inside `add`."""
    for letter in await dead_letters(store, group):
        if await store.run(letter.run_id) is None:
            await remove(store, letter)

"""Events that a group could not be given, kept beside their runs until somebody looks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, unquote

from lib._util.json import canonical, parse
from lib.errors import LibError
from lib.events.event import Event
from lib.events.store import EventStore, run_mark

_RUNS: Final = "run/"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """An event of which the deliveries to a group have failed.

    Attributes:
        error: the type of what its handler raised, or `died` if its process did not survive.
        message: what the error said, of an error of this library: those hold no content.
        deliveries: how often it has been delivered.
        at: when that was given up.
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
        """Return the letter of an event; without an error its process died."""
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
        kept = {"error": self.error, "message": self.message, "deliveries": self.deliveries}
        return canonical({**kept, "at": at})

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


async def bury(store: EventStore, letter: DeadLetter) -> None:
    """Keep a dead letter, unless its run has been erased."""
    await store.set_mark(letter.mark, letter.encode())
    if await store.run(letter.run_id) is None:  # erased before, or meanwhile without this mark
        await store.swap_mark(letter.mark, expected=letter.encode(), value=None)


async def rebury(store: EventStore, letter: DeadLetter, again: DeadLetter) -> None:
    """Keep a dead letter that was delivered again in vain, unless it is gone with its run."""
    await store.swap_mark(letter.mark, expected=letter.encode(), value=again.encode())


async def sweep(store: EventStore, group: str) -> None:
    """Forget the letters of erased runs, which a process left that died while it buried one."""
    for letter in await letters(store, group):
        if await store.run(letter.run_id) is None:
            await unbury(store, letter)


async def unbury(store: EventStore, letter: DeadLetter) -> None:
    """Forget a dead letter, as it was read."""
    await store.swap_mark(letter.mark, expected=letter.encode(), value=None)


async def letters(store: EventStore, group: str) -> list[DeadLetter]:
    """Return the dead letters of a group, by run and place; reads the marks of all runs."""
    found = list[DeadLetter]()
    for name, text in (await store.marks(_RUNS)).items():
        if f"/{_folder(group)}" in name:
            found.append(DeadLetter.decode(name, text, group))
    return sorted(found, key=lambda letter: (letter.at, letter.run_id, letter.seq))

"""Base classes of async context managers: closed when their block ends."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self


class AsyncClosable:
    """Closed by `aclose`, or at the end of `async with`."""

    async def aclose(self) -> None:
        """Release what it holds, by default nothing; safe to repeat."""

    async def __aenter__(self) -> Self:
        """Return the object itself."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close it."""
        await self.aclose()


class AsyncStore:
    """A store: set up at the beginning of `async with`, closed at its end."""

    @abstractmethod
    async def setup(self) -> None:
        """Make the store usable; safe to repeat."""

    @abstractmethod
    async def close(self) -> None:
        """Release what the store holds; safe to repeat."""

    async def aclose(self) -> None:
        """Release what the store holds, as `close` does; safe to repeat."""
        await self.close()

    async def __aenter__(self) -> Self:
        """Set the store up."""
        try:
            await self.setup()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close the store."""
        await self.close()

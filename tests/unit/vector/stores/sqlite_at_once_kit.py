"""Records for the tests of answers from memory, and a store that counts what memory lacked."""

from collections.abc import Callable, Coroutine
from typing import Any

from lib.vector import Record, SQLiteVectorStore
from lib.vector.stores.sqlite.database import Database

RECORDS = [Record(str(row), [1.0, row], f"text {row}", {"x": row % 2}) for row in range(20)]


class CountingStore(SQLiteVectorStore):
    """Counts the visits of queries to the thread of the file.

    Attributes:
        visits: so many.
        before: called before each visit.
    """

    visits = 0

    @staticmethod
    def before() -> None:
        """Do nothing."""

    async def _in_thread(self, work: Callable[[Database], Coroutine[Any, Any, Any]]) -> Any:
        self.visits += 1
        self.before()
        return await super()._in_thread(work)

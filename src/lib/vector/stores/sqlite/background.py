"""Jobs that the thread of a store does in steps, between the calls that come meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor

from lib.errors import StoreError

_log = logging.getLogger("lib.vector")


class Background:
    """The jobs of one thread, at most one for each key.

    A job that fails ends: what it was to save is paid by the calls that come, and they raise its
    error if it is theirs, too. No caller has to wait, and no event loop has to go on.
    """

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        """Take the thread."""
        self._thread = thread
        self._jobs: dict[Hashable, Future[None]] = {}
        self._stopped = False

    def start(self, key: Hashable, step: Callable[[], bool]) -> None:
        """Begin a job, unless it is under way.

        Args:
            key: of the job.
            step: does some of it; returns True if more follows.
        """
        if key not in self._jobs:
            self._jobs[key] = job = Future[None]()
            job.set_running_or_notify_cancel()  # so that no call that waits can cancel it
            self._go_on(key, step)

    def job(self, key: Hashable) -> Future[None] | None:
        """Return the end of a job, if it is under way."""
        return self._jobs.get(key)

    def stop(self) -> None:
        """Begin no further step."""
        self._stopped = True

    def _go_on(self, key: Hashable, step: Callable[[], bool]) -> None:
        try:
            self._thread.submit(self._run, key, step)
        except RuntimeError:  # the thread takes no more calls: the store, or Python, has ended
            self._jobs.pop(key).set_result(None)

    def _run(self, key: Hashable, step: Callable[[], bool]) -> None:
        more = False
        try:
            more = not self._stopped and step()
        except StoreError:  # of a full disk, of a lock: see above
            pass
        except Exception:  # noqa: BLE001 - boundary(job): it has no caller to raise it to
            _log.exception("a background job of a vector store failed")
        if more:
            self._go_on(key, step)
        else:
            self._jobs.pop(key).set_result(None)

"""Qdrant's client: opened, and its errors as errors of `lib`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, cast

import grpc
import httpx
from qdrant_client import AsyncQdrantClient
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from lib.errors import LibError, StoreCorrupt, StoreUnavailable
from lib.http.failures import RETRYABLE
from lib.http.lifetime import watch

_TOO_MANY: Final = 429
_PASSING: Final = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED"}
_HINTS: Final = {
    401: "check the API key",
    403: "check what the API key may do",
    404: "the collection is gone, or this is not a Qdrant server",
    413: "a record is larger than a request may be",
}


def opened(kwargs: dict[str, Any]) -> AsyncQdrantClient:
    """Return a client; it blocks while an in-process one reads its folder.

    Raises:
        StoreUnavailable: another client has locked the folder, or it cannot be read or made.
        StoreCorrupt: what is in the folder is damaged.
        ValueError: the arguments contradict each other.
    """
    # It would ask the server for its version here and now, on this thread, and only warn.
    kwargs = {"check_compatibility": False, "event_hooks": {"response": [watch]}, **kwargs}
    if kwargs.get("path") is not None:
        # It would find out about threads by a connection of SQLite that it leaves open. The store
        # has one thread for an in-process client anyway.
        kwargs = {"force_disable_check_same_thread": True, **kwargs}
    try:
        with damage():
            return AsyncQdrantClient(**kwargs)
    except RuntimeError as error:
        raise StoreUnavailable(
            "the Qdrant folder is in use: one client at a time may open it", retryable=True
        ) from error
    except OSError as error:
        raise StoreUnavailable(
            f"Qdrant's client cannot be opened: {type(error).__name__}, {error.strerror}"
        ) from error


@contextmanager
def typed_errors() -> Generator[None]:
    """Raise what the client raises as `StoreUnavailable`; the server's words are its cause.

    They are not in the message, since they may repeat what was stored.
    """
    try:
        yield
    except UnexpectedResponse as error:
        raise _answered(error.status_code or 0) from error
    except ResourceExhaustedResponse as error:
        raise StoreUnavailable(
            f"the Qdrant server answered {_TOO_MANY}: too many requests",
            status=_TOO_MANY,
            retryable=True,
            retry_after_s=float(error.retry_after_s),
        ) from error
    except ResponseHandlingException as error:
        raise _unanswered(error.source) from error
    except grpc.RpcError as error:
        raise _called(cast(Any, error)) from error
    except LibError:  # some are ValueErrors, too
        raise
    # of a client in process, or of any that is closed
    except (ValueError, RuntimeError, OSError, OverflowError) as error:
        raise StoreUnavailable(
            f"Qdrant's client failed: {type(error).__name__}, its words are the cause of this error"
        ) from error


@contextmanager
def damage() -> Generator[None]:
    """Raise what a client meets in a folder's files as `StoreCorrupt`.

    It reads JSON, pickles and SQLite without looking at what it gets, so anything may come of it;
    by a bare ValueError it refuses its arguments.
    """
    try:
        yield
    except (LibError, OSError, RuntimeError):
        raise
    except Exception as error:
        if type(error) is ValueError:
            raise
        raise StoreCorrupt(
            f"the Qdrant folder is damaged: {type(error).__name__}, the cause holds its words"
        ) from error


def _answered(status: int) -> StoreUnavailable:
    hint = _HINTS.get(status, "the cause of this error holds its words")
    return StoreUnavailable(
        f"the Qdrant server answered {status}: {hint}",
        status=status,
        retryable=status in RETRYABLE or status >= 500,  # noqa: PLR2004 - HTTP
    )


def _unanswered(source: Exception) -> StoreUnavailable:
    if isinstance(source, httpx.TransportError):
        return StoreUnavailable(
            f"the Qdrant server cannot be reached: {type(source).__name__}", retryable=True
        )
    return StoreUnavailable(f"the Qdrant server's answer is unreadable: {type(source).__name__}")


def _called(error: Any) -> StoreUnavailable:
    name = error.code().name
    return StoreUnavailable(
        f"the Qdrant server answered the call with {name}", retryable=name in _PASSING
    )

"""What Chroma and its HTTP client raise, as errors of `lib`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import httpx
from chromadb.errors import ChromaError

from lib.errors import LibError, StoreUnavailable
from lib.wire.failures import RETRYABLE

_HINTS: Final = {
    401: "check the credentials",
    403: "check what the credentials allow",
    404: "the tenant or database is missing, or this is not a Chroma server",
    413: "a record is larger than a request may be",
}


@contextmanager
def typed_errors() -> Generator[None]:
    """Raise what the client raises as `StoreUnavailable`; Chroma's words are its cause.

    They are not in the message, since they may repeat what was stored.
    """
    try:
        yield
    except LibError:
        raise
    except ChromaError as error:
        raise _refused(error) from error
    except httpx.HTTPError as error:
        raise StoreUnavailable(
            f"the Chroma server cannot be reached: {type(error).__name__}", retryable=True
        ) from error
    except OSError as error:
        raise _failed(error) from error
    except (
        ValueError,
        OverflowError,
    ) as error:  # its client raises them for what it did not expect
        raise StoreUnavailable(
            "Chroma's answer is unreadable, or its client refuses the call: "
            "the cause of this error holds its words"
        ) from error
    except Exception as error:
        # Workaround: its client raises this very class for an answer that it does not know.
        if type(error) is not Exception:
            raise
        raise _answered(error.__context__) from error


def _failed(error: OSError) -> StoreUnavailable:
    if isinstance(error, TimeoutError):
        return StoreUnavailable("the Chroma server did not answer in time", retryable=True)
    return StoreUnavailable(
        f"Chroma's folder or server cannot be used: {type(error).__name__}, {error.strerror}"
    )


def _answered(error: BaseException | None) -> StoreUnavailable:
    status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else None
    hint = f": {_HINTS[status]}" if status in _HINTS else ""
    return StoreUnavailable(
        f"what should be a Chroma server answered {status}{hint}",
        status=status,
        retryable=status is not None and _may_pass(status),
    )


def _refused(error: ChromaError) -> StoreUnavailable:
    status = error.code()
    hint = _HINTS.get(status, "the cause of this error holds its words")
    return StoreUnavailable(
        f"Chroma answered {type(error).__name__}: {hint}",
        status=status,
        retryable=_may_pass(status),
    )


def _may_pass(status: int) -> bool:
    return status in RETRYABLE or status >= 500  # noqa: PLR2004 - HTTP

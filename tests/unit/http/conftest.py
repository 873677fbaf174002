"""A server that answers, and the clients that a test makes."""

import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from .http_kit import Server


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[httpx2.AsyncClient]:
    """The clients that have been made."""
    made: list[httpx2.AsyncClient] = []

    class Client(httpx2.AsyncClient):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            made.append(self)

    monkeypatch.setattr(httpx2, "AsyncClient", Client)
    return made

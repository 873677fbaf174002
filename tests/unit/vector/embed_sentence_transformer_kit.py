"""A model for the tests of `SentenceTransformerEmbedder` that records its calls."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np


class Model:
    """Acts as `SentenceTransformer` 6 documents; a vector is the length of its text and a kind."""

    kind = 1.0

    def __init__(self, name: str = "", device: str | None = None) -> None:
        self.name, self.device = name, device
        self.calls: list[tuple[str, list[str], dict[str, Any]]] = []
        self.threads: set[int] = set()
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def encode(self, inputs: Sequence[str], **options: Any) -> Any:
        return self._encode("encode", inputs, options)

    def get_embedding_dimension(self) -> int | None:
        return 2

    def _encode(self, how: str, inputs: Sequence[str], options: dict[str, Any]) -> Any:
        self.calls.append((how, list(inputs), options))
        self.threads.add(threading.get_ident())
        self.begun.set()
        self.gate.wait(5)
        return np.array([[len(text), self.kind] for text in inputs])

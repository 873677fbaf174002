"""The parts that the documentation shows how to write pass the contracts of their kinds."""

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from lib.llm import Message
from lib.observe import Span
from lib.testing.algorithm import AlgorithmContract, World
from lib.testing.sink import OpenSink, SinkContract, SinkKind

PROGRAMS = Path(__file__).parents[2] / "docs_src"


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, PROGRAMS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestReviser(AlgorithmContract):
    def world(self) -> World:
        def answer(messages: Sequence[Message]) -> str:
            return f"answer to {len(messages)} messages"

        return World(
            algorithm=program("own_algorithm").Reviser(), input="Thank Ada.", answer=answer
        )


class TestJSONLinesSink(SinkContract):
    @pytest.fixture
    def kind(self, tmp_path: Path) -> SinkKind:
        path, sink = tmp_path / "spans.jsonl", program("own_sink").JSONLinesSink

        def opened() -> OpenSink:
            path.unlink(missing_ok=True)

            def received() -> str:
                return path.read_text(encoding="utf-8") if path.exists() else ""

            def count(span: Span) -> int:
                lines = [json.loads(line) for line in received().splitlines()]
                return sum(line["span"] == span.span_id for line in lines)

            return OpenSink(sink(path), count, received)

        def broken() -> OpenSink:
            return OpenSink(sink(tmp_path / "missing" / "file"), lambda _: 0, str)

        return SinkKind(open=opened, repeats="append", open_broken=broken, sends_open=False)

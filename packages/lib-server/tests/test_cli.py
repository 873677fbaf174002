"""The command `lib-server`: wrong calls are refused before a port is opened."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from lib_server.cli import main

APP = "def needy(engine):\n    return engine\n\nnumber = 3\n"
EXPECTED = "expected an engine, an agent, several agents, or a function that makes one of them"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("their_app", f"{EXPECTED} as module:name, such as app.agents:make_engine, got"),
        ("not_there:engine", "there is no module 'not_there', neither installed nor in"),
        ("their_app:engine", f"module 'their_app' has no object 'engine': {EXPECTED}"),
        ("their_app:needy", "'needy' of module 'their_app' needs arguments: name a function"),
        ("their_app:number", "int"),
    ],
)
def test_the_error_of_a_wrong_source_names_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "their_app", raising=False)
    (tmp_path / "their_app.py").write_text(APP, encoding="utf-8")

    result = CliRunner().invoke(main, ["serve", source])

    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())

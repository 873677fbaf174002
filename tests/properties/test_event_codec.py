"""Laws of what is stored: it comes back as it was, and equal values are equal bytes."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lib.events import Event
from lib.events.blobs import BlobReference, blob_refs
from lib.events.codec import (
    decode_data,
    decode_time,
    encode_data,
    encode_time,
    event_from_json,
    event_to_json,
)

any_text = st.text(st.characters(exclude_categories=()), max_size=10)  # lone surrogates, too
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | any_text
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner) | st.dictionaries(any_text, inner), max_leaves=20
)
payloads = st.dictionaries(any_text, values, max_size=5)
zones = st.timedeltas(timedelta(hours=-20), timedelta(hours=20)).map(timezone)
moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=zones | st.just(UTC))  # noqa: DTZ001 - bounds of a strategy are naive
references = st.builds(
    BlobReference, st.text("0123456789abcdef", min_size=64, max_size=64), st.integers(0), any_text
)


@given(payloads)
def test_payloads_come_back_as_they_were(payload: dict[str, Any]) -> None:
    text = encode_data(payload)

    assert decode_data(text) == decode_data(text.encode()) == payload
    assert encode_data(decode_data(text)) == text


@given(payloads)
def test_the_order_of_keys_does_not_change_the_encoding(payload: dict[str, Any]) -> None:
    assert encode_data(dict(reversed(payload.items()))) == encode_data(payload)


@given(moments)
def test_times_come_back_in_utc(at: datetime) -> None:
    back = decode_time(encode_time(at))

    assert back == at
    assert back.tzinfo is UTC


@given(moments, moments)
def test_times_sort_like_their_stored_numbers(one: datetime, two: datetime) -> None:
    assert (one < two) == (encode_time(one) < encode_time(two))


@given(
    st.builds(
        Event,
        any_text,
        st.integers(1),
        any_text,
        payloads,
        moments.map(lambda at: at.astimezone(UTC)),
        st.none() | any_text,
        st.none() | any_text,
    )
)
def test_exported_events_come_back_as_they_were(event: Event) -> None:
    assert event_from_json(event_to_json(event)) == event


@given(st.data(), values)
def test_every_blob_reference_in_a_payload_is_found(data: st.DataObject, value: Any) -> None:
    put: list[BlobReference] = []

    def with_references(inner: Any) -> Any:
        if data.draw(st.booleans()):
            put.append(data.draw(references))
            blob = put[-1]
            return {"$blob": blob.digest, "size": blob.size, "type": blob.media_type}
        if isinstance(inner, dict):
            return {key: with_references(item) for key, item in inner.items()}  # pyright: ignore[reportUnknownVariableType] - any JSON
        if isinstance(inner, list):
            return [with_references(item) for item in inner]  # pyright: ignore[reportUnknownVariableType] - any JSON
        return inner

    payload = with_references([value, value])

    assert list(blob_refs("user.note", payload)) == put

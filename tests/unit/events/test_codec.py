"""Payloads as bytes: what is too deep."""

from typing import Any

import pytest

from lib.events.codec import MAX_DEPTH, decode_data, encode_data
from lib.testing.event_store.log import nested


def test_what_was_written_can_be_read_however_deep_the_stack_is() -> None:
    def below(frames: int) -> str:
        return below(frames - 1) if frames else encode_data(nested(MAX_DEPTH))

    assert decode_data(below(500)) == nested(MAX_DEPTH)


def test_brackets_in_text_and_empty_lists_side_by_side_are_not_depth() -> None:
    payload: dict[str, Any] = {"text": "[{" * 1_000, "lists": [[], {}] * 1_000, "pair": ([1], [2])}

    assert decode_data(encode_data(payload)) == {**payload, "pair": [[1], [2]]}


@pytest.mark.parametrize("kind", [list, tuple])
def test_lists_count_as_objects_do(kind: type) -> None:
    value: object = []
    for _ in range(MAX_DEPTH - 1):
        value = kind([value])
    with pytest.raises(ValueError, match="at most 200"):
        encode_data({"in": value})


def test_a_payload_of_an_older_release_that_is_too_deep_to_read_is_damage() -> None:
    levels = 200_000
    with pytest.raises(ValueError, match="too deeply"):
        decode_data('{"in":' * levels + "{}" + "}" * levels)

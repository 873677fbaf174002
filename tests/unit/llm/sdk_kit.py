"""Shared by tests of request bodies: the types of the official SDK, as a judge of them."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import TypeAdapter


class SDKTypes:
    """The parameters of a call as the SDK types them: of a whole answer, and of a stream."""

    def __init__(self, whole: Any, streamed: Any) -> None:
        # Kept, since the iterators that they give die with them.
        self._whole, self._streamed = TypeAdapter[Any](whole), TypeAdapter[Any](streamed)

    def read(self, body: Mapping[str, Any]) -> Any:
        """Return the body as the types let it through, without fields that they do not know."""
        types = self._streamed if body.get("stream") else self._whole
        return _drained(types.validate_python(body))


def _drained(value: Any) -> Any:
    """Pydantic checks an iterable when it is read: read everything, however deep."""
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        return {key: _drained(item) for key, item in fields.items()}
    if isinstance(value, list) or (not isinstance(value, str) and hasattr(value, "__next__")):
        return [_drained(item) for item in cast(Iterator[Any], value)]
    return value

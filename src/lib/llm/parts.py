"""The parts of a message, and the JSON of each.

JSON leaves defaults out. A key that a part does not know is kept in `extra` and written again, a
type of part that this release does not know is kept whole in `Opaque`: what a newer release has
written goes through an older one unharmed.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NoReturn, TypeAlias, TypeVar, cast

A = TypeVar("A", bound="Attachment")


class _Nothing(dict[str, Any]):
    """An `extra` without keys. Nearly all parts share it, so it takes none; its copies do."""

    __slots__ = ()

    def __new__(cls, *items: Any) -> dict[str, Any]:  # `asdict` copies so
        return dict(*items)

    def _refuse(self, *_args: Any, **_more: Any) -> NoReturn:
        raise TypeError("an `extra` cannot be changed: make the part or message again with it")

    __setitem__ = __ior__ = _refuse
    __init__ = setdefault = update = _refuse  # pyright: ignore[reportAssignmentType] - whatever they take

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[()]]:
        return dict, ()


_NOTHING: Final = dict.__new__(_Nothing)


def no_extra() -> dict[str, Any]:
    """Return the `extra` without keys: always the same one, since long logs have many parts."""
    return _NOTHING


@dataclass(frozen=True, slots=True)
class BlobRef:
    """Content that a blob store keeps: `{"$blob": sha256, "size": bytes, "type": media type}`."""

    sha256: str
    size: int
    media_type: str


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text."""

    text: str
    extra: dict[str, Any] = field(default_factory=no_extra, kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """Content beside text, from exactly one source: its bytes, a blob, or a URL.

    Attributes:
        data: the bytes themselves.
        blob: where a blob store keeps them.
        url: where the model's provider can fetch them.
        media_type: such as "image/png"; a blob brings its own, only a URL can do without.

    Raises:
        ValueError: no source or more than one, or bytes without a media type.
    """

    modality: ClassVar[str]

    data: bytes | None = None
    blob: BlobRef | None = None
    url: str | None = None
    media_type: str = ""
    extra: dict[str, Any] = field(default_factory=no_extra)

    def __post_init__(self) -> None:
        sources = [source for source in (self.data, self.blob, self.url) if source is not None]
        if len(sources) != 1:
            raise ValueError(
                f"an attachment has exactly one of data, blob and url, got {len(sources)}"
            )
        if self.blob is not None and not self.media_type:
            object.__setattr__(self, "media_type", self.blob.media_type)
        if self.data is not None and not self.media_type:
            raise ValueError("an attachment of bytes needs a media_type such as 'image/png'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Image(Attachment):
    """A picture."""

    modality: ClassVar[str] = "image"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audio(Attachment):
    """A recording."""

    modality: ClassVar[str] = "audio"


@dataclass(frozen=True, slots=True, kw_only=True)
class File(Attachment):
    """A document, such as a PDF."""

    modality: ClassVar[str] = "file"

    name: str = ""


@dataclass(frozen=True, slots=True)
class Thinking:
    """Text that the model wrote for itself; `signature` is the provider's seal on it, if any."""

    text: str
    signature: str | None = None
    extra: dict[str, Any] = field(default_factory=no_extra, kw_only=True)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool, as the model wrote it.

    Attributes:
        id: pairs the call with its `ToolResult`.
        name: the tool.
        arguments: by parameter name; empty when they could not be read.
        invalid: the argument text as the model wrote it, when it is not a JSON object.
    """

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    invalid: str | None = None
    extra: dict[str, Any] = field(default_factory=no_extra, kw_only=True)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call, or its error."""

    call_id: str
    content: str
    is_error: bool = False
    extra: dict[str, Any] = field(default_factory=no_extra, kw_only=True)


@dataclass(frozen=True, slots=True)
class Opaque:
    """A part of a type that this release does not know, kept as it was found.

    Raises:
        ValueError: it has no type, or one that has a class here.
    """

    data: dict[str, Any]

    def __post_init__(self) -> None:
        if self.type in _READERS:
            raise ValueError(f"{self.type!r} is a part of its own, not an opaque one")

    @property
    def type(self) -> str:
        """The type that the part declares."""
        return _text(self.data, "type")


PROVIDER_BLOCK: Final = "provider_block"
"""The type of an `Opaque` that only the server which wrote it can read; others never see it."""

_TEXT_KEYS: Final = frozenset({"type", "text"})
_THINKING_KEYS: Final = _TEXT_KEYS | {"signature"}
_TOOL_CALL_KEYS: Final = frozenset({"type", "id", "name", "arguments", "invalid"})
_TOOL_RESULT_KEYS: Final = frozenset({"type", "call_id", "content", "is_error"})
_ATTACHMENT_KEYS: Final = frozenset({"type", "data", "blob", "url", "media_type"})

Part: TypeAlias = Text | Image | Audio | File | Thinking | ToolCall | ToolResult | Opaque


def part_to_json(part: Part) -> dict[str, Any]:
    """Return the part as plain data."""
    match part:
        case Opaque(data):
            return dict(data)
        case Text(text):
            return {**part.extra, "type": "text", "text": text}
        case ToolCall():
            return _tool_call_to_json(part)
        case ToolResult():
            return _tool_result_to_json(part)
        case Thinking(text, signature):
            out = {"type": "thinking", "text": text}
            return {**part.extra, **out, **_set_fields(signature=signature)}
        case _:
            return _attachment_to_json(part)


def part_from_json(value: Mapping[str, Any]) -> Part:
    """Return the part that `part_to_json` has written.

    Raises:
        ValueError: it is not an object, has no type, or lacks what its type needs.
    """
    read = _READERS.get(_text(as_object(value), "type"))
    return Opaque(dict(value)) if read is None else read(value)


def _tool_call_to_json(part: ToolCall) -> dict[str, Any]:
    out: dict[str, Any] = {**part.extra, "type": "tool_call", "id": part.id, "name": part.name}
    if part.arguments:
        out["arguments"] = part.arguments
    if part.invalid is not None:
        out["invalid"] = part.invalid
    return out


def _tool_result_to_json(part: ToolResult) -> dict[str, Any]:
    out: dict[str, Any] = {**part.extra, "type": "tool_result", "call_id": part.call_id}
    out["content"] = part.content
    if part.is_error:
        out["is_error"] = True
    return out


def _attachment_to_json(part: Image | Audio | File) -> dict[str, Any]:
    out: dict[str, Any] = {**part.extra, "type": part.modality}
    own_type = part.media_type
    if part.data is not None:
        out["data"] = base64.b64encode(part.data).decode("ascii")
    elif part.blob is not None:
        blob = part.blob
        out["blob"] = {"$blob": blob.sha256, "size": blob.size, "type": blob.media_type}
        own_type = "" if blob.media_type == own_type else own_type
    if isinstance(part, File) and part.name:
        out["name"] = part.name
    return {**out, **_set_fields(url=part.url), **({"media_type": own_type} if own_type else {})}


def as_object(value: Any) -> Mapping[str, Any]:
    """Return the value, which must be a JSON object.

    Raises:
        ValueError: it is something else.
    """
    if value.__class__ is not dict and not isinstance(value, Mapping):  # the first is cheap
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")
    return cast(Mapping[str, Any], value)


def _set_fields(**values: Any) -> dict[str, Any]:
    """Return what is neither None nor False."""
    return {key: value for key, value in values.items() if value is not None and value is not False}


def _text(value: Mapping[str, Any], key: str) -> str:
    found = value.get(key)
    if not isinstance(found, str):
        raise ValueError(f"a part needs the text {key!r}, got {type(found).__name__}")  # noqa: TRY004 - bad data, not a bad call
    return found


def _optional_text(value: Mapping[str, Any], key: str) -> str | None:
    return None if value.get(key) is None else _text(value, key)


def unknown_keys(value: Mapping[str, Any], fields: AbstractSet[str]) -> dict[str, Any]:
    """Return what an object holds beside these keys."""
    if value.keys() <= fields:
        return _NOTHING
    return {key: item for key, item in value.items() if key not in fields}


def _read_text(value: Mapping[str, Any]) -> Part:
    return Text(_text(value, "text"), extra=unknown_keys(value, _TEXT_KEYS))


def _read_thinking(value: Mapping[str, Any]) -> Part:
    return Thinking(
        _text(value, "text"),
        _optional_text(value, "signature"),
        extra=unknown_keys(value, _THINKING_KEYS),
    )


def _read_tool_call(value: Mapping[str, Any]) -> Part:
    arguments = value.get("arguments", {})
    if not isinstance(arguments, dict):
        raise ValueError("the arguments of a tool call are a JSON object")  # noqa: TRY004 - bad data, not a bad call
    return ToolCall(
        _text(value, "id"),
        _text(value, "name"),
        arguments,  # pyright: ignore[reportUnknownArgumentType] - keys of parsed JSON are strings
        _optional_text(value, "invalid"),
        extra=unknown_keys(value, _TOOL_CALL_KEYS),
    )


def _read_tool_result(value: Mapping[str, Any]) -> Part:
    return ToolResult(
        _text(value, "call_id"),
        _text(value, "content"),
        value.get("is_error", False) is True,
        extra=unknown_keys(value, _TOOL_RESULT_KEYS),
    )


def _read_file(value: Mapping[str, Any]) -> Part:
    return _read_attachment(File, value, "name", name=_optional_text(value, "name") or "")


def _read_attachment(kind: type[A], value: Mapping[str, Any], *fields: str, **more: Any) -> A:
    data = _optional_text(value, "data")
    return kind(
        data=None if data is None else base64.b64decode(data, validate=True),
        blob=_read_blob(value.get("blob")),
        url=_optional_text(value, "url"),
        media_type=_optional_text(value, "media_type") or "",
        extra=unknown_keys(value, _ATTACHMENT_KEYS.union(fields)),
        **more,
    )


def _read_blob(value: Any) -> BlobRef | None:
    if value is None:
        return None
    blob = as_object(value)
    size = blob.get("size")
    if type(size) is not int:
        raise ValueError("a blob needs its 'size' in bytes")
    return BlobRef(_text(blob, "$blob"), size, _text(blob, "type"))


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Part]]] = {
    "text": _read_text,
    "image": lambda value: _read_attachment(Image, value),
    "audio": lambda value: _read_attachment(Audio, value),
    "file": _read_file,
    "thinking": _read_thinking,
    "tool_call": _read_tool_call,
    "tool_result": _read_tool_result,
}

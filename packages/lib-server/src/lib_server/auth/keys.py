"""API keys: their format, what a store keeps of them, and creating, listing and revoking them.

    lib_sk_4Vb9dQ0rTzLm_8hX…43 characters…q2kZ1pR7c
    prefix │ id, public  │ secret, 256 bits  │ checksum of all before

A store keeps a digest of the key and never the key. The checksum lets a scanner, and this server,
refuse what was never a key without asking a store. All characters are of one word for a
double-click.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal, cast

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.errors import LibError
from lib.events import Marks
from lib_server.auth.principal import SCOPES, Scope, is_tenant, is_user

PREFIX: Final = "lib_sk"

_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_CHARS: Final = 12
_SECRET_CHARS: Final = 43  # 256 bits
_CHECKSUM_CHARS: Final = 6
_PREFIX: Final = re.compile(r"[a-z][a-z0-9]{0,15}(_[a-z0-9]{1,16}){0,2}")
_MARK: Final = "server/key/"
_USED_MARK: Final = "server/key-used/"
_MIN_PEPPER_BYTES: Final = 16
_MAX_NAME_CHARS: Final = 200

Hashing = Literal["sha256", "hmac-sha256"]


class KeyNotFound(LibError):
    """There is no API key of this id."""

    def __init__(self, key_id: str) -> None:
        self.key_id: str = key_id
        super().__init__(f"there is no API key {key_id!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """An API key as a store keeps it.

    Attributes:
        key_id: public; the only part of a key that is ever logged.
        digest: of the whole key, in hexadecimal.
        hashing: how `digest` is made: with a pepper or without.
        tenant: whose runs its caller sees, None for those of the whole store.
        scopes: what its caller may do.
        name: for people: which program or person holds it.
        created_at: in seconds since 1970, as are the other times.
        expires_at: None for never.
        revoked_at: None as long as it is valid.
        last_used_at: None if it was never used; written every few minutes only.
    """

    key_id: str
    digest: str = field(repr=False)
    hashing: Hashing = "sha256"
    tenant: str | None = None
    user: str | None = None
    scopes: frozenset[Scope] = frozenset()
    name: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just created: `key` is shown once, and kept nowhere."""

    key: str = field(repr=False)
    record: KeyRecord


@dataclass(frozen=True, slots=True)
class ParsedKey:
    """A text of the format of API keys; its digest tells whether it is one."""

    key_id: str
    key: str = field(repr=False)


class ApiKeys:
    """The API keys of an event store, to create, list, rotate and revoke them."""

    def __init__(
        self,
        store: Marks,
        *,
        prefix: str = PREFIX,
        pepper: bytes | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Prepare.

        Args:
            store: the event store, which is set up.
            prefix: of all keys, such as one for each environment.
            pepper: a secret of at least 16 bytes outside of the store; with it, who reads the store
                cannot even test a guess. Servers need the same one.
            clock: for times of creation and revocation.

        Raises:
            ValueError: the prefix or the pepper is not as it has to be.
        """
        check_format(prefix, pepper)
        self._store, self._prefix, self._pepper, self._clock = store, prefix, pepper, clock

    async def create(
        self,
        *,
        tenant: str | None = None,
        user: str | None = None,
        scopes: Collection[Scope] = ("read", "run"),
        name: str = "",
        metadata: Mapping[str, Any] | None = None,
        expires_at: datetime | None = None,
    ) -> NewKey:
        """Create a key and keep its digest; the returned key cannot be had again.

        Raises:
            ValueError: an argument is not as it has to be; the message says which.
        """
        _check_owner(tenant, user, scopes, name)
        now = self._clock.now().timestamp()
        if expires_at is not None and expires_at.timestamp() <= now:
            raise ValueError("expected a time in the future as expires_at")
        new = new_key(self._prefix)
        record = KeyRecord(
            key_id=new.key_id,
            digest=digest(new.key, self._pepper),
            hashing="sha256" if self._pepper is None else "hmac-sha256",
            tenant=tenant,
            user=user,
            scopes=frozenset(scopes),
            name=name,
            metadata=dict(metadata or {}),
            created_at=now,
            expires_at=None if expires_at is None else expires_at.timestamp(),
        )
        await self._store.set_mark(key_mark(new.key_id), encode(record))
        return NewKey(new.key, record)

    async def list(self) -> list[KeyRecord]:
        """Return all keys, revoked ones too, in the order of their creation."""
        used = await self._store.marks(_USED_MARK)
        records = [decode(value) for value in (await self._store.marks(_MARK)).values()]
        with_use = [replace(each, last_used_at=_time_of(used, each.key_id)) for each in records]
        return sorted(with_use, key=lambda record: (record.created_at, record.key_id))

    async def rotate(self, key_id: str, *, old_expires_at: datetime) -> NewKey:
        """Create a key in the place of another, which stays valid until a time: both are live.

        Raises:
            KeyNotFound: there is no such key.
            ValueError: it has been revoked or has expired.
        """
        old = await self._get(key_id)
        now, end = self._clock.now().timestamp(), old_expires_at.timestamp()
        if old.revoked_at is not None or (old.expires_at is not None and old.expires_at <= now):
            raise ValueError(
                f"expected a valid API key, got {key_id!r}, which is revoked or expired"
            )
        new = await self.create(
            tenant=old.tenant,
            user=old.user,
            scopes=old.scopes,
            name=old.name,
            metadata=old.metadata,
        )
        expires_at = end if old.expires_at is None else min(end, old.expires_at)
        await self._change(key_id, expires_at=expires_at)
        return new

    async def revoke(self, key_id: str) -> KeyRecord:
        """Revoke a key for good; of one that is revoked already, nothing changes.

        Each server refuses it a few seconds later at the latest: see `ApiKeyAuthenticator`.

        Raises:
            KeyNotFound: there is no such key.
        """
        record = await self._get(key_id)
        if record.revoked_at is not None:
            return record
        return await self._change(key_id, revoked_at=self._clock.now().timestamp())

    async def _get(self, key_id: str) -> KeyRecord:
        value = await self._store.mark(key_mark(key_id))
        if value is None:
            raise KeyNotFound(key_id)
        return decode(value)

    async def _change(self, key_id: str, **changes: Any) -> KeyRecord:
        """Change a record as it is then, also if others change it meanwhile."""
        name = key_mark(key_id)
        while (value := await self._store.mark(name)) is not None:
            changed = replace(decode(value), **changes)
            if await self._store.compare_and_set_mark(name, expected=value, value=encode(changed)):
                return changed
        raise KeyNotFound(key_id)


# -- format ----------------------------------------------------------------------------------------


def new_key(prefix: str) -> ParsedKey:
    """Return a new random key."""
    key_id, secret = _random(_ID_CHARS), _random(_SECRET_CHARS)
    body = f"{prefix}_{key_id}_{secret}"
    return ParsedKey(key_id, body + _checksum(body))


def parse_key(text: str, prefix: str) -> ParsedKey | None:
    """Return the parts of a text of the format of keys with a right checksum, else None."""
    length = len(prefix) + 1 + _ID_CHARS + 1 + _SECRET_CHARS + _CHECKSUM_CHARS
    if len(text) != length or not text.isascii() or not text.startswith(f"{prefix}_"):
        return None
    key_id, separator, rest = text[len(prefix) + 1 :].partition("_")
    if len(key_id) != _ID_CHARS or not separator or not (key_id + rest).isalnum():
        return None
    body, checksum = text[:-_CHECKSUM_CHARS], text[-_CHECKSUM_CHARS:]
    return ParsedKey(key_id, text) if checksum == _checksum(body) else None


def digest(key: str, pepper: bytes | None) -> str:
    """Return what a store keeps of a key, in hexadecimal.

    The secret has 256 random bits: no slow hash is needed to protect it, and one would be a lever
    for keeping the server busy.
    """
    if pepper is None:
        return hashlib.sha256(key.encode()).hexdigest()
    return hmac.digest(pepper, key.encode(), "sha256").hex()


def check_format(prefix: str, pepper: bytes | None) -> None:
    """Raise a ValueError for a prefix or a pepper that cannot be used."""
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"expected a prefix such as {PREFIX!r} or 'acme_live', got {prefix!r}")
    if pepper is not None and len(pepper) < _MIN_PEPPER_BYTES:
        raise ValueError(f"expected a pepper of at least {_MIN_PEPPER_BYTES} bytes")


def _random(chars: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(chars))


def _checksum(body: str) -> str:
    """Return the CRC-32 of a text, as digits of base 62."""
    number, digits = zlib.crc32(body.encode()), ""
    for _ in range(_CHECKSUM_CHARS):
        number, remainder = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[remainder] + digits
    return digits


# -- records ---------------------------------------------------------------------------------------


def key_mark(key_id: str) -> str:
    """Return the name of the mark with the record of a key."""
    return _MARK + key_id


def used_mark(key_id: str) -> str:
    """Return the name of the mark with the last use of a key, in seconds since 1970."""
    return _USED_MARK + key_id


def encode(record: KeyRecord) -> str:
    """Return the text of a record; its last use is a mark of its own."""
    fields = {name: getattr(record, name) for name in KeyRecord.__slots__}
    fields["scopes"] = sorted(record.scopes)
    fields["metadata"] = dict(record.metadata)
    del fields["last_used_at"]
    return json.dumps({"version": 1, **fields}, sort_keys=True, allow_nan=False)


def decode(text: str) -> KeyRecord:
    """Return the record of a text; members that a later release adds are left out."""
    fields = cast(dict[str, Any], json.loads(text))
    kept = {name: fields[name] for name in KeyRecord.__slots__ if name in fields}
    kept["scopes"] = frozenset(kept["scopes"]) & SCOPES
    return KeyRecord(**kept)


def _time_of(marks: Mapping[str, str], key_id: str) -> float | None:
    value = marks.get(used_mark(key_id))
    return None if value is None else float(value)


def _check_owner(tenant: str | None, user: str | None, scopes: Collection[str], name: str) -> None:
    if tenant is not None and not is_tenant(tenant):
        raise ValueError(f"expected a tenant of A-Z, a-z, 0-9, '_', '.' and '-', got {tenant!r}")
    if user is not None and not is_user(user):
        raise ValueError(f"expected a user of 1 to 256 printable characters, got {user!r}")
    if not scopes or not SCOPES.issuperset(scopes):
        raise ValueError(f"expected scopes of {sorted(SCOPES)}, got {sorted(scopes)}")
    if name and (len(name) > _MAX_NAME_CHARS or not name.isprintable()):
        raise ValueError(f"expected a name of at most {_MAX_NAME_CHARS} printable characters")

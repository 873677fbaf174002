"""Authenticates callers by API keys whose records the event store keeps."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from lib._util.clock import SYSTEM_CLOCK, Clock
from lib.errors import StoreError
from lib.events import Marks
from lib_server.auth.keys import (
    PREFIX,
    ApiKeys,
    KeyRecord,
    ParsedKey,
    check_format,
    decode,
    digest,
    encode,
    key_mark,
    new_key,
    parse_key,
    used_mark,
)
from lib_server.auth.principal import (
    AuthenticationUnavailable,
    Authenticator,
    FirstOf,
    Principal,
    Unauthenticated,
    bearer_token,
)

MAX_AGE_S: Final = 5.0
MAX_CACHED: Final = 4096
LAST_USE_S: Final = 300.0
REFUSAL_STEP_S: Final = 0.01
RETRY_AFTER_S: Final = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Cached:
    record: KeyRecord
    read_at: float


class ApiKeyAuthenticator:
    """Compares keys in constant time with what the event store keeps of them.

    A record is read from the store at most every `max_age_s`, so that a revocation is seen by every
    process within that time. An admission may come from memory. Each refusal of a wrong secret or
    an unknown id reads the store once, makes the same comparisons, and takes a multiple of
    `refusal_step_s`: the two look alike. A key that was just created is valid at once.
    """

    def __init__(
        self,
        store: Marks | None = None,
        *,
        prefix: str = PREFIX,
        pepper: bytes | None = None,
        max_age_s: float = MAX_AGE_S,
        max_cached: int = MAX_CACHED,
        last_use_s: float = LAST_USE_S,
        refusal_step_s: float = REFUSAL_STEP_S,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Prepare.

        Args:
            store: the event store, which is set up before the first request; None for the server's.
            prefix: of all keys.
            pepper: as the keys were created with; keys without one stay valid.
            max_age_s: how old a record may be that admits a caller; 0 to read it each time.
            max_cached: how many records are kept in memory.
            last_use_s: how often the last use of a key is written, in the background.
            refusal_step_s: refusals take a multiple of it; 0 for as long as they take.
            clock: for times.

        Raises:
            ValueError: the prefix or the pepper is not as it has to be.
        """
        check_format(prefix, pepper)
        self._store, self._prefix, self._pepper, self._clock = store, prefix, pepper, clock
        self._max_age_s, self._max_cached = max_age_s, max_cached
        self._last_use_s, self._refusal_step_s = last_use_s, refusal_step_s
        self._records = OrderedDict[str, _Cached]()
        self._noted = OrderedDict[str, float]()
        self._unwritten = dict[str, float]()
        self._writing: asyncio.Task[None] | None = None
        dummy = new_key(prefix)
        # Takes the place of a missing record; no key has its digest.
        self._dummy = KeyRecord(key_id=dummy.key_id, digest=digest(dummy.key, None), created_at=0.0)
        self._dummy_text: str = encode(self._dummy)

    def __repr__(self) -> str:
        """Return the prefix of the keys."""
        return f"ApiKeyAuthenticator(prefix={self._prefix!r})"

    def recognizes(self, token: str) -> bool:
        """Return True if the token begins like a key."""
        return token.startswith(f"{self._prefix}_")

    async def authenticate(self, authorization: str | None) -> Principal:
        """Return the caller that holds this key; see `Authenticator`."""
        began = self._clock.monotonic()
        key = parse_key(bearer_token(authorization), self._prefix)
        if key is None:
            raise Unauthenticated("format")  # the checksum is no secret
        try:
            record = await self._record(key)
            self._check_valid(record)
        except Unauthenticated:
            await self._until_step(began)
            raise
        self._note_use(record.key_id)
        return Principal(
            key_id=record.key_id,
            tenant=record.tenant,
            user=record.user,
            scopes=record.scopes,
            metadata=record.metadata,
            expires_at=record.expires_at,
        )

    def keys(self) -> ApiKeys:
        """Return the keys that it compares with, to administer them; it has a store."""
        return ApiKeys(self._marks(), prefix=self._prefix, pepper=self._pepper, clock=self._clock)

    def attach(self, store: Marks) -> None:
        """Take the server's event store, unless there is one."""
        if self._store is None:
            self._store = store

    async def aclose(self) -> None:
        """Write the last uses that are not written yet."""
        self._start_writing()
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _record(self, key: ParsedKey) -> KeyRecord:
        """Return the record of a key whose secret is right."""
        cached = self._records.get(key.key_id)
        now = self._clock.monotonic()
        is_right = self._matches(self._dummy if cached is None else cached.record, key)
        if is_right and cached is not None and now - cached.read_at < self._max_age_s:
            self._records.move_to_end(key.key_id)
            return cached.record
        try:
            value = await self._marks().mark(key_mark(key.key_id))
        except StoreError as error:
            raise AuthenticationUnavailable(
                "the store of API keys cannot be read", retry_after_s=RETRY_AFTER_S
            ) from error
        try:
            record = decode(self._dummy_text if value is None else value)
        except (KeyError, TypeError, ValueError):
            _log.warning("the record of key %s cannot be read", key.key_id)
            raise Unauthenticated("record") from None
        if not self._matches(record, key) or value is None:
            raise Unauthenticated("key")
        self._keep(_Cached(record, now))
        return record

    def _marks(self) -> Marks:
        if self._store is None:
            raise RuntimeError("expected a store: pass one, or this authenticator to a Server")
        return self._store

    def _matches(self, record: KeyRecord, key: ParsedKey) -> bool:
        pepper = self._pepper if record.hashing == "hmac-sha256" else None
        if pepper is None and record.hashing != "sha256":
            return False  # it was created with a pepper that this server does not have
        found = digest(key.key, pepper)
        return hmac.compare_digest(found.encode(), record.digest.encode())

    def _check_valid(self, record: KeyRecord) -> None:
        if record.revoked_at is not None:
            raise Unauthenticated("revoked")
        if record.expires_at is not None and record.expires_at <= self._clock.now().timestamp():
            raise Unauthenticated("expired")

    async def _until_step(self, began: float) -> None:
        """Wait for the next step of time since a request began."""
        if self._refusal_step_s > 0:
            passed = self._clock.monotonic() - began
            end = (passed // self._refusal_step_s + 1) * self._refusal_step_s
            await self._clock.sleep(end - passed)

    def _keep(self, cached: _Cached) -> None:
        self._records[cached.record.key_id] = cached
        self._records.move_to_end(cached.record.key_id)
        if len(self._records) > self._max_cached:
            self._records.popitem(last=False)

    # -- last use --------------------------------------------------------------------------

    def _note_use(self, key_id: str) -> None:
        """Have a use written, if that of this key was not written lately; never waits."""
        now = self._clock.monotonic()
        noted_at = self._noted.get(key_id)
        if noted_at is not None and now - noted_at < self._last_use_s:
            return
        self._noted[key_id] = now
        self._noted.move_to_end(key_id)
        if len(self._noted) > self._max_cached:
            self._noted.popitem(last=False)
        if len(self._unwritten) < self._max_cached:  # what a slow store does not take is dropped
            self._unwritten[key_id] = self._clock.now().timestamp()
        self._start_writing()

    def _start_writing(self) -> None:
        if self._unwritten and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write_uses(), name="lib-server-key-uses")

    async def _write_uses(self) -> None:
        while self._unwritten:
            key_id, used_at = self._unwritten.popitem()
            try:
                await self._marks().set_mark(used_mark(key_id), f"{used_at:.3f}")
            except StoreError as error:
                _log.warning("the last use of a key was not written: %s", type(error).__name__)
                return


def keys_of(authenticator: Authenticator | None) -> ApiKeys | None:
    """Return the API keys of an authenticator, which is attached; None if it takes none."""
    if isinstance(authenticator, FirstOf):
        found = (keys_of(each) for each in authenticator.authenticators)
        return next((keys for keys in found if keys is not None), None)
    return authenticator.keys() if isinstance(authenticator, ApiKeyAuthenticator) else None

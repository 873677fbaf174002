"""Public keys of an issuer, read from a JSON Web Key Set: strict, and a bad key spoils no other.

A key says which algorithms it may verify; a token never does. Symmetric and private keys, weak
ones, and those for other uses are left out. Pure: no network, no clock.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""The signatures that can be verified, all of them asymmetric."""

MAX_KEYS: Final = 64
MAX_KID_CHARS: Final = 256

_RSA: Final = frozenset(each for each in ALGORITHMS if each[:2] in {"RS", "PS"})
_BY_CURVE: Final = {
    ("EC", "P-256"): "ES256",
    ("EC", "P-384"): "ES384",
    ("EC", "P-521"): "ES512",
    ("OKP", "Ed25519"): "EdDSA",
}
_MEMBERS: Final = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_MIN_RSA_BITS: Final = 2048
_MAX_RSA_BITS: Final = 8192
_MIN_RSA_EXPONENT: Final = 65537
_MAX_RSA_EXPONENT: Final = 2**32


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key, and the algorithms that it may verify."""

    kid: str
    algorithms: frozenset[str]
    public: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeySet:
    """The usable keys of an issuer, and how many were left out for which reason."""

    keys: Mapping[str, tuple[VerifyingKey, ...]]
    left_out: Mapping[str, int]

    def find(self, kid: str, algorithm: str) -> VerifyingKey | None:
        """Return the key of this name if it may verify this algorithm, and no other key may."""
        fitting = [key for key in self.keys.get(kid, ()) if algorithm in key.algorithms]
        return fitting[0] if len(fitting) == 1 else None


class UnusableKey(ValueError):
    """A key, or a set of keys, that cannot be used; `reason` is one of few fixed words."""

    def __init__(self, reason: str) -> None:
        self.reason: str = reason
        super().__init__(reason)


def read_key_set(content: str | bytes) -> KeySet:
    """Return the usable keys of a JSON Web Key Set.

    Raises:
        UnusableKey: it is not JSON of the form `{"keys": [...]}`, or has more than `MAX_KEYS`.

    Source: RFC 7517, 5.
    """
    try:
        entries = parse_object(content).get("keys")
    except ValueError:
        raise UnusableKey("not a key set") from None
    if not isinstance(entries, list):
        raise UnusableKey("not a key set")
    if len(cast(list[Any], entries)) > MAX_KEYS:
        raise UnusableKey("too many keys")
    keys, left_out = dict[str, tuple[VerifyingKey, ...]](), Counter[str]()
    for entry in cast(list[Any], entries):
        try:
            key = _read_key(entry)
        except UnusableKey as error:
            left_out[error.reason] += 1
        else:
            keys[key.kid] = (*keys.get(key.kid, ()), key)
    return KeySet(keys, dict(left_out))


def _read_key(entry: Any) -> VerifyingKey:
    if not isinstance(entry, dict):
        raise UnusableKey("malformed")
    jwk = cast(dict[str, Any], entry)
    kid, kty = jwk.get("kid"), jwk.get("kty")
    if kty == "oct":
        raise UnusableKey("symmetric")
    if not isinstance(kty, str) or kty not in _MEMBERS:
        raise UnusableKey("type")
    if not _PRIVATE.isdisjoint(jwk):
        raise UnusableKey("private")
    if not isinstance(kid, str) or not 0 < len(kid) <= MAX_KID_CHARS:
        raise UnusableKey("kid")
    _check_use(jwk)
    return VerifyingKey(kid, _algorithms(jwk, kty), _public(jwk, kty))


def _check_use(jwk: Mapping[str, Any]) -> None:
    operations = jwk.get("key_ops", ["verify"])
    if jwk.get("use", "sig") != "sig" or not isinstance(operations, list):
        raise UnusableKey("use")
    if "verify" not in cast(list[Any], operations):
        raise UnusableKey("use")


def _algorithms(jwk: Mapping[str, Any], kty: str) -> frozenset[str]:
    curve = jwk.get("crv")
    if kty == "RSA":
        possible = _RSA
    elif isinstance(curve, str) and (kty, curve) in _BY_CURVE:
        possible = frozenset({_BY_CURVE[kty, curve]})
    else:
        raise UnusableKey("curve")
    if "alg" not in jwk:
        return possible
    if not isinstance(jwk["alg"], str) or jwk["alg"] not in possible:
        raise UnusableKey("algorithm")
    return frozenset({jwk["alg"]})


def _public(jwk: Mapping[str, Any], kty: str) -> Any:
    members = {name: jwk.get(name) for name in _MEMBERS[kty]}
    if not all(isinstance(value, str) for value in members.values()):
        raise UnusableKey("malformed")
    algorithm = "RS256" if kty == "RSA" else _BY_CURVE[kty, jwk["crv"]]
    try:
        public = jwt.PyJWK({"kty": kty, **members}, algorithm).key
    except Exception:  # noqa: BLE001 - a library's reading of foreign bytes: any failure is theirs
        raise UnusableKey("malformed") from None
    if isinstance(public, RSAPublicKey):
        _check_rsa(public)
    return public


def _check_rsa(key: RSAPublicKey) -> None:
    numbers = key.public_numbers()
    if not _MIN_RSA_BITS <= key.key_size <= _MAX_RSA_BITS:
        raise UnusableKey("size")
    if not _MIN_RSA_EXPONENT <= numbers.e < _MAX_RSA_EXPONENT or numbers.e % 2 == 0:
        raise UnusableKey("exponent")
    if all(numbers.n % prime in residues for prime, residues in _ROCA.items()):
        raise UnusableKey("weak")


def _powers(prime: int) -> frozenset[int]:
    """Return the residues that 65537 generates."""
    residues, power = set[int](), 1
    while power not in residues:
        residues.add(power)
        power = power * 65537 % prime
    return frozenset(residues)


# The primes of keys made by Infineon's faulty library are powers of 65537 modulo small primes.
# Source: Nemec et al., The Return of Coppersmith's Attack, 2017 (CVE-2017-15361).
_ROCA: Final = {
    prime: _powers(prime)
    for prime in range(3, 168, 2)
    if all(prime % divisor for divisor in range(3, prime, 2))
}


def decode_base64url(text: str) -> bytes:
    """Return the bytes of an unpadded base64url text, of which there is one for all bytes.

    Raises:
        ValueError: it is padded, has other characters, or bits that no byte needs.

    Source: RFC 4648, 5 and 3.5.
    """
    try:
        raw = text.encode("ascii")
        content = base64.b64decode(raw + b"=" * (-len(raw) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError("not base64url") from error
    if base64.urlsafe_b64encode(content).rstrip(b"=") != raw:
        raise ValueError("not canonical base64url")
    return content


def parse_object(content: str | bytes) -> dict[str, Any]:
    """Return a JSON object whose members, at any depth, have names of their own.

    Raises:
        ValueError: it is no such object in UTF-8; also for NaN, for numbers of thousands of
            digits, and for nesting that the parser does not follow.
    """
    try:
        text = content.decode("utf-8") if isinstance(content, bytes) else content
        value = json.loads(text, object_pairs_hook=_distinct, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - a fault of the content
    return cast(dict[str, Any], value)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member stands twice")
    return members


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")

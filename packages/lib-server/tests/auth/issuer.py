"""An issuer of tokens for tests: its keys, and tokens built by the recipes of `auth.jsonl`.

Tokens are signed with `cryptography` alone, so that no library under test has a say in them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

ISSUER: Final = "https://issuer.example/"
AUDIENCE: Final = "lib-server"
_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_Signer = Callable[[bytes], bytes]


def private(name: str, bits: int = 2048) -> Any:
    """Return one of the private keys: rs1 and its kin, es1, ed1, attacker."""
    return _made(name, bits)


@cache
def _made(name: str, bits: int) -> Any:
    if name.startswith("es"):
        return ec.generate_private_key(ec.SECP256R1())
    if name.startswith("ed"):
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, bits)


def jwk(name: str, *, bits: int = 2048, **members: Any) -> dict[str, Any]:
    """Return the public key as a JSON Web Key, with members added or changed."""
    public = private(name, bits).public_key()
    if isinstance(public, rsa.RSAPublicKey):
        numbers = public.public_numbers()
        fields = {"kty": "RSA", "alg": "RS256", "n": _integer(numbers.n), "e": _integer(numbers.e)}
    elif isinstance(public, ec.EllipticCurvePublicKey):
        point = public.public_numbers()
        x, y = b64(point.x.to_bytes(32)), b64(point.y.to_bytes(32))
        fields = {"kty": "EC", "alg": "ES256", "crv": "P-256", "x": x, "y": y}
    else:
        raw = public.public_bytes_raw()
        fields = {"kty": "OKP", "alg": "EdDSA", "crv": "Ed25519", "x": b64(raw)}
    return {"kid": name, "use": "sig", **fields, **members}


def key_set(*jwks: Mapping[str, Any]) -> str:
    """Return a key set: of rs1, es1 and ed1 unless others are passed."""
    return json.dumps({"keys": list(jwks or (jwk("rs1"), jwk("es1"), jwk("ed1")))})


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _integer(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8))


def claims_at(now: float, **changes: Any) -> dict[str, Any]:
    """Return good claims of a token that was issued now; a change to `$del` leaves one out."""
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "user-1",
        "tenant": "t1",
        "scope": "read run",
        "iat": int(now),
        "exp": int(now) + 300,
    }
    merged = {**claims, **{name: _value(value, now) for name, value in changes.items()}}
    return {name: value for name, value in merged.items() if value != "$del"}


def _value(value: Any, now: float) -> Any:
    """Return what a recipe means by a value."""
    if not isinstance(value, str):
        return value
    if value == "@attacker":
        return jwk("attacker")
    if found := re.fullmatch(r"now([+-]\d+)", value):
        return int(now) + int(found[1])
    if found := re.fullmatch(r"(.)\*(\d+)", value):
        text = found[1] * int(found[2])
        return _Digits(text) if found[1].isdigit() else text
    return value.removeprefix("s:")


class _Digits(str):
    """Digits that are a number in JSON: longer than Python reads."""

    __slots__ = ()


def _json(value: Mapping[str, Any]) -> str:
    digits = [each for each in value.values() if isinstance(each, _Digits)]
    text = json.dumps(value, separators=(",", ":"))
    for each in digits:
        text = text.replace(f'"{each}"', each)
    return text


def token(recipe: Mapping[str, Any], now: float) -> str:
    """Return the token that a recipe describes."""
    if "raw" in recipe:
        return str(recipe["raw"])
    sign = recipe.get("sign", "rs1")
    header = {"alg": "RS256", "kid": "rs1", "typ": "JWT"}
    header |= {name: _value(value, now) for name, value in recipe.get("header", {}).items()}
    header = {name: value for name, value in header.items() if value != "$del"}
    first = b64(recipe.get("raw_header", _json(header)).encode())
    second = b64(_claims(recipe, now))
    if sign == "rs1-then-header-swap":
        signature = _signer("rs1")(
            f"{b64(_json(header | {'alg': 'RS256'}).encode())}.{second}".encode()
        )
    else:
        signature = _signer(sign)(f"{first}.{second}".encode())
    return mutated(f"{first}.{second}.{b64(signature)}", recipe.get("mutate", ""))


def _claims(recipe: Mapping[str, Any], now: float) -> bytes:
    if "raw_claims_bytes" in recipe:
        return bytes.fromhex(recipe["raw_claims_bytes"])
    if "raw_claims" in recipe:
        found = re.fullmatch(r"(.)\*(\d+)", recipe["raw_claims"])
        return (found[1] * int(found[2]) if found else recipe["raw_claims"]).encode()
    text = _json(claims_at(now, **recipe.get("claims", {})))
    twice = recipe.get("raw_claims_dup")
    return (text[:-1] + "," + _json(twice)[1:] if twice else text).encode()


def _signer(how: str) -> _Signer:
    """Return what signs as a recipe says."""
    kind, _, rest = how.partition(":")
    if how in {"none", "empty"}:
        return lambda _: b""
    if kind == "raw":
        return lambda _: _raw(rest)
    if kind == "hmac":
        return lambda message: hmac.digest(_hmac_key(rest), message, "sha256")
    if how == "garbage":
        return lambda message: hashlib.sha512(message).digest() * 4
    if how == "es1-der":
        return lambda message: private("es1").sign(message, ec.ECDSA(hashes.SHA256()))
    name = {"hmac-or-attacker": "attacker"}.get(kind, kind)
    return lambda message: sign_with(private(name), message, rest)


def sign_with(key: Any, message: bytes, algorithm: str = "") -> bytes:
    """Return a signature by the key: RS256, ES256 or EdDSA unless another is named."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(message)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        r, s = decode_dss_signature(key.sign(message, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32) + s.to_bytes(32)
    hashing = hashes.SHA512() if algorithm.endswith("512") else hashes.SHA256()
    if algorithm.startswith("PS"):
        return key.sign(message, padding.PSS(padding.MGF1(hashing), hashing.digest_size), hashing)
    return key.sign(message, padding.PKCS1v15(), hashing)


def _raw(what: str) -> bytes:
    if what == "n||n":
        return _P256_ORDER.to_bytes(32) * 2
    byte, _, count = what.partition("*")
    return bytes.fromhex(byte) * int(count)


def _hmac_key(what: str) -> bytes:
    form, _, name = what.partition(":")
    if form in {"empty", "oct"}:
        return b"" if form == "empty" else b"k" * 32
    public = private(name).public_key()
    encoding, plain = serialization.Encoding, serialization.PublicFormat
    forms: dict[str, Callable[[], bytes]] = {
        "pem": lambda: public.public_bytes(encoding.PEM, plain.SubjectPublicKeyInfo),
        "pkcs1": lambda: public.public_bytes(encoding.PEM, plain.PKCS1),
        "der": lambda: public.public_bytes(encoding.DER, plain.SubjectPublicKeyInfo),
        "jwk": lambda: json.dumps(jwk(name)).encode(),
        "ssh": lambda: public.public_bytes(encoding.OpenSSH, plain.OpenSSH),
    }
    return forms[form]()


def mutated(text: str, how: str) -> str:
    """Return a token changed as a recipe says."""
    kind, _, value = how.partition(":")
    header, payload, signature = text.split(".")
    changed = {
        "": lambda: text,
        "drop-sig-and-dot": lambda: f"{header}.{payload}",
        "append": lambda: text + value,
        "pad-segments": lambda: ".".join(part + "=" * (-len(part) % 4) for part in text.split(".")),
        "insert": lambda: f"{header}.{payload[:8]}\n{payload[8:]}.{signature}",
        "truncate-sig": lambda: f"{header}.{payload}.{b64(unb64(signature)[: -int(value)])}",
        "flip-sig-bit": lambda: f"{header}.{payload}.{b64(_flipped(unb64(signature)))}",
        "swap-payload": lambda: f"{header}.{_swapped(payload, value)}.{signature}",
        "swap-header": lambda: f"{_swapped(header, value)}.{payload}.{signature}",
        "trailing-bits": lambda: f"{header}.{payload}.{_with_trailing_bits(signature)}",
        "std-alphabet": lambda: text.replace("-", "+").replace("_", "/"),
    }
    return changed[kind]()


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _flipped(content: bytes) -> bytes:
    return bytes([content[0] ^ 1]) + content[1:]


def _swapped(segment: str, value: str) -> str:
    return b64(_json({**json.loads(unb64(segment)), **json.loads(value)}).encode())


def _with_trailing_bits(segment: str) -> str:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    assert len(segment) % 4, "no byte of the last group is free"
    return segment[:-1] + alphabet[alphabet.index(segment[-1]) + 1]

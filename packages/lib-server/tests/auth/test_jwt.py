import gzip
import json
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.testing.clock import ManualClock
from lib_server.auth.jwk import ALGORITHMS, UnusableKey, decode_base64url, read_key_set
from lib_server.auth.jwt import JWTAuthenticator, StaticKeys
from lib_server.auth.principal import Principal, Unauthenticated

from .issuer import AUDIENCE, ISSUER, b64, claims_at, jwk, key_set, private, sign_with, token

DATA: Final = Path(__file__).parents[1] / "data"
CASES: Final = [
    json.loads(line) for line in (DATA / "auth.jsonl").read_text(encoding="utf-8").splitlines()
]


class CountingKeys(StaticKeys):
    """Keys that note which of them a token asks for: all that a token may have looked up."""

    def __init__(self, key_set: str) -> None:
        super().__init__(key_set)
        self.found: list[str] = []

    async def find(self, kid: str, algorithm: str) -> Any:
        self.found.append(kid)
        return await super().find(kid, algorithm)


def an_authenticator(clock: ManualClock, **options: Any) -> JWTAuthenticator:
    keys = options.pop("keys", None) or StaticKeys(key_set())
    return JWTAuthenticator(keys, issuer=ISSUER, audience=AUDIENCE, clock=clock, **options)


def now_of(clock: ManualClock) -> float:
    return clock.now().timestamp()


async def outcome(authenticator: Any, header: str | None) -> int:
    try:
        principal = await authenticator.authenticate(header)
    except Unauthenticated as error:
        return 401 if error.code in {"missing", "invalid_token"} else 500
    return 200 if isinstance(principal, Principal) else 500


async def test_each_case_of_the_corpus_has_the_outcome_that_it_states() -> None:
    clock = ManualClock()
    faults: list[str] = []
    for case in (each for each in CASES if each["area"] == "jwt"):
        recipe = case["recipe"]
        authenticator = an_authenticator(clock, **recipe.get("config", {}))
        got = await outcome(authenticator, f"Bearer {token(recipe, now_of(clock))}")
        if case["id"] == "jwt-111":  # authenticated, and without the scope
            header = f"Bearer {token(recipe, now_of(clock))}"
            granted = (await authenticator.authenticate(header)).scopes
            got = 200 if "approve" in granted else 403
        if got not in recipe.get("alt_http", [case["http"]]):
            faults.append(f"{case['id']} {case['title']}: {got}")

    assert not faults, "\n".join(faults)


async def test_a_token_becomes_a_principal() -> None:
    clock = ManualClock()
    authenticator = an_authenticator(
        clock,
        tenant_claim="org",
        user_claim="email",
        scope_claim="permissions",
        scopes={"agents:read": "read", "agents:approve": "approve"},
        metadata_claims=["plan"],
    )
    claims = {
        "org": "acme",
        "email": "ann@acme.example",
        "permissions": ["agents:read", "agents:approve", "billing"],
        "plan": "team",
        "scope": "$del",
    }

    principal = await authenticator.authenticate(
        f"Bearer {token({'claims': claims}, now_of(clock))}"
    )

    assert principal == Principal(
        key_id=principal.key_id,
        tenant="acme",
        user="ann@acme.example",
        scopes=frozenset({"read", "approve"}),
        metadata={"plan": "team"},
        expires_at=now_of(clock) + 300,
    )
    assert principal.key_id.startswith("jwt_")


async def test_refusals_beyond_the_corpus() -> None:
    clock = ManualClock()
    refused: dict[str, dict[str, Any]] = {
        "an algorithm that is null": {"header": {"alg": None}},
        "an algorithm in lower case": {"header": {"alg": "rs256"}},
        "an HMAC with the key in PKCS 1": {"header": {"alg": "HS256"}, "sign": "hmac:pkcs1:rs1"},
        "RS256 with the name of an EC key": {"header": {"kid": "es1"}, "sign": "rs1"},
        "an expiry of NaN": {"claims": {"exp": float("nan")}},
        "an infinite expiry": {"claims": {"exp": float("inf")}},
        "an expiry of 300 digits": {"claims": {"exp": 10**300}},
        "a negative expiry": {"claims": {"exp": -1}},
        "an expiry in a hundred years": {"claims": {"exp": "now+3155760000"}},
        "issued in an hour": {"claims": {"iat": "now+3600", "exp": "now+7200"}},
        "issued at a text": {"claims": {"iat": "s:1"}},
        "not before null": {"claims": {"nbf": None}},
        "an issuer in a list": {"claims": {"iss": [ISSUER]}},
        "an empty subject": {"claims": {"sub": ""}},
        "a subject that is a number": {"claims": {"sub": 7}},
        "a subject with a line break": {"claims": {"sub": "a\nb"}},
        "a subject that UTF-8 cannot hold": {"claims": {"sub": "\ud800"}},
        "a tenant that climbs": {"claims": {"tenant": ".."}},
        "scopes that are a number": {"claims": {"scope": 7}},
        "a proof as a token": {"header": {"typ": "dpop+jwt"}},
        "a type that is null": {"header": {"typ": None}},
        "an unknown header": {"header": {"x5t": "abc"}},
        "an audience that is null": {"claims": {"aud": None}},
    }
    authenticator = an_authenticator(clock)

    outcomes = {
        name: await outcome(authenticator, f"Bearer {token(recipe, now_of(clock))}")
        for name, recipe in refused.items()
    }

    assert outcomes == dict.fromkeys(refused, 401)


async def test_headers_of_an_issuer_can_be_ignored_but_not_those_that_carry_keys() -> None:
    clock = ManualClock()
    header = f"Bearer {token({'header': {'x5t': 'abc'}}, now_of(clock))}"

    assert await outcome(an_authenticator(clock, ignored_headers=["x5t"]), header) == 200
    with pytest.raises(ValueError, match="cannot be ignored"):
        an_authenticator(clock, ignored_headers=["jku"])


async def test_a_type_is_compared_as_a_media_type() -> None:
    clock = ManualClock()
    types = ["at+jwt", "AT+JWT", "application/at+jwt", "JWT", "$del"]
    tokens = [token({"header": {"typ": typ}}, now_of(clock)) for typ in types]
    pinned = an_authenticator(clock, typ="at+jwt")

    assert [await outcome(pinned, f"Bearer {each}") for each in tokens] == [200, 200, 200, 401, 401]
    assert [await outcome(an_authenticator(clock), f"Bearer {each}") for each in tokens] == [
        200
    ] * 5


async def test_the_life_of_a_token_is_bounded_by_its_own_claims() -> None:
    clock = ManualClock()
    header = f"Bearer {token({'claims': {'exp': 'now+600'}}, now_of(clock))}"
    authenticator = an_authenticator(clock, leeway_s=30)

    assert await outcome(an_authenticator(clock, max_lifetime_s=599), header) == 401
    clock.advance(629)
    assert await outcome(authenticator, header) == 200
    clock.advance(1)
    assert await outcome(authenticator, header) == 401


async def test_what_is_refused_by_its_form_looks_up_no_key() -> None:
    clock = ManualClock()
    keys = CountingKeys(key_set())
    authenticator = an_authenticator(clock, keys=keys)
    recipes: list[dict[str, Any]] = [
        {"header": {"jku": "http://127.0.0.1:1/jwks.json"}, "sign": "attacker"},
        {"header": {"alg": "none"}, "sign": "none"},
        {"header": {"alg": "HS256"}, "sign": "hmac:empty"},
        {"header": {"kid": {"a": 1}}},
    ]

    for recipe in recipes:
        assert await outcome(authenticator, f"Bearer {token(recipe, now_of(clock))}") == 401

    assert keys.found == []


_VALUES: Final[list[Any]] = ["RS256", "rs1", "JWT", "", 1, None, [], {}, "\ud800", 1e308]
_NAMES: Final = st.sampled_from(["alg", "kid", "typ", "crit", "x"])
_PARTS: Final = st.lists(st.binary(min_size=1, max_size=40), min_size=2, max_size=4)


@st.composite
def headers_of_tokens(draw: st.DrawFn) -> str:
    header: dict[str, Any] = draw(st.dictionaries(_NAMES, st.sampled_from(_VALUES)))
    rest = draw(st.lists(st.binary(min_size=1, max_size=30), min_size=2, max_size=2))
    return "Bearer " + ".".join(b64(part) for part in (json.dumps(header).encode(), *rest))


@given(
    header=st.one_of(
        st.none(),
        st.text(max_size=60),
        st.text(max_size=60).map(lambda text: f"Bearer {text}"),
        st.binary(max_size=60).map(lambda raw: f"Bearer {raw.decode('latin-1')}"),
        _PARTS.map(lambda parts: "Bearer " + ".".join(b64(part) for part in parts)),
        headers_of_tokens(),
    )
)
async def test_any_bytes_are_refused_and_nothing_else(header: str | None) -> None:
    assert await outcome(an_authenticator(ManualClock()), header) == 401


_JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(
    name=st.sampled_from(["iss", "aud", "sub", "exp", "iat", "nbf", "tenant", "scope", "plan"]),
    value=_JSON,
)
async def test_a_claim_of_any_value_is_accepted_or_refused(name: str, value: Any) -> None:
    clock = ManualClock()
    authenticator = an_authenticator(clock, metadata_claims=["plan"])
    claims = claims_at(now_of(clock)) | {name: value}
    header = b64(json.dumps({"alg": "EdDSA", "kid": "ed1"}).encode())
    signed = f"{header}.{b64(json.dumps(claims).encode())}"
    signature = sign_with(private("ed1"), signed.encode())

    assert await outcome(authenticator, f"Bearer {signed}.{b64(signature)}") in {200, 401}


@given(st.text(max_size=12))
def test_each_base64url_text_stands_for_its_bytes_alone(text: str) -> None:
    try:
        content = decode_base64url(text)
    except ValueError:
        return
    assert b64(content) == text


# -- keys ------------------------------------------------------------------------------------------


def test_keys_that_may_not_verify_are_left_out() -> None:
    rsa = jwk("rs1")
    left_out: dict[str, tuple[dict[str, Any], str]] = {
        "symmetric": ({"kty": "oct", "kid": "a", "k": b64(b"k" * 32)}, "symmetric"),
        "private": (jwk("rs1", d=b64(b"secret")), "private"),
        "for encryption": (jwk("rs1", use="enc"), "use"),
        "for other operations": (jwk("rs1", key_ops=["sign"]), "use"),
        "operations that are no list": (jwk("rs1", key_ops="verify"), "use"),
        "of 1024 bits": (jwk("rs1024", bits=1024), "size"),
        "of exponent 1": (jwk("rs1", e=b64(b"\x01")), "malformed"),
        "of exponent 3": (jwk("rs1", e=b64(b"\x03")), "exponent"),
        "without a name": ({**rsa, "kid": ""}, "kid"),
        "of a name that is a number": ({**rsa, "kid": 1}, "kid"),
        "of another curve": (jwk("es1", crv="P-384"), "algorithm"),
        "of no curve": (jwk("es1", crv="secp256k1"), "curve"),
        "off its curve": (jwk("es1", y=b64(bytes(32))), "malformed"),
        "of another algorithm": (jwk("es1", alg="RS256"), "algorithm"),
        "for HMAC": (jwk("rs1", alg="HS256"), "algorithm"),
        "without a modulus": ({**rsa, "n": None}, "malformed"),
        "a text": ("key", "malformed"),  # type: ignore[dict-item] - a wrong type on purpose
    }

    read = {name: read_key_set(key_set(each)).left_out for name, (each, _) in left_out.items()}

    assert read == {name: {reason: 1} for name, (_, reason) in left_out.items()}


def test_a_bad_key_spoils_no_other_and_two_of_a_name_need_different_algorithms() -> None:
    keys = read_key_set(key_set({"kty": 7}, jwk("rs1"), jwk("es1", kid="rs1"), jwk("ed1")))
    doubled = read_key_set(key_set(jwk("rs1"), jwk("attacker", kid="rs1"), jwk("es1")))

    assert keys.find("rs1", "RS256") is not None
    assert keys.find("rs1", "ES256") is not None
    assert keys.find("rs1", "EdDSA") is None
    assert doubled.find("rs1", "RS256") is None
    assert doubled.find("es1", "ES256") is not None


def test_what_is_no_key_set_is_refused() -> None:
    many = key_set(*[{"kty": "x"}] * 65)
    for content in ("", "[]", "{}", '{"keys": {}}', '{"keys": [], "keys": []}', "\ud800", many):
        with pytest.raises(UnusableKey):
            read_key_set(content)


def test_static_keys_have_to_be_usable_all_of_them() -> None:
    with pytest.raises(ValueError, match="size"):
        StaticKeys(key_set(jwk("rs1"), jwk("rs1024", bits=1024)))


def test_arguments_are_checked_when_the_authenticator_is_made() -> None:
    keys = StaticKeys(key_set())
    wrong: list[dict[str, Any]] = [
        {"issuer": ""},
        {"audience": []},
        {"algorithms": ["HS256"]},
        {"algorithms": ["none"]},
        {"leeway_s": 61},
        {"max_lifetime_s": 0},
        {"scopes": {"all": "root"}},
    ]
    for change in wrong:
        options: dict[str, Any] = {"issuer": ISSUER, "audience": AUDIENCE} | change
        with pytest.raises(ValueError, match=r"^expected"):
            JWTAuthenticator(keys, **options)


# -- Wycheproof ------------------------------------------------------------------------------------


# What is valid there and refused here, as a token has claims and its key is its issuer's alone.
HMAC_SIGNATURES: Final = {1, 348, 352, 357, 358, 359, 372, 373, 376, 377}
EMPTY_PAYLOADS: Final = {259, 264, 268, 272, 320, 325}
OTHER_ALGORITHMS: Final = {346, 347, 350, 351}  # PS384 by a key for PS256; a key for "ES521"
HMAC_KEYS: Final = {2, 13, 14, 15}


def vectors(name: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the tests of a file, each with the key or the key set of its group."""
    with gzip.open(DATA / "wycheproof" / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        groups = json.load(file)["testGroups"]
    return [
        (group.get("public") or group["private"], test)
        for group in groups
        for test in group["tests"]
    ]


async def verified(keys: dict[str, Any], test: dict[str, Any]) -> bool:
    """Return True if the payload of a vector is accepted, whatever it holds."""

    class Vector:
        async def find(self, kid: str, algorithm: str) -> Any:
            return read_key_set(json.dumps(keys)).find(kid, algorithm)

    authenticator = JWTAuthenticator(
        Vector(), issuer=ISSUER, audience=AUDIENCE, algorithms=ALGORITHMS
    )
    jws = test["jws"] if isinstance(test["jws"], str) else json.dumps(test["jws"])
    try:
        await authenticator.verified_payload(jws)
    except Unauthenticated:
        return False
    return True


async def test_wycheproof_has_no_false_accept_among_signatures() -> None:
    accepted, missed = list[int](), list[int]()
    for key, test in vectors("json_web_signature_test"):
        is_valid = await verified({"keys": [key]}, test)
        if is_valid and test["result"] != "valid":
            accepted.append(test["tcId"])
        if not is_valid and test["result"] == "valid":
            missed.append(test["tcId"])

    assert accepted == []
    assert set(missed) == HMAC_SIGNATURES | EMPTY_PAYLOADS | OTHER_ALGORITHMS


async def test_wycheproof_has_no_false_accept_among_keys() -> None:
    accepted, missed = list[int](), list[int]()
    for keys, test in vectors("json_web_key_test"):
        is_valid = await verified(keys, test)
        if is_valid and test["result"] != "valid":
            accepted.append(test["tcId"])
        if not is_valid and test["result"] == "valid":
            missed.append(test["tcId"])

    assert accepted == []
    assert set(missed) == HMAC_KEYS

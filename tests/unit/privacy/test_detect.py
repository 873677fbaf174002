"""Tests the findings of the detectors, and look-alikes that are none."""

import json
import random
import re
import string
from pathlib import Path

import pytest

from effort import effort_below
from lib.privacy.detect import DEFAULT, Finding, PresidioDetector, find, resolve
from lib.privacy.detect.keys import SHAPES

TEXTS = Path(__file__).parents[2] / "data" / "privacy"


def wide(text: str) -> str:
    return "".join(chr(ord(char) + 0xFEE0) for char in text)


def found(text: str) -> list[tuple[str, str]]:
    return [(each.kind, text[each.start : each.end]) for each in find(text, DEFAULT)]


SECRETS = [
    "sk-abcDEF1234567890abcdEFGH",
    "sk-proj-abcDEF1234567890abcd_EFGH",
    "sk-ant-api03-abcDEF1234567890abcdEFGH",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2_" * 9,
    "glpat-abcdefghij1234567890",
    "xoxb-123456789012-abcdefABCDEF",
    "hooks.slack.com/services/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",
    "AIza" + "a1B2c" * 7,
    "GOCSPX-abcdefghij1234567890",
    "ya29.a0AfB_byabcdefghij1234567890",
    "sk_live_" + "a1B2c" * 5,
    "whsec_" + "a1B2" * 8,
    "hf_" + "aBcDe" * 7,
    "npm_" + "a1B2" * 9,
    "gsk_" + "a1B2" * 13,
    "xai-" + "a1B2" * 20,
    "shpat_" + "0a" * 16,
    "dop_v1_" + "0a" * 32,
    "dapi" + "0a" * 16,
    "8123456789:AAF" + "a1B2" * 8,
    "pypi-AgEIcHlwaS5vcmc" + "a1B2" * 15,
    "SK" + "0123456789abcdef" * 2,
    "SG." + "a1B2" * 5 + "ab." + "a1B2" * 10 + "abc",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow==\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNza==\n",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("around", ["%s", "it is %s, he said", '{"value":"%s"}', "x=(%s)"])
def test_keys_of_vendors_are_found_by_their_shape(secret: str, around: str) -> None:
    assert found(around % secret) == [("secret", secret)]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("api_key=x8Fq29dkLLpz", "x8Fq29dkLLpz"),
        ("API-KEY: 'x8Fq29dkLLpz'", "x8Fq29dkLLpz"),
        ('{"password": "hunter2Xyz9"}', "hunter2Xyz9"),
        (r'"{\"client_secret\": \"hunter2Xyz9\"}"', "hunter2Xyz9"),
        ("export MY_TOKEN=q1w2e3r4t5y6", "q1w2e3r4t5y6"),
        ("the password is Tr0ub4dor&3", "Tr0ub4dor&3"),
        (
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCY",
        ),
        ("Authorization: Bearer abcdef123456", "abcdef123456"),
        ("-H 'Authorization: Basic dXNlcjpwYXNz'", "dXNlcjpwYXNz"),
        ("bearer a1b2c3d4e5f6g7h8", "a1b2c3d4e5f6g7h8"),
        ("postgres://user:s3cret@host/db", "s3cret"),
        ('password = "abc123"', "abc123"),
        ("my password is hunter2", "hunter2"),
        ("password: CorrectHorse!Battery", "CorrectHorse!Battery"),
        ('{"password":"correct horse battery staple"}', "correct horse battery staple"),
        (r'{"passwd":"a\"bcd"}', r"a\"bcd"),
        ("DB_PASS=Xk93jd02kd", "Xk93jd02kd"),
        ("pw: S3cret!pass", "S3cret!pass"),
        ("Ocp-Apim-Subscription-Key: 1a2b3c4d5e6f", "1a2b3c4d5e6f"),
    ],
)
def test_values_that_are_called_a_secret_are_found_without_their_name(
    text: str, secret: str
) -> None:
    assert found(text) == [("secret", secret)]


def test_forty_characters_beside_an_aws_key_id_are_its_secret() -> None:
    key, secret = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

    assert found(f"{key} {secret}") == [("secret", key), ("secret", secret)]
    assert found(secret) == []
    assert found(f"{key} {'a' * 40}") == [("secret", key)]


@pytest.mark.parametrize(
    "text",
    [
        "token: see below",
        "password: ********",
        "api_key=YOUR_API_KEY",
        "secret = os.environ['X']",
        "the bearer certificates",
        "token=settings.token",
        "password=os.environ.PASSWORD1",
        "token = get_token2024()",
        "token = tokens2024[0]",
        "secret: aws/secretsmanager/prod1",
        'password: "Enter your password"',
        '{"password": "string"}',
        "password: remember!",
        '{"next_page_token":"CAUQAA1234"}',
        "password = get_password(user)",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "-----END RSA PRIVATE KEY-----",
        "-----BEGIN PUBLIC KEY-----",
        "sk-learn is a library",
        "postgres://user:password@host/db",
        "postgres://user:$PASSWORD@host/db",
        "https://example.org:8080/a@b",
    ],
)
def test_talk_of_secrets_is_none(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("mail jo.doe+x@mail.example.org now", "jo.doe+x@mail.example.org"),
        ("<jo@example.org>,", "jo@example.org"),
        ("?to=jo%40example.org&x=1", "jo%40example.org"),
        (r'{"a":"Hello\njo@example.org"}', "jo@example.org"),
        ("see https://x.org/?user=jo@example.org&y", "jo@example.org"),
        ("mailto:jo@example.org.", "jo@example.org"),
        ("'jo@example.org'", "jo@example.org"),
        ("über@bücher.example", "über@bücher.example"),
        ("用户@例子.广告", "用户@例子.广告"),
        ("a@xn--bcher-kva.example", "a@xn--bcher-kva.example"),
        (wide("jo@example.org"), wide("jo@example.org")),
        ("to j\u200bo@exa\u2060mple.org!", "j\u200bo@exa\u2060mple.org"),
    ],
)
def test_addresses_are_found(text: str, address: str) -> None:
    assert found(text) == [("email", address)]


@pytest.mark.parametrize(
    "text",
    [
        "git@github.com:acme/repo.git",
        r'"x\n@app.route()"',
        "a@b",
        "@someone hello",
        "a @ b.org",
        "x@1.2",
        "user@-example.org",
        "...@example.org",
    ],
)
def test_not_every_at_sign_is_an_address(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    "number",
    [
        *("+49 30 1234567", "+1 (415) 555-2671", "0049 30 1234567", "+442079460958"),
        *("(415) 555-2671", "415-555-2671", "415.555.2671", "1-415-555-2671"),
        *("030 1234567", "0151/12345678", "(020) 7946 0958", "01 23 45 67 89", "01.23.45.67.89"),
        *("07911123456", "015112345678"),
        *("+49 (0)30 123 456-78", "+\u0664\u0669 30 1234567", wide("+49") + " 30 1234567"),
    ],
)
def test_telephone_numbers_are_found(number: str) -> None:
    assert found(f"at {number}, or so") == [("phone", number)]


@pytest.mark.parametrize(
    "text", ["tel: 6135550123", "call me at 6135550123", "Telefon: 6135550123"]
)
def test_digits_alone_are_a_number_after_a_word_for_one(text: str) -> None:
    assert found(text) == [("phone", "6135550123")]


@pytest.mark.parametrize(
    "text",
    [
        *("2024-01-05 10:30:00", "01/02/2024", "05.11.2026 12", "2026-11-21T19:45:04.123456Z"),
        *("01-02-2024 10", "0800-1600 hours", "192.168.100.200", "10.0.0.1", "version 1.2.3.4"),
        *("SAP 0053456247", "0049123456789", "order 09-2024-559408", "case 01/2024/123456"),
        *("order 4711000012345", "order 0012345", "6135550123", "1700000000000"),
        *("$1,234,567.89", "1,000,000,000 people", "ISBN 978-3-16-148410-0"),
        *("550e8400-e29b-41d4-a716-446655440000", "3.141592653589793238", "12-34-5678 9012"),
        *("lat 52.520008, 13.404954", "call 01.02.2024 12", "+999 123 456 789"),
    ],
)
def test_dates_addresses_and_order_numbers_are_no_telephone_numbers(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    "card",
    [
        *("4111111111111111", "4111 1111 1111 1111", "5555-5555-5555-4444", "378282246310005"),
        *("4111.1111.1111.1111", "41111111 11111111", "3056 930902 5904", "4222 222 222 222"),
        *("3782 822463 10005", "6011111111111117", "3530111333300000", "30569309025904"),
        *(
            "2223003122003222",
            "6200000000000005",
            wide("4111111111111111"),
        ),
    ],
)
def test_cards_are_found(card: str) -> None:
    assert found(f"Visa: {card}.") == [("card", card)]
    assert found(f"2024 {card}") == [("card", card)]


@pytest.mark.parametrize(
    "text",
    [
        *("4111111111111112", "1111111111111117", "41111111111111111111", "4111 1111"),
        *("x4111111111111111", "4111111111111111.5", "0.4111111111111111", "4222222222222"),
        *("41 11 11 11 11 11 11 11", "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "411111 1111111111"),
        *("4111-1111 1111-1111", "2024-4111-1111-1111-1111", "4111.1111.1111.1111.1"),
        "1000 2000 3000 4111 1111 1111 1111 5000 6000 7000",
    ],
)
def test_not_every_long_number_is_a_card(text: str) -> None:
    assert found(text) == []


def test_beside_a_card_stand_other_numbers_or_its_name() -> None:
    card = "4111 1111 1111 1111"

    assert found(f"2024 {card} 12 27 123") == [("card", card)]
    assert found(f"{card} {card}") == [("card", card)] * 2
    assert found("id_4111111111111111") == [("card", "4111111111111111")]
    assert found("pay by credit card 4222222222222") == [("card", "4222222222222")]


def rows(count: int, most: int) -> list[str]:
    random_ = random.Random(7)
    return [" ".join(str(random_.randint(0, most)) for _ in range(count)) for _ in range(500)]


def test_rows_of_numbers_hold_no_cards_and_ids_rarely() -> None:
    random_ = random.Random(8)
    ids = [f"id {random_.randint(10**15, 10**16 - 1)}" for _ in range(500)]

    assert [row for row in [*rows(20, 99), *rows(20, 255), *rows(12, 999)] if found(row)] == []
    assert sum(bool(found(each)) for each in ids) < 40


@pytest.mark.parametrize(
    "iban",
    [
        *("DE89370400440532013000", "DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432"),
        *("NO9386011117947", "de89 3704 0044 0532 0130 00", "MT84MALT011000012345MTLCAST001S"),
    ],
)
def test_ibans_are_found(iban: str) -> None:
    assert found(f"IBAN {iban}.") == [("iban", iban)]


@pytest.mark.parametrize(
    "text",
    [
        *("DE88370400440532013000", "DE8937040044053201300", "ZZ89370400440532013000"),
        *("DE89  3704 0044", "GB82WEST123456987654320", "xDE89370400440532013000"),
    ],
)
def test_a_wrong_remainder_length_or_country_is_no_iban(text: str) -> None:
    assert [kind for kind, _ in found(text) if kind == "iban"] == []


PLANTED = [
    *(("card", "4111 1111 1111 1111"), ("phone", "+49 30 1234567"), ("email", "jo@example.org")),
    *(("iban", "DE89 3704 0044 0532 0130 00"), ("secret", "ghp_" + "a1B2" * 9)),
    ("secret", "AKIAIOSFODNN7EXAMPLE"),
]


@pytest.mark.parametrize(("kind", "value"), PLANTED)
@pytest.mark.parametrize(
    "before", ["\n", "\t", '"', "\\", "\u00e9 ", "\u200b ", "\U0001f600", "/ "]
)
def test_what_is_found_in_a_text_is_found_in_it_as_json(kind: str, value: str, before: str) -> None:
    text = f"Here:{before}{value}\nand so on"
    once = json.dumps({"body": text})
    ascii_ = "".join(f"\\u{ord(char):04x}" for char in value)

    assert found(text) == [(kind, value)]
    assert found(once) == [(kind, value)]
    assert found(json.dumps(once)) == [(kind, value)]
    assert found(json.dumps([once])) == [(kind, value)]
    assert found(f'{{"body":"{ascii_}"}}') == [(kind, ascii_)]


@pytest.mark.parametrize("text", [r"C:\new\table", r"a\q", r"\u12", r"\ud800x", "\\" * 50, "\\"])
def test_what_only_looks_like_an_escape_hides_nothing(text: str) -> None:
    assert found(f"{text} jo@example.org {text}") == [("email", "jo@example.org")]


class Letters:
    """Finds runs of letters, and what follows them."""

    kinds = frozenset({"word"})

    def find(self, text: str) -> list[Finding]:
        return [Finding("word", *each.span()) for each in re.finditer("[a-z]+.?", text)]


def test_no_finding_begins_or_ends_within_an_escape() -> None:
    assert find(r"ab\ncd", [Letters()]) == [Finding("word", 0, 4), Finding("word", 4, 6)]


def test_of_overlapping_findings_the_longest_counts_then_the_earliest_then_the_first_kind() -> None:
    findings = [
        *(Finding("b", 0, 4), Finding("a", 0, 4), Finding("c", 2, 8), Finding("c", 7, 9)),
        *(Finding("a", 20, 24), Finding("a", 22, 26), Finding("x", 5, 5), Finding("z", 30, 31)),
    ]

    expected = [Finding("c", 2, 8), Finding("a", 20, 24), Finding("z", 30, 31)]
    assert resolve(findings, ["a", "b", "c"]) == expected
    assert resolve(findings[:2], ["b", "a"]) == [Finding("b", 0, 4)]
    assert resolve(findings[:2], []) == [Finding("a", 0, 4)]
    assert resolve([], []) == []


def test_nothing_is_found_in_a_placeholder_or_across_one() -> None:
    assert found("api_key=[SECRET] password: [SECRET:0a1b2c3d] [EMAIL]@[EMAIL].org") == []
    assert found("+49 30 [PHONE] 1234567") == []
    assert found("[SECRET] jo@example.org [EMAIL]") == [("email", "jo@example.org")]


class Result:
    def __init__(self, entity_type: str, start: int, end: int, score: float) -> None:
        self.entity_type, self.start, self.end, self.score = entity_type, start, end, score


class Analyzer:
    """As `presidio_analyzer.AnalyzerEngine` is documented."""

    def __init__(self, *results: Result) -> None:
        self.results = results
        self.calls: list[tuple[str, str, list[str] | None]] = []

    def analyze(self, text: str, language: str, entities: list[str] | None = None) -> list[Result]:
        self.calls.append((text, language, entities))
        return list(self.results)


def test_presidio_searches_the_chosen_kinds_and_its_names_become_ours() -> None:
    analyzer = Analyzer(
        Result("PERSON", 0, 5, 0.85),
        Result("EMAIL_ADDRESS", 9, 12, 1.0),
        Result("PERSON", 6, 8, 0.4),
    )
    detector = PresidioDetector(analyzer, "de", entities=["PERSON", "EMAIL_ADDRESS"])

    assert detector.kinds == {"person", "email"}
    assert find("Alice is a@b here", [detector]) == [
        Finding("person", 0, 5),
        Finding("email", 9, 12),
    ]
    assert analyzer.calls == [("Alice is a@b here", "de", ["PERSON", "EMAIL_ADDRESS"])]
    assert find("", [detector]) == []


def lines(file: str) -> list[str]:
    every = (TEXTS / file).read_text(encoding="utf-8").splitlines()
    return [line.replace("\\n", "\n") for line in every if line and not line.startswith("# ")]


def test_credentials_are_found_by_their_place() -> None:
    wrong: dict[str, list[str]] = {}
    for line in lines("placed.txt"):
        before, secret, after = re.split("[«»]", line)
        text = f"{before}{secret}{after}"
        at = [(each.start, each.end) for each in find(text, DEFAULT) if each.kind == "secret"]
        if at != [(len(before), len(before) + len(secret))]:
            wrong[line] = [text[start:end] for start, end in at]

    assert wrong == {}


def test_nothing_is_found_in_what_only_looks_like_a_credential() -> None:
    assert {line: found(line) for line in lines("look_alikes.txt") if found(line)} == {}


ALPHABETS = {
    "digit": string.digits,
    "hex": "0123456789abcdef",
    "anyhex": string.hexdigits,
    "lower": string.digits + string.ascii_lowercase,
    "upper": string.digits + string.ascii_uppercase,
    "base32": string.ascii_uppercase + "234567",
    "bech32": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "letter": string.ascii_letters,
    "alnum": string.ascii_letters + string.digits,
    "word": string.ascii_letters + string.digits + "_",
    "url": string.ascii_letters + string.digits + "_-",
    "dotted": string.ascii_letters + string.digits + "_-",
    "lower-": string.ascii_lowercase + string.digits + "-",
    "alnum-": string.ascii_letters + string.digits + "-",
    "base64": string.ascii_letters + string.digits + "+/",
    "padded": string.ascii_letters + string.digits + "+/",
    "loose": string.ascii_letters + string.digits + "_-",
    "percent": string.ascii_letters + string.digits,
}


def made(shape: str, random_: random.Random) -> str:
    def piece(found: re.Match[str]) -> str:
        least, most = int(found[2]), int(found[3] or found[2])
        return "".join(random_.choices(ALPHABETS[found[1]], k=min(least + 40, most)))

    return re.sub(r"<([a-z0-9-]+):([0-9]+)(?:-([0-9]+))?>", piece, shape)


def test_keys_of_every_service_in_the_table_are_found_bare() -> None:
    random_ = random.Random(3)
    missed: list[str] = []
    tried = 0
    for shapes in SHAPES.values():
        for shape in shapes:
            for _ in range(5):
                tried += 1
                key = made(shape, random_)
                text = f"see {key} there"
                spans = [(each.start, each.end) for each in find(text, DEFAULT)]
                if not any(start == 4 and end >= 4 + len(key.rstrip("-_")) for start, end in spans):
                    missed.append(key)

    assert len(SHAPES) > 140
    # Some keys by chance hold what documentation writes, or no digit.
    assert len(missed) < tried / 100, missed


def test_a_key_is_found_in_a_url_that_is_percent_encoded_twice() -> None:
    key = "ghp_" + "a1B2" * 9

    assert found(f"next=%2Fcb%3Ftoken%3D{key}") == [("secret", key)]
    assert found(f"next=%252Fcb%253Ftoken%253D{key}%2526x") == [("secret", key)]
    assert found("x=SG%2Ea1B2a1B2a1B2a1B2a1B2ab%2E" + "a1B2" * 10 + "abc%26y")[0][0] == "secret"
    assert found("100%25 of 50%2C and %7Ehome%2Fdir") == []


@pytest.mark.parametrize(
    "gap", [*" .-/_,:|*\t", "\u00a0", "\u2009", "\u202f", "\u2013", "\u2011", "\u00b7"]
)
def test_cards_and_ibans_are_found_with_any_one_separator(gap: str) -> None:
    card = gap.join(("4111", "1111", "1111", "1111"))
    iban = gap.join(("DE89", "3704", "0044", "0532", "0130", "00"))

    assert found(f"pay {card} now") == [("card", card)]
    assert found(f"to {iban} now") == [("iban", iban)]


def test_the_time_is_in_proportion_to_the_text_however_hostile_it_is() -> None:
    for unit in (
        *(
            "-",
            "sk-",
            "A",
            "eyJ.",
            " ",
            "a ",
            "password=",
            "password: |\n",
            "0" * 32 + "-",
            "12345:",
        ),
        *(
            "heroku ",
            "mysql -u",
            "curl -u a",
            "<password ",
            'name="password" ',
            "--password",
            "\\\n",
        ),
        *(
            "cookie: a=",
            "echo a",
            "host=a ",
            "%2541",
            "docker login -p",
            "net use z /user:a ",
            "://a:",
        ),
    ):
        text = unit * (40_000 // len(unit))
        with effort_below(30, unit):  # a backtracking pattern takes hours
            find(text, DEFAULT)

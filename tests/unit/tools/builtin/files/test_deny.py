from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from effort import effort_below
from lib.tools import ToolError
from lib.tools.builtin import DENY, FileAccess
from lib.tools.builtin.files.deny import NameRules, fold

NAMES = Path(__file__).parents[4] / "data" / "files"
SHOWING = NameRules(DENY, allow_hidden=True)
HIDING = NameRules(DENY, allow_hidden=False)


@pytest.mark.parametrize(
    "path",
    [
        "env.py",
        "environment.md",
        "credentials.py",
        "docs/credentials.md",
        "token.py",
        "keyboard.txt",
        "monkey.py",
        "keys.md",
        "public.pub",
        "id_rsa.pub",
        "keys/id_ed25519_work.pub",
        "id_ecdsa-cert.pub",
        "deploy_key.pub",
        "deploy_key_prod.pub",
        "ssh_host_rsa_key.pub",
        "deploy_keys.md",
        "release_history.txt",
        "notes.txt",
        "api_key.py",
        "secret.py",
        "passwords.py",
        "kubeconfig.md",
        "CHANGES.2024",
        "data.json.gz",
        "data (1).json",
        "settings.local",
        "serviceAccount.ts",
        "underscore.d.ts",
        "shadow.css",
        "pem.txt",
        "secrets_test.py",
        "history.md",
        "tfstate.md",
        "a..b",
        "Makefile~",
        "old.bak",
        "\u00e9t\u00e9.txt",
        "\u0646\u0627\u0645\u0647\u200c\u0627\u06cc.txt",
        "\u2026txt",
    ],
)
def test_near_misses_stay_readable(path: str) -> None:
    assert SHOWING.refusal(path.split("/")) is None


@pytest.mark.parametrize(
    "name",
    [
        "id_rsa",
        "ID_RSA",
        "\uff49\uff44\uff3f\uff52\uff53\uff41",  # full width
        "id_r\u017fa",  # a long s folds to s
        "id\u200b_rsa",
        "id_\u00adrsa",
        "i\u034fd_rsa",
        "id_rsa\ufe0f",
        "\u202eid_rsa",
        "id_rsa ",
        "id_rsa.",
        "id_rsa\u00a0",
        "id_rsa::$DATA",
        "x/id_rsa/y",
        "x\uff0fid_rsa",
        "server.KEY",
        "server.key.bak",
        "server.key~",
        "server.key.~2~",
        "credentials.json.old.bak",
        "shadow-",
        "master.\u212aey",  # the Kelvin sign
        "UTC--2016-01-01T00",
        "\U000e0069server.pem",
        "key.pem.1",
        "key.pem.gz",
        "key.pem.txt",
        "key.pem.2024",
        "key.pem.2024-05-01",
        "key.pem.20240501_1200.tar.gz",
        "key.pem.1.bak.gz",
        "credentials.json.1",
        "credentials (1).json",
        "credentials(12).json.txt",
        "secrets.yml.dist",
        "x.env.local",
        "bash_history.1",
    ],
)
def test_no_spelling_of_a_denied_name_gets_past(name: str) -> None:
    assert SHOWING.refusal(name.split("/")) == "denied"


@pytest.mark.parametrize("pair", ["id_rsa", "id_ed25519", "work_deploy_key_prod", "deploy-key-x"])
@pytest.mark.parametrize(
    "rest",
    ["", "_old", ".private", "pub", ".pub_", ".publ", "b", "ub", "_b", "_ub", "_pub", ".bub"],
)
def test_all_of_a_key_pair_but_what_is_public_is_denied(pair: str, rest: str) -> None:
    assert SHOWING.refusal([pair + rest]) == "denied"
    assert SHOWING.refusal([f"{pair}{rest}.pub"]) is None


@pytest.mark.parametrize(
    "name",
    [
        "ssh_host_rsa_key",
        "ssh_host_ed25519_key",
        "deploy_key",
        "github_deploy_key.txt",
        "deploy-key",
        "private.der",
        "serviceAccountKey.json",
        "my-serviceAccountKey.json",
        "app-firebase-adminsdk-x1.json",
        "kubeconfig.yaml",
        "prod-kubeconfig.yml",
        "accessTokens.json",
        "msal_token_cache.json",
        "aws_credentials",
        "gcp_credentials.json",
        "secret.yml",
        "secret.yaml",
        "secret.json",
        "api_key.txt",
        "api_key_prod.txt",
        "apikey",
        "passwords.csv",
        "password.txt",
        "Login Data",
        "Login Data For Account",
    ],
)
def test_files_that_tools_keep_keys_in_are_denied(name: str) -> None:
    assert SHOWING.refusal([name]) == "denied"


@pytest.mark.parametrize(
    "path",
    [
        ".ssh/config",
        "home/x/.ssh/known_hosts",
        ".SSH/x",
        ".ssh/deep/er/y",
        ".docker/config.json",
        ".docker/CONFIG.JSON.bak",
        ".config/gh/hosts.yml",
        "x/huggingface/token",
    ],
)
def test_a_pattern_with_a_slash_matches_components_in_a_row(path: str) -> None:
    assert SHOWING.refusal(path.split("/")) == "denied"


@pytest.mark.parametrize(
    "path",
    ["docker/config.json", "gh/hosts.yml", "config.json", "hosts.yml", ".config/x/y/hosts.yml"],
)
def test_a_pattern_with_a_slash_matches_nothing_less(path: str) -> None:
    assert SHOWING.refusal(path.split("/")) is None


@pytest.mark.parametrize(
    "name", [".x", "..foo", "...", ".g\u200cit", "\u200b.git", "\uff0ehidden", "\u2026notes", ".. "]
)
def test_what_folds_to_a_leading_dot_is_hidden(name: str) -> None:
    assert HIDING.refusal(["a", name, "b"]) == "hidden"


@pytest.mark.parametrize("name", ["\uff0e\uff0e", "\u2025", "\uff0e"])
def test_a_form_of_two_dots_is_a_name_like_any_other(name: str) -> None:
    assert HIDING.refusal([name]) is None


def test_the_default_denies_at_least_what_was_found_worth_denying() -> None:
    assert len(DENY) >= 136
    assert len(set(DENY)) == len(DENY)
    assert all(pattern == pattern.lower() for pattern in DENY)


@pytest.mark.parametrize("pattern", ["secrets", "secrets/", "./secrets", "/secrets", "secrets/**"])
def test_a_pattern_of_a_directory_denies_what_is_below_however_it_is_written(pattern: str) -> None:
    rules = NameRules((pattern,), allow_hidden=False)

    assert rules.refusal(["a", "Secrets", "b", "c.txt"]) == "denied"


def test_a_pattern_for_any_depth_is_one_for_a_name() -> None:
    rules = NameRules(("**/*.sec", "a/[b-d]?.txt"), allow_hidden=False)

    assert rules.refusal(["x.sec"]) == rules.refusal(["y", "x.sec"]) == "denied"
    assert rules.refusal(["a", "c1.txt"]) == "denied"
    assert rules.refusal(["a", "e1.txt"]) is rules.refusal(["a", "c12.txt"]) is None


@pytest.mark.parametrize("pattern", ["", "/", ".", "**", "../x", "a/../b", "a/**/b", "a\\b"])
def test_a_pattern_that_could_never_match_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="deny pattern"):
        NameRules((pattern,), allow_hidden=False)


@pytest.mark.parametrize("deny", ["*.pem", (1,), (None,)])
def test_patterns_are_strings_in_a_tuple(deny: tuple[str, ...]) -> None:
    with pytest.raises(TypeError, match="deny"):
        NameRules(deny, allow_hidden=False)


@pytest.mark.parametrize("pattern", ["*", "*a", "a*", "*a*", "a*b", "?", "[ab]", "ab", "*?"])
@pytest.mark.parametrize("name", ["a", "b", "ab", "ba", "aab", "abb", "aba", "c", "[ab]", "*"])
def test_every_kind_of_pattern_matches_as_fnmatch_does(pattern: str, name: str) -> None:
    expected = fnmatchcase(name, pattern)

    assert (NameRules((pattern,), allow_hidden=True).refusal([name]) == "denied") is expected
    below = NameRules((f"x/{pattern}",), allow_hidden=True)
    assert (below.refusal(["x", name]) == "denied") is expected


def test_no_pattern_denies_nothing() -> None:
    rules = NameRules((), allow_hidden=True)

    assert rules.refusal(["id_rsa"]) is rules.refusal([".env"]) is rules.refusal([]) is None


def test_folding_twice_changes_nothing() -> None:
    for code in range(0x30000):
        folded = fold(chr(code))
        assert fold(folded) == folded


def test_hostile_names_are_judged_in_time_in_proportion_to_their_length() -> None:
    for name in (
        "~",
        ".bak",
        ".1",
        "1-",
        " (1)",
        " - copy",
        "copy of ",
        "*",
        "token",
        "token-",
        "api key ",
        "\u0344",
        "\ufdfa",
    ):
        path = [f"{(name * 255)[:250]}{number}x" for number in range(128)]
        with effort_below(30, name):  # a backtracking pattern takes years
            SHOWING.refusal(path)


def names_in(file: str) -> list[str]:
    lines = (NAMES / file).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("# ")]


# Too general to be refused: other programs have files of these names.
LET_THROUGH = {
    "12words.txt",
    ".config/zed/settings.json",
    ".gemini/settings.json",
    "SecretId.csv",
    "auth.yaml.bak",
    "aws.json",
    "certs-and-keys.tgz",
    "db.conf.bak",
    "gradle.properties",
    "local.properties",
    "mypass.txt",
    "mysql.cnf",
    "pat.txt",
    "profiles.yml",
    "secrets.yaml.dec",
}


def test_names_of_credentials_are_denied_in_every_form() -> None:
    names = names_in("credential_names.txt")

    passed = {name for name in names if SHOWING.refusal(name.strip("/").split("/")) != "denied"}

    assert len(names) > 550
    assert passed == LET_THROUGH


def test_ordinary_names_are_not_denied_for_their_words() -> None:
    names = names_in("ordinary_names.txt")

    refused = {name for name in names if SHOWING.refusal(name.split("/")) is not None}

    assert len(names) > 350
    assert refused == {"wallets.csv"}


def test_folders_are_passed_and_listed_whatever_their_words_are(tmp_path: Path) -> None:
    for name in (
        "credentials/README.md",
        "credentials/prod.json",
        "token/api.py",
        "secrets/a/b.md",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text\n", encoding="utf-8")
    (tmp_path / "linked").symlink_to("credentials")
    (tmp_path / "passwords").write_text("hunter2\n", encoding="utf-8")
    access = FileAccess(tmp_path)

    def names(path: str) -> list[object]:
        listed: Any = access.list(path)["entries"]
        return [entry["name"] for entry in listed]

    assert names(".") == ["credentials", "linked", "secrets", "token"]
    assert names("credentials") == names("linked") == ["README.md"]
    assert names("secrets/a") == ["b.md"]
    assert access.read("linked/README.md")["text"] == "text\n"
    for path in ("credentials/prod.json", "linked/prod.json", "passwords"):
        with pytest.raises(ToolError, match="keys or credentials"):
            access.read(path)
    with pytest.raises(ToolError, match="keys or credentials"):
        access.list("passwords")


def test_patterns_of_words_name_data_files() -> None:
    rules = NameRules(
        ("{door code}", "{alarm *}", "{gate}.json", "{hatch}.", "{vaults}/*"), allow_hidden=False
    )

    for name in (
        "door-code.txt",
        "DoorCodes.json",
        "front door code",
        "mydoorcodes.csv.zip",
        "door_code.prod.yaml",
        "alarm-jo.txt",
        "gate.json",
        "old gate.json.bak",
        "hatch",
        "vaults/one.txt",
        "a/vaults/b/two",
    ):
        assert rules.refusal(name.split("/")) == "denied", name
    for name in (
        "door.txt",
        "code-door.txt",
        "door-code.py",
        "door-code-policy.txt",
        "sample door code.txt",
        "door-code-meeting.txt",
        "gate.txt",
        "hatch.csv",
        "vaults/README.md",
        "docs/door-code.txt",
    ):
        assert rules.refusal(name.split("/")) is None, name


@pytest.mark.parametrize("pattern", ["a/{b}", "{a}/b", "{a}/{b}"])
def test_a_pattern_of_words_stands_alone_or_for_a_folder(pattern: str) -> None:
    with pytest.raises(ValueError, match="words in braces"):
        NameRules((pattern,), allow_hidden=False)

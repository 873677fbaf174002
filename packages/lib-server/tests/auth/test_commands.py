import json
from pathlib import Path

from click.testing import CliRunner, Result

from lib_server.auth.commands import command
from lib_server.auth.keys import parse_key


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def listed(store: str) -> list[dict[str, object]]:
    return [
        json.loads(line) for line in run("list", "--store", store, "--json").output.splitlines()
    ]


def test_a_key_is_printed_once_and_listed_without_its_secret(tmp_path: Path) -> None:
    store = str(tmp_path / "lib.db")
    created = run(
        *("create", "--store", store, "--tenant", "acme", "--user", "ann"),
        *("--scope", "read", "--scope", "approve", "--name", "phone", "--expires-in", "90d"),
    )
    key = created.stdout.strip()
    parsed = parse_key(key, "lib_sk")

    assert parsed is not None
    [record] = listed(store)
    assert record["key_id"] == parsed.key_id
    assert (record["tenant"], record["user"], record["name"]) == ("acme", "ann", "phone")
    assert record["scopes"] == ["approve", "read"]
    assert "digest" not in record
    line = run("list", "--store", store).output
    assert f"{parsed.key_id}  acme/ann  approve,read  until " in line
    assert key[20:63] not in line


def test_rotate_and_revoke(tmp_path: Path) -> None:
    store = str(tmp_path / "lib.db")
    first = parse_key(run("create", "--store", store).stdout.strip(), "lib_sk")
    assert first is not None
    assert run("rotate", first.key_id, "--store", store, "--grace", "2h").exit_code == 0
    assert run("revoke", first.key_id, "--store", store).output == f"revoked {first.key_id}\n"

    old, new = listed(store)
    assert old["revoked_at"] is not None
    assert old["expires_at"] is not None
    assert (new["revoked_at"], new["expires_at"]) == (None, None)
    assert "revoked" in run("list", "--store", store).output


def test_errors_are_one_line(tmp_path: Path) -> None:
    store = str(tmp_path / "lib.db")
    run("create", "--store", store)
    pepper = tmp_path / "pepper"
    pepper.write_text("short", encoding="utf-8")
    wrong = {
        "no API key 'x'": ["revoke", "x", "--store", store],
        "such as 90d": ["create", "--store", store, "--expires-in", "soon"],
        "expected a tenant": ["create", "--store", store, "--tenant", "../t2"],
        "16 bytes": ["create", "--store", store, "--pepper-file", str(pepper)],
        "cannot be opened": ["list", "--store", str(tmp_path / "missing.db")],
    }
    for text, arguments in wrong.items():
        result = run(*arguments)
        assert result.exit_code != 0
        assert text in result.output, arguments
        assert "Traceback" not in result.output

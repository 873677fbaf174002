"""Which names are never shared: keys, credentials, histories, and what is hidden.

A pattern is matched against every component of a path, or, when it holds "/", against as many
components in a row; both sides are folded first, so that no spelling of a name that some file
system takes for the same name gets past. The rules are pure: they see names, never files.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from typing import Final, Literal

Refusal = Literal["hidden", "denied"]

_ENVIRONMENTS: Final = ".env .env.* .env-* .env_* .envs/* *.env .envrc"
_KEYS: Final = """
    *_rsa *_dsa *_ecdsa *_ed25519 ssh_host_*_key *deploy_key *deploy-key *.pem *.key *.der *.p12
    *.pfx *.pkcs12 *.p8 *.pk8 *.jks *.jceks *.keystore *.bks *.ppk *.gpg *.pgp secring.* *.snk
    *.mobileprovision .ssh/* .gnupg/*
"""
# Names of key pairs: whatever follows, but for what ends with ".pub", which is made to be shown.
_PAIRS: Final = (
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_xmss",
    "*deploy_key_",
    "*deploy-key-",
)
_NOT_PUBLIC: Final = ("", "*[!b]", "b", "*[!u]b", "ub", "*[!p]ub", "pub", "*[!.]pub")
_PAIRED: Final = " ".join(start + rest for start in _PAIRS for rest in _NOT_PUBLIC)
_VAULTS: Final = """
    *.kdbx *.kdb *.psafe3 *.agilekeychain *.opvault *.keychain *.keychain-db *.kwallet
    .password-store/* logins.json key3.db key4.db cookies.sqlite
    login?data login?data?for?account password.txt passwords.txt password.csv passwords.csv
"""
_REMOTE_ACCESS: Final = """
    *.ovpn *.tblk *.rdp filezilla.xml recentservers.xml sftp-config.json .ftpconfig
    .vscode/sftp.json wg[0-9].conf
"""
_TOOLS: Final = """
    .netrc _netrc .npmrc .yarnrc.yml .pypirc .git-credentials .pgpass pgpass.conf .my.cnf
    .mylogin.cnf .s3cfg .boto .dockercfg .docker/config.json .cargo/credentials* .gem/credentials
    .config/gh/hosts.yml .huggingface/token huggingface/token .databrickscfg .snowsql/config
    .sentryclirc rclone.conf .rclone.conf .msmtprc .fetchmailrc .muttrc .mailrc .m2/settings.xml
    .m2/settings-security.xml .gradle/gradle.properties composer/auth.json .composer/auth.json
    .config/hub .config/doctl/config.yaml .config/op/* .config/sops/age/keys.txt .fly/config.yml
"""
_CLOUDS: Final = """
    .aws/* .azure/* .config/gcloud/* .oci/* .kube/* kubeconfig *.kubeconfig *kubeconfig.yaml
    *kubeconfig.yml application_default_credentials.json service-account*.json
    service_account*.json serviceaccount*.json *-service-account.json *_service_account.json
    *serviceaccountkey.json *firebase-adminsdk*.json client_secret*.json gcp-key*.json credentials
    credentials.json credentials.xml credentials.yml credentials.yaml credentials.toml
    credentials.ini credentials.csv credentials.db aws_credentials *_credentials.json
    *-credentials.json secret.json secret.yml secret.yaml secrets.json secrets.yml secrets.yaml
    secrets.toml secrets.env *.secret *.secrets token.json tokens.json accesstokens.json
    access_tokens.json msal_token_cache.* *.token master.key api_key apikey api-key api_key*.txt
    apikey*.txt api-key*.txt
"""
_INFRASTRUCTURE: Final = """
    *.tfstate *.tfstate.* *.tfvars *.tfvars.json .terraformrc terraform.rc .terraform.d/*
    credentials.tfrc.json .vault-token .vault_pass* vault_pass* .htpasswd htpasswd shadow shadow-
    gshadow gshadow- *.keytab krb5cc_* *.ccache wallet.dat *.wallet utc--*
"""
_HISTORIES: Final = "*_history .bash_history .zsh_history .python_history"

_GROUPS: Final = (
    _ENVIRONMENTS,
    _KEYS,
    _PAIRED,
    _VAULTS,
    _REMOTE_ACCESS,
    _TOOLS,
    _CLOUDS,
    _INFRASTRUCTURE,
    _HISTORIES,
)
DENY: Final[tuple[str, ...]] = tuple(" ".join(_GROUPS).split())
"""Names that are never read or listed, whatever `allow_hidden` says.

`*`, `?` and `[…]` match inside one component. A pattern without "/" matches any component, so that
everything under a directory of that name is refused, too; one with "/" matches components in a row,
anywhere. Letter case, compatibility forms and invisible characters make no difference, and neither
does the ending of a copy ("~", ".bak", ".1", ".2024-05-01", ".gz", ".txt" and the like).
"""

# HFS+ ignores these in names; nobody sees them anywhere. The general category Cf holds the rest.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_WILD: Final = re.compile(r"[*?\[]")
# Histories are an exception: what goes by release_history.txt is no shell's.
_COPY: Final = re.compile(
    r"(?:~|\.(?:bak|backup|copy|dist|local|old|orig|save|saved|swp|swo|tar|tmp|bz2|gz|xz|zip|zst|~[0-9]+~"
    r"|[0-9]++(?:[-_][0-9]++)*+)|(?<!_history)\.txt)++$"
)
_NUMBERED: Final = re.compile(r" ?\([0-9]{1,4}\)(?=\.|$)")


def fold(name: str) -> str:
    """Return what a name's spellings have in common, whatever their case and composition."""
    if name.isascii():
        return name.lower()
    seen = "".join(char for char in name if unicodedata.category(char) != "Cf")
    folded = unicodedata.normalize("NFKC", _INVISIBLE.sub("", seen)).casefold()
    return unicodedata.normalize("NFKC", folded)


def _forms(folded: str) -> set[str]:
    """Return the names that some system takes for this one, and what it is a backup copy of."""
    forms = {folded, folded.split(":", 1)[0]}  # before ":" stands the file of a Windows stream
    forms |= {form.rstrip(" .") for form in forms}
    forms |= {_NUMBERED.sub("", form) for form in forms}  # what a browser makes of a second one
    forms |= {_COPY.sub("", form) for form in forms}
    return forms


class NameRules:
    """Says of the components of a path whether one of them is hidden or denied."""

    def __init__(self, deny: Sequence[str], *, allow_hidden: bool) -> None:
        """Compile the patterns.

        Raises:
            TypeError: `deny` is one string, or holds something else than strings; `allow_hidden` is
                neither True nor False.
            ValueError: a pattern is empty, or could never match what it was meant for.
        """
        _check(deny, allow_hidden)
        self._allow_hidden = allow_hidden
        rows = [_parts(pattern) for pattern in deny]
        self._anywhere = _Patterns([row[0] for row in rows if len(row) == 1])
        self._rows = [row for row in rows if len(row) > 1]
        self._above = max((len(row) - 1 for row in self._rows), default=0)
        # Nearly every name of a directory is judged by the same patterns.
        self._denied_in = lru_cache(maxsize=1024)(self._patterns_in)

    def refusal(self, names: Sequence[str]) -> Refusal | None:
        """Return why a path of these components is refused, or None.

        Args:
            names: components in order, without "." and "..".
        """
        for count in range(1, len(names) + 1):
            refused = self.refusal_of_last(names[max(0, count - self._above - 1) : count])
            if refused:
                return refused
        return None

    def refusal_of_last(self, names: Sequence[str]) -> Refusal | None:
        """Return why the last component is refused, where those before it are not."""
        here = self._denied_in(tuple(names[max(0, len(names) - self._above - 1) : -1]))
        # A compatibility form of "/" is a part of the name here, and a separator elsewhere.
        parts = fold(names[-1]).split("/")
        for form in (form for part in parts for form in _forms(part)):
            if self._anywhere.match(form) or (here and here.match(form)):
                return "denied"
        hidden = any(part.startswith(".") and part not in (".", "..") for part in parts)
        return "hidden" if hidden and not self._allow_hidden else None

    def _patterns_in(self, above: tuple[str, ...]) -> _Patterns | None:
        """Return what matches the names that are denied below these components only."""
        ends = [row[-1] for row in self._rows if _ends_with(above, row[:-1])]
        return _Patterns(ends) if ends else None


class _Patterns:
    """Patterns for one name; the usual kinds are told without a regular expression."""

    def __init__(self, patterns: Sequence[str]) -> None:
        plain = [pattern for pattern in patterns if not _WILD.search(pattern)]
        after = [p[1:] for p in patterns if p[:1] == "*" and not _WILD.search(p[1:])]
        before = [p[:-1] for p in patterns if p[-1:] == "*" and not _WILD.search(p[:-1])]
        known = {*plain, *(f"*{end}" for end in after), *(f"{start}*" for start in before)}
        rest = [f"(?:{translate(pattern)})" for pattern in patterns if pattern not in known]
        self._names, self._ends, self._starts = frozenset(plain), tuple(after), tuple(before)
        self._rest = re.compile("|".join(rest)) if rest else None

    def match(self, name: str) -> bool:
        """Tell whether one of the patterns matches the whole name."""
        return (
            name in self._names
            or name.endswith(self._ends)
            or name.startswith(self._starts)
            or (self._rest is not None and self._rest.match(name) is not None)
        )


def _ends_with(names: Sequence[str], row: Sequence[str]) -> bool:
    """Tell whether the last components are what the row of patterns wants."""
    return len(row) <= len(names) and all(
        any(fnmatchcase(form, pattern) for form in _forms(fold(name)))
        for pattern, name in zip(row, names[len(names) - len(row) :], strict=True)
    )


def _check(deny: object, allow_hidden: object) -> None:
    if isinstance(deny, str):
        raise TypeError("deny is a tuple of patterns, not one string: write ('*.pem',)")
    if not isinstance(deny, Iterable):
        raise TypeError(f"deny is a tuple of patterns, not {type(deny).__name__}")
    if not isinstance(allow_hidden, bool):
        raise TypeError(f"allow_hidden is True or False, not {type(allow_hidden).__name__}")


def _parts(pattern: object) -> list[str]:
    if not isinstance(pattern, str):
        raise TypeError(f"a deny pattern is a string, not {type(pattern).__name__}")
    if "\\" in pattern:
        raise ValueError(f"deny pattern {pattern!r} holds a backslash: separate names by '/'")
    parts = [fold(part) for part in pattern.split("/") if part not in ("", ".")]
    while parts and parts[0] == "**":
        del parts[0]
    while len(parts) > 1 and parts[-1] == "**":
        parts[-1] = "*"
    if not parts or ".." in pattern.split("/"):
        raise ValueError(
            f"deny pattern {pattern!r} matches no path: write a name, '*.ext' or 'a/b'"
        )
    if "**" in parts:
        raise ValueError(f"deny pattern {pattern!r}: '**' stands only at the start or at the end")
    return parts

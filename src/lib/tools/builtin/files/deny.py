"""Which names are never shared: keys, credentials, histories, and what is hidden.

A pattern is matched against every component of a path, or, when it holds "/", against as many
components in a row; both sides are folded first, so that no spelling of a name that some file
system takes for the same name gets past. The rules are pure: they see names, never files.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Final, Literal

Refusal = Literal["hidden", "denied"]

_ENVIRONMENTS: Final = ".env .env.* .env-* .env_* .envs/* *.env .envrc"
_KEYS: Final = """
    id_rsa* id_dsa* id_ecdsa* id_ed25519* id_xmss* *_rsa *_dsa *_ecdsa *_ed25519 *.pem *.key *.p12
    *.pfx *.pkcs12 *.p8 *.pk8 *.jks *.jceks *.keystore *.bks *.ppk *.gpg *.pgp secring.* *.snk
    *.mobileprovision .ssh/* .gnupg/*
"""
_VAULTS: Final = """
    *.kdbx *.kdb *.psafe3 *.agilekeychain *.opvault *.keychain *.keychain-db *.kwallet
    .password-store/* logins.json key3.db key4.db cookies.sqlite
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
    .aws/* .azure/* .config/gcloud/* .oci/* .kube/* kubeconfig *.kubeconfig
    application_default_credentials.json service-account*.json service_account*.json
    *-service-account.json *_service_account.json client_secret*.json gcp-key*.json credentials
    credentials.json credentials.xml credentials.yml credentials.yaml credentials.toml
    credentials.ini credentials.csv credentials.db secrets.json secrets.yml secrets.yaml
    secrets.toml secrets.env *.secret *.secrets token.json tokens.json *.token master.key
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
does the ending of a backup copy ("~", ".bak", ".old" and the like).
"""

# HFS+ ignores these in names; nobody sees them anywhere. The general category Cf holds the rest.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_COPY: Final = re.compile(r"(~|\.(bak|backup|copy|old|orig|save|saved|swp|swo|tmp|~[0-9]+~))+$")


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
    forms |= {_COPY.sub("", form) for form in forms}
    return forms


class NameRules:
    """Says of the components of a path whether one of them is hidden or denied."""

    def __init__(self, deny: Sequence[str], *, allow_hidden: bool) -> None:
        """Compile the patterns.

        Raises:
            TypeError: `deny` is one string, or holds something else than strings.
            ValueError: a pattern is empty, or could never match what it was meant for.
        """
        if isinstance(deny, str):
            raise TypeError("deny is a tuple of patterns, not one string: write ('*.pem',)")
        self._allow_hidden = allow_hidden
        self._single: re.Pattern[str] | None = None
        self._rows: list[tuple[re.Pattern[str], ...]] = []
        single: list[str] = []
        for pattern in deny:
            parts = _parts(pattern)
            if len(parts) == 1:
                single.append(translate(parts[0]))
            else:
                self._rows.append(tuple(re.compile(translate(part)) for part in parts))
        self._longest = max((len(row) for row in self._rows), default=1)
        if single:
            self._single = re.compile("|".join(f"(?:{one})" for one in single))
        # The same directories are passed again and again.
        self._judged = lru_cache(maxsize=4096)(self._judge)

    def refusal(self, names: Sequence[str]) -> Refusal | None:
        """Return why a path of these components is refused, or None.

        Args:
            names: components in order, without "." and "..".
        """
        for count in range(1, len(names) + 1):
            refused = self.refusal_of_last(names[max(0, count - self._longest) : count])
            if refused:
                return refused
        return None

    def refusal_of_last(self, names: Sequence[str]) -> Refusal | None:
        """Return why the last component is refused, where those before it are not."""
        return self._judged(tuple(names[-self._longest :]))

    def _judge(self, names: tuple[str, ...]) -> Refusal | None:
        # A compatibility form of "/" is a part of the name here, and a separator elsewhere.
        for part in fold(names[-1]).split("/"):
            if self._single and any(self._single.match(form) for form in _forms(part)):
                return "denied"
        if any(self._ends_with(names, row) for row in self._rows):
            return "denied"
        hidden = any(
            part.startswith(".") and part not in (".", "..") for part in fold(names[-1]).split("/")
        )
        return "hidden" if hidden and not self._allow_hidden else None

    def _ends_with(self, names: Sequence[str], row: Sequence[re.Pattern[str]]) -> bool:
        return len(row) <= len(names) and all(
            any(pattern.match(form) for form in _forms(fold(name)))
            for pattern, name in zip(row, names[-len(row) :], strict=True)
        )


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

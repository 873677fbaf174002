"""Rules for names that are never shared: keys, credentials, histories, and what is hidden.

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
from typing import Final, Literal, NamedTuple

from lib.tools.builtin.files.words import WordPatterns, holds_data, is_about, is_word_pattern

# HFS+ ignores these in names, and no system shows them. The general category Cf holds the rest.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# What people, editors, package managers and browsers put behind a name, or before its ending.
_COPY_WORDS: Final = (
    "bac?k|bkp|backup|copy|copie|kopie|kopia|copia|c\u00f3pia|dist|local|old|orig|original|prev"
    "|previous|rej|save|saved|sav|swp|swo|swn|tmp|temp|new|part|partial|crdownload|download"
)
_PACKAGE_MARKS: Final = (
    "rpm(?:save|new|orig)|dpkg-(?:old|dist|new|bak|tmp)|ucf-(?:old|dist|new)|pac(?:save|new|orig)"
)
_PACKED_COPY: Final = (
    "tar|tgz|tbz2?|txz|zip|7z|rar|gz|bz2|xz|zst|lz4|lzma|br|z|gpg|pgp|asc|age|enc|encrypted|aes"
    "|~[0-9]+~"
)
_DATE: Final = r"[0-9]++(?:[-_.t][0-9]++)*+z?"
_AFTER: Final = re.compile(
    rf"(?:[~#]|\.un~|\.(?:{_PACKAGE_MARKS}|{_PACKED_COPY})"
    rf"|(?:[ ._-]++(?:{_COPY_WORDS})[0-9]{{0,4}}|[ ._-]v?{_DATE}| ?\([0-9]{{1,4}}\)))"
    r"(?=\.[^. ]+$|$)"
)
_BEFORE: Final = re.compile(
    r"(?:(?:copy|backup|kopie|kopia|copie|copia|c\u00f3pia)(?: ?\([0-9]{1,4}\))?"
    r" (?:of|von|de|di|da) +"
    r"|(?:old|bak|backup|copy|orig|tmp)[ _-]+|\.?#|~\$|\.~lock\.)"
)
# Histories are an exception: what goes by release_history.txt is no shell's.
_TEXT: Final = re.compile(r"(?<!_history)\.txt$")
_VIM: Final = re.compile(r"\.(.+)\.sw[a-z]$")
_MAX_ROUNDS: Final = 8


def fold(name: str) -> str:
    """Return what a name's spellings have in common, whatever their case and composition."""
    if name.isascii():
        return name.lower()
    seen = "".join(char for char in name if unicodedata.category(char) != "Cf")
    folded = unicodedata.normalize("NFKC", _INVISIBLE.sub("", seen)).casefold()
    return unicodedata.normalize("NFKC", folded)


def forms(folded: str) -> set[str]:
    """Return the names that some system takes for this one, and what it may be a copy of."""
    found = {folded, folded.split(":", 1)[0]}  # before ":" stands the file of a Windows stream
    found |= {form.rstrip(" .") for form in found}
    latest = found
    for _ in range(_MAX_ROUNDS):
        latest = {one for form in latest for one in _originals(form) if one} - found
        if not latest:
            break
        found |= latest
    return found


def _originals(name: str) -> tuple[str, ...]:
    """Return what is left of a name without one mark of each kind."""
    return (
        _AFTER.sub("", name).rstrip(" -"),
        _BEFORE.sub("", name, count=1) if _BEFORE.match(name) else name,
        _TEXT.sub("", name),
        _VIM.sub(r"\1", name),
    )


Refusal = Literal["hidden", "denied"]

_ENVIRONMENTS: Final = """
    .env .env-* .env_* .env.[!est]* .env.[est] .env.e[!x]* .env.s[!a]* .env.t[!e]* .env.te[!m]*
    .envs/* *.env .envrc env.local env.prod* env.staging env.dev env.development env.bak* env.old
    dotenv
"""
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
    *.kdbx *.kdb *.psafe3 *.agilekeychain *.opvault *.1pux *.1pif *.keychain *.keychain-db *.kwallet
    *.keyring keyrings/* .password-store/* logins.json key3.db key4.db cookies.sqlite
    cookies.binarycookies login?data* web?data cookies-journal places.sqlite default/cookies
    network/cookies profile*/cookies *emergency?kit*.pdf
"""
_REMOTE_ACCESS: Final = """
    *.ovpn *.tblk *.rdp *.nmconnection filezilla.xml recentservers.xml sitemanager.xml
    sftp-config.json .ftpconfig .vscode/sftp.json wg*.conf wireguard*.conf wpa_supplicant.conf
    chap-secrets pap-secrets ipsec.secrets .rhosts .xauthority .iceauthority
"""
_TOOLS: Final = """
    .netrc netrc _netrc .npmrc npmrc _auth .yarnrc .yarnrc.yml .pypirc pypirc .git-credentials
    .pgpass pgpass.conf .my.cnf .mylogin.cnf .s3cfg .boto .dockercfg .docker/config.json
    .cargo/credentials* .gem/credentials .databrickscfg .snowsql/config .sentryclirc rclone.conf
    .rclone.conf .msmtprc .fetchmailrc .muttrc .mailrc .m2/settings.xml .m2/settings-security.xml
    .gradle/gradle.properties pip.conf .condarc nuget.config .bundle/config .erlang.cookie
    .subversion/auth/* containers/auth.json .config/hub .config/doctl/* .config/op/* .config/sops/*
    .fly/config.yml .circleci/cli.yml .ngrok* .config/gh/* .config/glab-cli/* .config/hcloud/*
    .config/stripe/* .config/ngrok/* .config/configstore/* .config/netlify/* .config/rclone/*
    .config/git/credentials .railway/config.json .jupyter/*config*.json nbserver-*.json
    huggingface/token .huggingface/token .dockerconfigjson .modal.toml .snowflake/*
    .dbt/profiles.yml .mc/config.json signing.properties wp-config.php arduino_secrets.h secrets.sh
"""
_CLOUDS: Final = """
    .aws/* .azure/* .config/gcloud/* .oci/* .kube/* *.kubeconfig *.kube kubernetes/*.conf k3s.yaml
    application_default_credentials.json *firebase-adminsdk*.json client_secret*.json gcp-key*.json
    *-sa.json *_sa.json kaggle.json *.publishsettings *.secret *.secrets *.token *.password
    *.passwords *.pass *.passwd *.pw *.credentials *.creds ?*secret.txt ?*[-_]secret
    msal_token_cache.* accesstokens.json azureauth.json rootkey.csv
"""
# A key of a service account is named after its project and the first digits of its own number.
_GOOGLE_KEY: Final = f"*-{'[0-9a-f]' * 12}.json"
_INFRASTRUCTURE: Final = """
    *.tfstate *.tfstate.* *.tfvars *.tfvars.json .terraformrc terraform.rc .terraform.d/*
    credentials.tfrc.json .vault-token .vault_pass* vault_pass* .htpasswd htpasswd shadow- gshadow-
    passwd- master.passwd htdigest ntds.dit *.hive etc/shadow etc/gshadow *.keytab krb5cc_* *.ccache
    wallet.dat *.wallet utc--*
"""
_HISTORIES: Final = """
    .*_history fish_history bash_history zsh_history sh_history python_history mysql_history
    psql_history sqlite_history consolehost_history.txt .lesshst .viminfo .histfile .history
    .zhistory
"""
# What agents and command lines keep below a folder of their own.
_AGENTS: Final = """
    .claude.json .claude/history.jsonl .codex/sessions/* .codex/history.jsonl .aider* .openai*/*
    .anthropic*/* claude_desktop_config.json *.vscdb mcp_config.json .continue/config.*
    .copilot/config.json .*/keys.* .*/mcp*.json .*/*accounts*.json .*/auth* .*/oauth*
    .*/user-settings.json .config/*/auth* .config/*/hosts.* .config/*/apps.json .config/*/keys.*
    .config/aichat/* .config/mods/* .config/crush/* .config/opencode/* share/*/sessions/*
    share/*/auth* state/*/auth* .*/access?token .*/token
"""
# Words of the names of data files; see `lib.tools.builtin.files.words`.
_OPEN: Final = """
    credential, cred, secrets, passwords, passphrase, zugangsdaten, anmeldedaten, passwörter,
    passwoerter, kennwörter, contraseñas, mots de passe, senhas, wachtwoorden, hasla, пароли, 密码,
    パスワード, api key, access key, secret key, private key, signing key, encryption key, service
    account key, client secret, secret access key, access token, refresh token, auth token, oauth
    token, bearer token, api token, session token, bot token, recovery codes, recovery key, recovery
    phrase, backup codes, seed phrase, secret phrase, unseal key, init key, root key, root token,
    master key, vault pass, vault key, ssh key, gpg key, pgp key, account key, storage key,
    subscription key, connection string, bitwarden, lastpass export, keepass export, dashlane
    export, password export, kubeconfig, kube config, personal access token, license key, auth info,
    password list, login data, login detail, wallet seed, ledger seed, database url
"""
_CLOSED: Final = """
    token, password, passwd, pwd, passwort, kennwort, contraseña, senha, wachtwoord, mot de passe,
    hasło, пароль, passcode, pgpass, mnemonic, wallet, keystore, metamask vault, openai key,
    anthropic key, claude key, gemini key, google key, gcp key, gcloud key, aws key, azure key,
    github key, gitlab key, stripe key, slack key, service key, sa key, host key, age key, jwt key,
    tls key, ssl key, rsa key, server key, client key, admin key, github pat, gitlab pat, devops
    pat, azure sp, docker config, pw, logins, bash history, zsh history, shell history, powershell
    history
"""
_ENDED: Final = """
    {auth}.json {auth}.toml {auth}.txt {auth}. {key}.json {key}.txt {key}. {pass}.txt {pass}.json
    {pass}. {logins}.csv {logins}.xlsx {cookies}.txt {cookies}.json {cookies}.db {cookies}.
    {pins}.txt {seed}.txt {lastpass}.csv {dashlane}.csv {keepass}.csv {keepass}.xml {nordpass}.csv
    {enpass}.json {dockerconfig}.json {regcred}.json {shadow}. {gshadow}. {secret}.json
    {secret}.yaml {secret}.yml {secret}.toml {secret}.ini {secret}.env {secret}.xml {secret}.db
    {secret}.properties
"""
# Folders of keys, packed.
_FOLDERS: Final = """
    ssh gnupg .ssh .gnupg .aws .azure .kube .docker *dot[-_]ssh *dot[-_]gnupg
"""
_PACKED: Final = " ".join(
    f"{name}.tar* {name}.tgz {name}.zip {name}.7z {name}.rar {name}[-_]backup*"
    for name in _FOLDERS.split()
)
_WORDS: Final = (
    *(f"{{{' '.join(words.split())} *}}" for words in _OPEN.split(",")),
    *(f"{{{' '.join(words.split())}}}" for words in _CLOSED.split(",")),
    *_ENDED.split(),
    "{service account *}.json",
    "{service principal *}.json",
    *(f"{{{name}}}/*" for name in ("credential", "cred", "secrets", "passwords")),
)

_GROUPS: Final = (
    _ENVIRONMENTS,
    _KEYS,
    _PAIRED,
    _VAULTS,
    _REMOTE_ACCESS,
    _TOOLS,
    _CLOUDS,
    _GOOGLE_KEY,
    _INFRASTRUCTURE,
    _HISTORIES,
    _AGENTS,
    _PACKED,
)
DENY: Final[tuple[str, ...]] = (*" ".join(_GROUPS).split(), *_WORDS)
"""Names that are never read or listed, whatever `allow_hidden` says.

`*`, `?` and `[…]` match inside one component. A pattern without "/" matches any component, so that
everything under a directory of that name is refused, too; one with "/" matches components in a row,
anywhere. `{api key}` matches data files (`.json`, `.txt`, no ending and the like) that these words
name, and where they are used after them; `{api key *}` with anything after them; `{auth}.json` with
this ending only, `{auth}.` with none; `{secrets}/*` what is in a folder of such a name. Programs,
pages and folders are not refused for their words, nor what tells about credentials: examples,
schemas, translations. Letter case, compatibility forms and invisible characters make no difference,
and neither do marks of copies and archives ("~", ".bak2", " - Copy", ".1", ".2024-05-01", ".zip").
"""

_WILD: Final = re.compile(r"[*?\[]")


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
        words = {row[0] for row in rows if len(row) == 1 and is_word_pattern(row[0])}
        self._anywhere = _Patterns([r[0] for r in rows if len(r) == 1 and r[0] not in words])
        self._words = WordPatterns(sorted(words))
        in_folders = [row for row in rows if len(row) > 1 and is_word_pattern(row[0])]
        self._folders = WordPatterns(row[0] for row in in_folders)
        self._rows = [row for row in rows if len(row) > 1 and row not in in_folders]
        self._above = max((len(row) - 1 for row in self._rows), default=0)
        # Nearly every name of a directory is judged by the same patterns, below the same names.
        self._below = lru_cache(maxsize=1024)(self._rules_below)
        self._folder = lru_cache(maxsize=1024)(self._folder_of)

    def refusal(self, names: Sequence[str], *, directory: bool = False) -> Refusal | None:
        """Return why a path of these components is refused, or None.

        Args:
            names: components in order, without "." and "..".
            directory: whether the last one can only be a directory, as those before it are.
        """
        last = len(names)
        for count in range(1, last + 1):
            refused = self.refusal_of_last(names[:count], directory=directory or count < last)
            if refused:
                return refused
        return None

    def refusal_of_last(self, names: Sequence[str], *, directory: bool = False) -> Refusal | None:
        """Return why the last component is refused, where those before it are not."""
        below = self._below(tuple(names[:-1]))
        # A compatibility form of "/" is a part of the name here, and a separator elsewhere.
        parts = fold(names[-1]).split("/")
        for found in map(forms, parts):
            if any(map(self._anywhere.match, found)) or any(map(below.patterns.match, found)):
                return "denied"
            if not directory and not below.is_about and self._is_named(found, below):
                return "denied"
        hidden = any(part.startswith(".") and part not in (".", "..") for part in parts)
        return "hidden" if hidden and not self._allow_hidden else None

    def _is_named(self, found: set[str], below: _Below) -> bool:
        """Return True if a file of these names holds what the words of a pattern say."""
        return self._words.match(found) or (below.holds_credentials and holds_data(found))

    def _rules_below(self, above: tuple[str, ...]) -> _Below:
        """Return what holds for the names below these components."""
        folders = [self._folder(name) for name in above]
        near = [folder.forms for folder in folders[max(0, len(folders) - self._above) :]]
        ends = [row[-1] for row in self._rows if _ends_with(near, row[:-1])]
        return _Below(
            _Patterns(ends),
            is_about=any(folder.is_about for folder in folders),
            holds_credentials=any(folder.holds_credentials for folder in folders),
        )

    def _folder_of(self, name: str) -> _Folder:
        found = forms(fold(name))
        return _Folder(found, is_about(found), self._folders.match_folder(found))


class _Folder(NamedTuple):
    """The verdict on a directory's content by its name."""

    forms: set[str]
    is_about: bool
    holds_credentials: bool


class _Below(NamedTuple):
    """The rules of one directory: patterns of rows, and the verdict on its path."""

    patterns: _Patterns
    is_about: bool
    holds_credentials: bool


class _Patterns:
    """Patterns for one name; the usual kinds need no regular expression."""

    def __init__(self, patterns: Sequence[str]) -> None:
        plain = [pattern for pattern in patterns if not _WILD.search(pattern)]
        after = [p[1:] for p in patterns if p[:1] == "*" and not _WILD.search(p[1:])]
        before = [p[:-1] for p in patterns if p[-1:] == "*" and not _WILD.search(p[:-1])]
        simple = {*plain, *(f"*{end}" for end in after), *(f"{start}*" for start in before)}
        rest = [f"(?:{translate(pattern)})" for pattern in patterns if pattern not in simple]
        self._names, self._ends, self._starts = frozenset(plain), tuple(after), tuple(before)
        self._rest = re.compile("|".join(rest)) if rest else None

    def match(self, name: str) -> bool:
        """Return True if one of the patterns matches the whole name."""
        return (
            name in self._names
            or name.endswith(self._ends)
            or name.startswith(self._starts)
            or (self._rest is not None and self._rest.match(name) is not None)
        )


def _ends_with(names: Sequence[set[str]], row: Sequence[str]) -> bool:
    """True if the last components, each with its forms, are what the row of patterns wants."""
    return len(row) <= len(names) and all(
        any(fnmatchcase(form, pattern) for form in found)
        for pattern, found in zip(row, names[len(names) - len(row) :], strict=True)
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
    if any(is_word_pattern(part) for part in parts) and parts[1:] not in ([], ["*"]):
        raise ValueError(
            f"deny pattern {pattern!r}: words in braces stand alone or before '/*' only"
        )
    if "**" in parts:
        raise ValueError(f"deny pattern {pattern!r}: '**' stands only at the start or at the end")
    return parts

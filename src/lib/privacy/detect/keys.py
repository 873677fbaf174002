"""The shapes of services' keys: prefixes, alphabets and lengths, in one table.

A shape is text with `<alphabet:length>` for what is random, or `<alphabet:least-most>`. Every
repetition has a limit, so that a hostile text costs a constant for each of its characters.

Sources: gitleaks, config/gitleaks.toml (8.30, July 2026); GitHub, "Supported secret scanning
patterns" (2026); and where neither has it, the service's own documentation of its keys. `NAMED` are
those of gitleaks' services whose keys have no prefix: they count after the service's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

_ALPHABETS: Final = {
    "digit": "0-9",
    "hex": "0-9a-f",
    "anyhex": "0-9a-fA-F",
    "lower": "0-9a-z",
    "upper": "0-9A-Z",
    "base32": "A-Z2-7",
    "bech32": "02-9AC-HJ-NP-Z",
    "letter": "A-Za-z",
    "alnum": "0-9A-Za-z",
    "word": "0-9A-Za-z_",
    "url": "0-9A-Za-z_-",
    "dotted": "0-9A-Za-z_.-",
    "lower-": "0-9a-z-",
    "alnum-": "0-9A-Za-z-",
    "base64": "0-9A-Za-z+/",
    "padded": "0-9A-Za-z+/=",
    "loose": "0-9A-Za-z_=.-",
    "percent": "0-9A-Za-z%",
}
_RANGE: Final = re.compile(r"[0-9]-[0-9]+>\Z")
_PIECE: Final = re.compile(r"<([a-z0-9-]+):([0-9]+)(?:-([0-9]+))?>")

_GITLAB: Final = "pat ptt rt dt cbt oas soat ft imt agent ffct rtr wt"
SHAPES: Final[Mapping[str, tuple[str, ...]]] = {
    # Models and what agents use
    "openai": (
        "sk-<alnum:20-200>",
        "sk-proj-<url:20-200>",
        "sk-svcacct-<url:20-200>",
        "sk-admin-<url:20-200>",
        "sk-None-<url:20-200>",
        "sess-<alnum:40>",
    ),
    "anthropic": ("sk-ant-<lower:2-12>-<url:20-200>",),
    "keys in the form of openai's": ("sk-<letter:2-12>-<url:20-200>", "sk-or-v1-<hex:64>"),
    "langfuse": ("sk-lf-<hex:8>-<hex:4>-<hex:4>-<hex:4>-<hex:12>",),
    "langsmith": ("lsv2_pt_<hex:32>_<hex:10>", "lsv2_sk_<hex:32>_<hex:10>", "ls__<hex:32>"),
    "groq": ("gsk_<alnum:40-80>",),
    "xai": ("xai-<alnum:60-120>",),
    "perplexity": ("pplx-<alnum:48-64>",),
    "hugging face": ("hf_<alnum:30-100>", "api_org_<alnum:30-100>"),
    "replicate": ("r8_<alnum:37-40>",),
    "fireworks": ("fw_<alnum:22-28>",),
    "together": ("tgp_v1_<url:43>",),
    "cerebras": ("csk-<lower:48>",),
    "nvidia": ("nvapi-<url:60-80>",),
    "elevenlabs": ("sk_<hex:48>",),
    "voyage": ("pa-<url:43>",),
    "jina": ("jina_<hex:32><url:20-40>",),
    "tavily": ("tvly-<alnum:30-40>", "tvly-dev-<alnum:30-40>", "tvly-prod-<alnum:30-40>"),
    "firecrawl": ("fc-<hex:32>",),
    "brave": ("BSA<url:28>",),
    "llama cloud": ("llx-<alnum:48>",),
    "pinecone": ("pcsk_<alnum:5-8>_<alnum:50-70>",),
    "weights and biases": ("wandb_v1_<url:40-100>",),
    "e2b": ("e2b_<hex:40>",),
    "runpod": ("rpa_<alnum:40-48>",),
    "modal": ("ak-<alnum:22>", "as-<alnum:22>"),
    "anyscale": ("aph0_<alnum:40-60>", "esecret_<alnum:20-40>"),
    "apify": ("apify_api_<alnum:36>",),
    "kaggle": ("KGAT_<hex:32>",),
    "cursor": ("crsr_<hex:64>",),
    "sourcegraph": ("sgp_<anyhex:16>_<anyhex:40>", "sgp_local_<anyhex:40>", "sgp_<anyhex:40>"),
    "context7": ("ctx7sk-<hex:8>-<hex:4>-<hex:4>-<hex:4>-<hex:12>",),
    # Clouds
    "aws": (
        "AKIA<base32:16>",
        "ASIA<base32:16>",
        "ABIA<base32:16>",
        "ACCA<base32:16>",
        "A3T<upper:1><base32:16>",
        "ABSK<padded:109-271>",
        "bedrock-api-key-YmVkcm9jay5hbWF6b25hd3MuY29t<padded:0-2000>",
    ),
    "google": (
        "AIza<url:35>",
        "GOCSPX-<url:20-40>",
        "ya29.<url:20-400>",
        "1//0<url:40-110>",
        "AQ.Ab<url:45-60>",
        "AAAA<url:7>:APA91b<url:130-160>",
    ),
    "azure": (
        "<dotted:3><digit:1>Q~<dotted:31-34>",
        "<base64:76>AzCa<base64:4-6>==",
        "<base64:76>+ASt<base64:4-6>==",
        "<base64:33>ASbE<base64:4-6>=",
        "<alnum:52>JQQJ99<alnum:26>",
        "<alnum:44>AzSe<alnum:4>",
    ),
    "alibaba": ("LTAI<alnum:12-24>",),
    "tencent": ("AKID<alnum:32>",),
    "yandex": ("AQVN<url:35-38>", "YCA<url:37>", "t1.<url:20-300>.<url:86>"),
    "ibm": ("ibm-api-key-<url:40-48>",),
    "digitalocean": ("dop_v1_<hex:64>", "doo_v1_<hex:64>", "dor_v1_<anyhex:64>"),
    "heroku": ("HRKU-AA<url:58>", "HRKU-<hex:8>-<hex:4>-<hex:4>-<hex:4>-<hex:12>"),
    "fly.io": (
        "fo1_<url:43>",
        "fm1a_<padded:100-800>",
        "fm1r_<padded:100-800>",
        "fm2_<padded:100-800>",
    ),
    "render": ("rnd_<alnum:28-36>",),
    "netlify": ("nfp_<alnum:36-40>",),
    "vercel": ("vcp_<alnum:50-60>", "vercel_blob_rw_<alnum:16>_<alnum:30>"),
    "scalingo": ("tk-us-<url:48>",),
    "cloudflare": ("v1.0-<hex:24>-<hex:146>", "cfut_<alnum:40-48>", "cfat_<alnum:40-48>"),
    "openshift": ("sha256~<url:43>",),
    "scaleway": ("SCW<upper:17>",),
    "hetzner and ovh": ("ovh_<alnum:32-64>",),
    "aiven": ("AVNS_<url:16-24>",),
    "supabase": ("sbp_<hex:40>", "sbp_oauth_<hex:40>", "sb_secret_<url:22>_<url:8>"),
    "planetscale": (
        "pscale_tkn_<loose:32-64>",
        "pscale_oauth_<loose:32-64>",
        "pscale_pw_<loose:32-64>",
    ),
    "neon": ("npg_<alnum:12-16>", "napi_<lower:64>"),
    "clickhouse": ("4b1d<alnum:38>",),
    "databricks": ("dapi<hex:32>-<digit:1>", "dapi<hex:32>", "dose<hex:32>"),
    "mongodb": ("mdb_sa_sk_<url:40>", "mdb_sa_id_<hex:24>"),
    "confluent": ("cflt<base64:60>",),
    # Code, builds and packages
    "github": (
        "ghp_<alnum:36-255>",
        "gho_<alnum:36-255>",
        "ghu_<alnum:36-255>",
        "ghs_<alnum:36-255>",
        "ghr_<alnum:36-255>",
        "github_pat_<word:36-255>",
    ),
    "gitlab": (
        *(f"gl{kind}-<dotted:20-320>" for kind in _GITLAB.split()),
        "GR1348941<url:20>",
        "_gitlab_session=<lower:32>",
    ),
    "bitbucket": ("ATBB<alnum:32>", "ATCTT3<loose:150-220>", "BBDC-<base64:44>"),
    "atlassian": ("ATATT3<loose:60-220>", "ATOA<alnum:28-200>", "ATTA<alnum:72>"),
    "npm": ("npm_<alnum:36>",),
    "pypi": ("pypi-AgE<url:50-1000>",),
    "rubygems": ("rubygems_<hex:48>",),
    "crates.io": ("cio<alnum:32>",),
    "nuget": ("oy2<lower:43>",),
    "clojars": ("CLOJARS_<lower:60>",),
    "packagist": (
        "packagist_uut_<hex:60-80>",
        "packagist_out_<hex:60-80>",
        "packagist_ack_<hex:60-80>",
    ),
    "docker": ("dckr_pat_<url:24-32>", "dckr_oat_<url:24-40>"),
    "artifactory": ("AKCp<alnum:69>", "cmVmd<alnum:59>"),
    "cloudsmith": ("csa_<hex:40>",),
    "octopus deploy": ("API-<upper:26>",),
    "harness": (
        "pat.<url:22>.<alnum:24>.<alnum:20>",
        "sat.<url:22>.<alnum:24>.<alnum:20>",
    ),
    "circleci": ("CCIPAT_<alnum:22>_<hex:40>", "CCIPRJ_<alnum:22>_<hex:40>"),
    "buildkite": ("bkua_<hex:40>", "bkaj_<url:40-400>", "bkct_<url:40-400>"),
    "codeship and depot": ("depot_org_<hex:32-64>", "depot_project_<hex:32-64>"),
    "sonarqube": ("squ_<hex:40>", "sqp_<hex:40>", "sqa_<hex:40>"),
    "snyk": ("snyk_uat.<hex:8>.<url:40-200>", "snyk_sat.<hex:8>.<url:40-200>"),
    "pulumi": ("pul-<hex:40>",),
    "prefect": ("pnu_<alnum:36>",),
    "infracost": ("ico-<alnum:32>",),
    "hashicorp": (
        "hvs.<url:24-300>",
        "hvb.<url:138-300>",
        "hvr.<url:24-300>",
        "<alnum:14>.atlasv1.<loose:60-70>",
    ),
    "doppler": (
        *(f"dp.{kind}.<alnum:40-44>" for kind in ("pt", "ct", "sa", "scim", "audit")),
        "dp.st.<lower-:2-35>.<alnum:40-44>",
    ),
    "infisical": ("st.<hex:24>.<hex:32>.<hex:32>",),
    "1password": (
        "A3-<upper:6>-<upper:11>-<upper:5>-<upper:5>-<upper:5>",
        "A3-<upper:6>-<upper:6>-<upper:5>-<upper:5>-<upper:5>-<upper:5>",
        "ops_eyJ<padded:200-1200>",
    ),
    "age": ("AGE-SECRET-KEY-1<bech32:58>",),
    "tailscale": tuple(
        f"tskey-{kind}-<alnum:8-24>-<alnum:20-40>"
        for kind in ("auth", "api", "client", "scim", "webhook")
    ),
    "ngrok": ("ngrok_<alnum:40-60>",),
    "defined networking": ("dnkey-<url:26>-<url:52>",),
    "authress": tuple(
        f"{kind}_<lower:5-30>.<lower:4-6>.acc{sign}<lower-:10-32>.<padded:30-120>"
        for kind in ("sc", "ext", "scauth", "authress")
        for sign in "-_"
    ),
    "clerk, workos and stytch": ("secret-live-<loose:36-48>", "secret-test-<loose:36-48>"),
    # Watching
    "grafana": ("glsa_<alnum:32>_<anyhex:8>", "glc_<padded:32-400>", "eyJrIjoi<padded:70-400>"),
    "new relic": (
        "NRAK-<upper:27>",
        "NRII-<url:32>",
        "NRJS-<hex:19>",
        "NRRA-<hex:42>",
        "NRIQ-<url:32>",
    ),
    "dynatrace": ("dt0c01.<upper:24>.<upper:64>", "dt0s16.<upper:8>.<upper:64>"),
    "sentry": ("sntrys_<padded:60-500>_<base64:43>", "sntryu_<hex:64>"),
    "honeycomb": ("hcaik_<lower:58>", "hcxik_<lower:58>", "hcamk_<lower:58>"),
    "posthog": ("phx_<alnum:32-60>", "phs_<alnum:32-60>"),
    "datadog": ("ddapp_<alnum:34-40>",),
    "logfire": ("pylf_v1_<letter:2>_<alnum:40-50>",),
    # Talk, mail and forms
    "slack": (
        *(f"xox{kind}-<alnum-:10-250>" for kind in "abeoprscd"),
        "xoxe.xoxb-<digit:1>-<upper:100-200>",
        "xoxe.xoxp-<digit:1>-<upper:100-200>",
        "xapp-<digit:1>-<alnum-:10-250>",
        "hooks.slack.com/services/<padded:20-120>",
        "hooks.slack.com/workflows/<padded:20-120>",
        "hooks.slack.com/triggers/<padded:20-120>",
    ),
    "discord": (
        *(f"{first}<alnum:23-27>.<url:6-7>.<url:27-38>" for first in "MNO"),
        "discord.com/api/webhooks/<digit:17-20>/<url:60-80>",
        "discordapp.com/api/webhooks/<digit:17-20>/<url:60-80>",
    ),
    "telegram": ("<digit:5-16>:A<url:34>",),
    "teams": (
        ".webhook.office.com/webhookb2/<alnum-:36>@<alnum-:36>/IncomingWebhook/<alnum:32>/<alnum-:36>",
    ),
    "twilio": ("SK<hex:32>", "AC<hex:32>"),
    "sendgrid": ("SG.<url:16-32>.<url:32-64>",),
    "mailgun": ("key-<hex:32>", "pubkey-<hex:32>", "<hex:32>-<hex:8>-<hex:8>"),
    "mailchimp": ("<hex:32>-us<digit:1-2>", "md-<url:22>"),
    "brevo": ("xkeysib-<hex:64>-<alnum:16>", "xsmtpsib-<hex:64>-<alnum:16>"),
    "resend": ("re_<alnum:8>_<alnum:24>",),
    "typeform": ("tfp_<loose:40-60>",),
    "intercom": ("dG9rO<padded:50-60>",),
    "hubspot": (
        "pat-na1-<hex:8>-<hex:4>-<hex:4>-<hex:4>-<hex:12>",
        "pat-na2-<hex:8>-<hex:4>-<hex:4>-<hex:4>-<hex:12>",
        "pat-eu1-<hex:8>-<hex:4>-<hex:4>-<hex:4>-<hex:12>",
    ),
    "linear": ("lin_api_<alnum:32-48>", "lin_oauth_<hex:64>", "lin_wh_<alnum:32-48>"),
    "notion": ("ntn_<digit:11><alnum:35>", "secret_<alnum:43>"),
    "airtable": ("pat<alnum:14>.<hex:64>",),
    "asana": ("<digit:1>/<digit:15-17>:<hex:32>", "<digit:1>/<digit:15-17>/<digit:15-17>:<hex:32>"),
    "figma": ("figd_<url:38-48>",),
    "contentful": ("CFPAT-<url:43>",),
    "readme": ("rdme_<lower:70>",),
    "frame.io": ("fio-u-<loose:64>",),
    "postman": ("PMAK-<hex:24>-<hex:34>", "PMAT-<upper:26>"),
    "launchdarkly": (
        "sdk-<hex:8>-<hex:4>-<hex:4>-<hex:4>-<hex:12>",
        "api-<hex:8>-<hex:4>-<hex:4>-<hex:4>-<hex:12>",
    ),
    "beamer": ("b_<loose:44>",),
    "dropbox": ("sl.<loose:130-1200>", "<lower:11>AAAAAAAAAA<loose:43>"),
    "adobe": ("p8e-<lower:32>",),
    "mapbox": ("pk.<alnum:60>.<alnum:22>", "sk.<alnum:60-90>.<alnum:22>"),
    "maxmind": ("<alnum:6>_<alnum:29>_mmk",),
    "intra42": ("s-s4t2ud-<hex:64>", "s-s4t2af-<hex:64>"),
    "settlemint": ("sm_aat_<alnum:16>", "sm_pat_<alnum:16>", "sm_sat_<alnum:16>"),
    "zapier": ("hooks.zapier.com/hooks/catch/<digit:5-10>/<lower:6-10>",),
    # Money, shops and people
    "stripe": (
        *(
            f"{kind}_{mode}_<alnum:10-250>"
            for kind in ("sk", "rk")
            for mode in ("live", "test", "prod")
        ),
        "whsec_<padded:20-100>",
    ),
    "shopify": tuple(f"shp{kind}_<anyhex:32>" for kind in ("at", "ca", "pa", "ss", "ka")),
    "square": ("sq0atp-<url:22>", "sq0csp-<url:43>", "EAAA<url:56-60>"),
    "paypal": (
        "access_token$production$<lower:16>$<hex:32>",
        "access_token$sandbox$<lower:16>$<hex:32>",
    ),
    "razorpay": ("rzp_live_<alnum:14>", "rzp_test_<alnum:14>"),
    "mercado pago": ("APP_USR-<digit:12-18>-<digit:6>-<hex:32>-<digit:6-12>",),
    "adyen": ("AQE<padded:60-400>-<padded:40-80>-<loose:10-40>",),
    "gocardless": ("live_<url:40>", "sandbox_<url:40>"),
    "plaid": tuple(
        f"access-{mode}-<hex:8>-<hex:4>-<hex:4>-<hex:4>-<hex:12>"
        for mode in ("sandbox", "development", "production")
    ),
    "flutterwave": ("FLWSECK_TEST-<lower:12-40>", "FLWSECK-<lower:32>", "FLWPUBK_TEST-<lower:32>"),
    "lob": ("live_<hex:35>", "test_<hex:35>", "live_pub_<hex:31>", "test_pub_<hex:31>"),
    "shippo": ("shippo_live_<anyhex:40>", "shippo_test_<anyhex:40>"),
    "easypost": ("EZAK<alnum:54>", "EZTK<alnum:54>"),
    "duffel": ("duffel_live_<loose:43>", "duffel_test_<loose:43>"),
    "facebook": ("EAAM<alnum:100-300>", "EAAC<alnum:100-300>", "EAA<alnum:100-300>"),
    "instagram": ("IGQ<url:100-300>",),
    "linkedin": ("AQX<url:300-400>", "WPL_AP1.<alnum:14-20>.<padded:6-10>"),
    "twitter": ("AAAAAAAAAAAAAAAAAAAAA<alnum:8-40>%<percent:30-100>",),
    "twitch": ("oauth:<lower:30>",),
    "bitcoin": ("xprv<alnum:100-112>",),
    # Source: RFC 7519; a JSON object begins with {" which is eyJ in base64, and ZXlK once more.
    "jwt": (
        "eyJ<url:10-2000>.eyJ<url:10-8000>.<url:0-2000>",
        "ZXlK<padded:60-8000>",
    ),
}
"""Shapes by service; those with a prefix of one to three characters have exact lengths."""

NAMED: Final = re.compile(
    r"(?i)(?<![a-z])(?:adafruit|adobe|airtable|algolia|alibaba|artifactory|asana|assemblyai|atlassian|auth0"
    r"|beamer|bintray|bitbucket|bitly|bittrex|bugsnag|clarifai|cloudflare|cloudinary|codecov|cohere|coinbase"
    r"|confluence|confluent|contentful|datadog|deepgram|discord|droneci|dropbox|elastic|etsy|facebook|fastly"
    r"|finicity|finnhub|flickr|freshbooks|freshdesk|gitter|gocardless|heroku|hubspot|intercom|jenkins|jfrog"
    r"|jira|jumpcloud|kraken|kucoin|launchdarkly|line|linear|linked[_-]?in|linode|lob|looker|mailchimp"
    r"|mailgun|mailjet|mapbox|mattermost|meraki|message[_-]?bird|mistral|mixpanel|netlify|new[_-]?relic"
    r"|nytimes|okta|openweather|pagerduty|plaid|private[_-]?ai|rapidapi|rollbar|segment|sendbird|sentry"
    r"|serpapi|shodan|sidekiq|snyk|sonar|sourcegraph|splunk|squarespace|sumo(?:logic)?|tencent|travis|trello"
    r"|twilio|twitch|twitter|unsplash|virustotal|vultr|wandb|yandex|zendesk|zoom)"
    r"[\w .-]{0,24}?[\"']?[ \t]{0,3}(?:=>|:=|[:=,])[ \t]{0,3}[\"'`]{0,1}"
    r"([A-Za-z0-9][A-Za-z0-9_=.~/+-]{14,119})(?![A-Za-z0-9_=.~/+-])"
)
"""An assignment to a name that begins with a service's, of a value of 15 to 120 characters."""

_CAPITALS: Final = re.compile("(?<=[a-z])[A-Z]")
_RANDOM: Final = re.compile(r"[A-Za-z0-9+/]{4,}")
_MANY_DIGITS: Final = 8
_MIN_DIGITS, _MIN_DIFFERENT = 3, 8
# What documentation writes where a key would be. A key has four in a row of one kind rarely.
_STAND_IN: Final = re.compile(
    r"(?i)your|insert|placeholder|replace|change|redacted|dummy|sample|here\Z|example(?!\w{0,3}\Z)"
    r"|x{4}|\*{3}|\.{3}|(?:0123456789|1234567890){2}|([^a])\1{5}"
)


def _compiled(shape: str) -> str:
    """Return the pattern of a shape."""
    pieces: list[str] = []
    done = 0
    for piece in _PIECE.finditer(shape):
        length = piece[2] if piece[3] is None else f"{piece[2]},{piece[3]}"
        pieces += (re.escape(shape[done : piece.start()]), f"[{_ALPHABETS[piece[1]]}]{{{length}}}")
        done = piece.end()
    # A key of a fixed length does not go on.
    is_fixed = done == len(shape) and _RANGE.search(shape) is None
    return "".join([*pieces, re.escape(shape[done:]), "(?![0-9A-Za-z])" if is_fixed else ""])


def _grouped(shapes: Iterable[str]) -> Iterator[str]:
    """Yield patterns that share a first character together, so that one look rules out many."""
    by_first: dict[str, list[str]] = {}
    others: list[str] = []
    for shape in shapes:
        if shape.startswith(("<", "^")):
            others.append(_compiled(shape))
        else:
            by_first.setdefault(shape[0], []).append(_compiled(shape)[len(re.escape(shape[0])) :])
    for first, rests in by_first.items():
        yield f"{re.escape(first)}(?:{'|'.join(rests)})"
    yield from others


_every: Final = [shape for shapes in SHAPES.values() for shape in shapes]
# Neither inside a word nor behind a hyphen after one, as in "cache-key-…": that is a longer name.
_SHAPED: Final = re.compile(
    "(?<![A-Za-z0-9])(?<![A-Za-z0-9][_-])(?:" + "|".join(_grouped(_every)) + ")"
)


def keys(text: str) -> Iterator[tuple[int, int]]:
    """Yield where keys of services stand, by their shapes and by the services' names."""
    for found in _SHAPED.finditer(text):
        key = found[0].rstrip(".")  # of a sentence
        if is_made_by_chance(key):
            yield found.start(), found.start() + len(key)
    for found in NAMED.finditer(text):
        if _is_named(found[1]):
            yield found.span(1)


def is_made_by_chance(key: str) -> bool:
    """Return True if what has the shape of a key has been made by chance, and not by a writer."""
    if _STAND_IN.search(key):
        return False
    return key.startswith("AKIA") or any(map(_is_mixed, _RANDOM.findall(key)))


def _is_mixed(run: str) -> bool:
    """True if there are digits and letters, or letters of both cases that often take turns."""
    if any(char.isdigit() for char in run):
        return any(char.isalpha() for char in run) or len(run) >= _MANY_DIGITS
    return len(_CAPITALS.findall(run)) > len(run) / 7


def _is_named(value: str) -> bool:
    digits = sum(char.isdigit() for char in value)
    return digits >= _MIN_DIGITS and len(set(value)) >= _MIN_DIFFERENT and is_made_by_chance(value)

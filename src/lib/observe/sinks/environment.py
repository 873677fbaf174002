"""Where OpenTelemetry's environment variables send traces.

Source: OpenTelemetry specification, protocol/exporter.md, "Endpoint URLs for OTLP/HTTP" and
"Specifying headers via environment variables", as of November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

_DEFAULT: Final = "http://localhost:4318"
_PATH: Final = "/v1/traces"


def traces_url(environment: Mapping[str, str]) -> str:
    """Return the URL for traces: an endpoint for all signals gets their path, one of theirs not."""
    own = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if own:
        return own
    return (environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or _DEFAULT).rstrip("/") + _PATH


def traces_headers(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the headers for traces, by lower-case name.

    Raises:
        ValueError: they are not of the form `name=value,name=value`.
    """
    name = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
    if not environment.get(name):
        name = "OTEL_EXPORTER_OTLP_HEADERS"
    headers: dict[str, str] = {}
    for pair in filter(str.strip, environment.get(name, "").split(",")):
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"{name} is not of the form name=value,name=value")
        headers[unquote(key.strip()).lower()] = unquote(value.strip())
    return headers

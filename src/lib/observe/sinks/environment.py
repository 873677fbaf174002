"""Settings for traces in OpenTelemetry's environment variables.

Source: OpenTelemetry specification, protocol/exporter.md and
configuration/sdk-environment-variables.md; resource/sdk.md, "Specifying resource information via an
environment variable", as of November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

_DEFAULT: Final = "http://localhost:4318"
_TIMEOUT_S: Final = 10.0
_PROTOCOL: Final = "http/protobuf"
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
    name, value = _of_traces(environment, "HEADERS")
    return {key.lower(): value for key, value in _pairs(name, value).items()}


def traces_timeout_s(environment: Mapping[str, str]) -> float:
    """Return the time-out of a request in seconds; the variables hold milliseconds.

    Raises:
        ValueError: it is no number above zero.
    """
    name, value = _of_traces(environment, "TIMEOUT")
    if not value:
        return _TIMEOUT_S
    if not (value.isascii() and value.isdigit() and int(value)):
        raise ValueError(f"{name}={value!r} is not a number of milliseconds above zero")
    return int(value) / 1000


def check_protocol(environment: Mapping[str, str]) -> None:
    """Refuse to send what a backend does not expect.

    Raises:
        ValueError: another protocol is configured than OTLP over HTTP with protobuf.
    """
    name, value = _of_traces(environment, "PROTOCOL")
    if value not in {"", _PROTOCOL}:
        raise ValueError(
            f"{name}={value!r} is not spoken here: give OTelSink an exporter of OpenTelemetry that "
            f"speaks it, or set {_PROTOCOL!r}"
        )


def resource_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of the resource, with `service.name` if there is one.

    Raises:
        ValueError: they are not of the form `name=value,name=value`.
    """
    name = "OTEL_RESOURCE_ATTRIBUTES"
    attributes = _pairs(name, environment.get(name, ""))
    service = environment.get("OTEL_SERVICE_NAME")
    return {**attributes, "service.name": service} if service else attributes


def _of_traces(environment: Mapping[str, str], what: str) -> tuple[str, str]:
    """Return name and value of the variable for traces, or else of the one for all signals."""
    own = f"OTEL_EXPORTER_OTLP_TRACES_{what}"
    name = own if environment.get(own) else f"OTEL_EXPORTER_OTLP_{what}"
    return name, environment.get(name, "").strip()


def _pairs(name: str, text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for pair in filter(str.strip, text.split(",")):
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"{name} is not of the form name=value,name=value")
        pairs[unquote(key.strip())] = unquote(value.strip())
    return pairs

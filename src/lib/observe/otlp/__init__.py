"""OTLP, the wire format of OpenTelemetry, without a package of OpenTelemetry's."""

from lib.observe.otlp.encode import encode_request, encode_span
from lib.observe.otlp.sender import OTLPSender

__all__ = ["OTLPSender", "encode_request", "encode_span"]

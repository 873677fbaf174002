"""An OTLP/HTTP backend on a real loopback socket, as unpleasant as the real ones.

It keeps spans the way one of them does (`on_repeat`), answers what its script says, and serves
further routes for what a vendor has beside traces. It needs opentelemetry-proto.
"""

from fakes.otlp_receiver.receiver import (
    Answer,
    OnRepeat,
    OTLPReceiver,
    attributes_of,
    partial_success,
    redirect,
)
from lib.testing.http import Drop, Handler, Hang, HTTPServer, Request, Response

__all__ = [
    "Answer",
    "Drop",
    "HTTPServer",
    "Handler",
    "Hang",
    "OTLPReceiver",
    "OnRepeat",
    "Request",
    "Response",
    "attributes_of",
    "partial_success",
    "redirect",
]

"""What a server takes at most: sizes, counts and times."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Ceilings of one server process.

    Attributes:
        body_bytes: of the body of a request, blobs excepted.
        blob_bytes: of a blob that is uploaded.
        headers: how many header lines a request may have.
        stream_queue: events that a stream may lag behind the log while it is sent live; above it
            the stream ends with `stream.lagged`, and the client resumes.
        stalled_s: seconds for which a client may read nothing before its stream is cut.
        heartbeat_s: seconds between the comments that keep an idle stream open.
        recheck_s: seconds between checks of the credentials of an open stream.
        live_s: seconds for which the replies of a run that was just started are kept for a stream
            that is about to be opened.
    """

    body_bytes: int = 1024 * 1024
    blob_bytes: int = 32 * 1024 * 1024
    headers: int = 100
    stream_queue: int = 256
    stalled_s: float = 30.0
    heartbeat_s: float = 15.0
    recheck_s: float = 60.0
    live_s: float = 30.0

    def __post_init__(self) -> None:
        """Refuse a ceiling under which nothing could be served."""
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if value <= 0:
                raise ValueError(f"expected a number above 0 as {name}, got {value!r}")

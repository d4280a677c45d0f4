"""What passes on a connection that is not HTTP/1: recorded as it comes, both ways, so that a replay can send it again."""

from __future__ import annotations

from typing import Any

from relive.proxies.ingress._sights import SeenSpeech
from relive.proxies.ingress._traffic import Traffic
from relive.recording.events import EventKind

__all__ = ["PlainBytes"]


class PlainBytes:
    """Of one connection. It flushes nothing, as ``RequestSide``.

    Of what one side says before the other says something ``body_limit`` bytes are kept, so a conversation may last for ever; of the
    rest, how many there were.
    """

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._counts = {EventKind.STREAM_TO_SERVICE: 0, EventKind.STREAM_TO_CLIENT: 0}
        self._latest: EventKind | None = None
        self._in_a_row = 0
        self._has_ended = False

    def to_service(self, connection: int, data: bytes) -> None:
        """Bytes of the client; called before the service can see one of them."""
        self._record(EventKind.STREAM_TO_SERVICE, connection, data)

    def to_client(self, connection: int, data: bytes) -> None:
        """Bytes of the service."""
        self._record(EventKind.STREAM_TO_CLIENT, connection, data)

    def client_ended(self, connection: int) -> None:
        """The client sends no more, and may go on reading. Said once."""
        if self._has_ended:
            return
        self._has_ended = True
        self._append(EventKind.STREAM_TO_SERVICE, connection, b"", {"ended": True})

    @property
    def seen(self) -> SeenSpeech:
        """What has passed so far."""
        up, down = self._counts.values()
        return SeenSpeech(up, down, self._latest is not EventKind.STREAM_TO_CLIENT, self._in_a_row)

    def summary(self) -> dict[str, Any]:
        """What the end of the connection tells of it."""
        up, down = self._counts.values()
        return {"unframed": True, "up_bytes": up, "down_bytes": down}

    def _record(self, kind: EventKind, connection: int, data: bytes) -> None:
        if kind is not self._latest:
            self._latest, self._in_a_row = kind, 0
        self._counts[kind] += len(data)
        kept = data[: max(0, self._traffic.options.body_limit - self._in_a_row)]
        self._in_a_row += len(data)
        cut = len(data) - len(kept)
        self._append(kind, connection, kept, {"cut": cut} if cut else {})

    def _append(self, kind: EventKind, connection: int, data: bytes, fields: dict[str, object]) -> None:
        self._traffic.writer.append(kind, connection, 0, data, fields)

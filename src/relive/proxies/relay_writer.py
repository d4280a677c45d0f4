"""The writer of a recording that the relay's threads share: opened as any, written to in C (``journal.c``)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgpack

from relive.proxies.relay import Numbers, Relay
from relive.recording import layout
from relive.recording.events import EventKind
from relive.recording.writer import RecordingWriter

__all__ = ["RelayWriter"]

_pack = msgpack.Packer(use_bin_type=True).pack
_NO_FIELDS = b"\x80"


class RelayWriter(RecordingWriter):
    """A ``RecordingWriter`` with the same promises, and a relay whose threads write beside it.

    Raises:
        OSError: there is no relay; as of ``RecordingWriter`` otherwise.
    """

    def __init__(
        self,
        library: Path,
        directory: Path,
        *,
        keep_bytes: int | None,
        keep_seconds: float | None,
        on_trouble: Callable[[str], None],
    ) -> None:
        self._numbers = Numbers()
        super().__init__(directory, keep_bytes=keep_bytes, keep_seconds=keep_seconds, on_trouble=on_trouble)
        numbers = self._numbers
        numbers.first_seq, numbers.offset, numbers.fd = self._first_seq, self._offset, self._fd
        numbers.segment_bytes = self._segment_bytes
        if keep_seconds is not None and self._full_at < math.inf:
            numbers.full_at_ns, numbers.full_for_ns = int(self._full_at * 1e9), int(keep_seconds / 8 * 1e9)
        try:
            self.relay = Relay(library, directory, numbers, self._map)
        except OSError:
            self._release()
            raise

    # What the base class counts lies where the relay counts on.

    @property
    def last_seq(self) -> int:
        """Of the last event, whoever recorded it."""
        return self._numbers.seq

    @last_seq.setter
    def last_seq(self, value: int) -> None:
        self._numbers.seq = value

    @property
    def last_request(self) -> int:
        """The last request number that was given."""
        return self._numbers.request

    @last_request.setter
    def last_request(self, value: int) -> None:
        self._numbers.request = value

    @property
    def last_connection(self) -> int:
        """The last connection number that was given."""
        return self._numbers.connection

    @last_connection.setter
    def last_connection(self, value: int) -> None:
        self._numbers.connection = value

    @property
    def is_on(self) -> bool:
        """False while the disk is full."""
        return not self._numbers.retry_at_ns

    @property
    def lost(self) -> int:
        """Events not recorded since the recording was last switched off; 0 once it is on again."""
        return self._numbers.lost

    @property
    def segment(self) -> int:
        """Names the segment that is being written."""
        return self._numbers.first_seq

    def next_request(self) -> int:
        """A request number never given before in this recording."""
        return self.relay.next_request()

    def next_connection(self) -> int:
        """A connection number never given before in this recording."""
        return self.relay.next_connection()

    def append(
        self,
        kind: EventKind,
        connection: int = 0,
        request: int = 0,
        data: bytes = b"",
        fields: Mapping[str, Any] | None = None,
        at: tuple[int, int] | None = None,
    ) -> int:
        """As ``RecordingWriter.append``."""
        if self._fd < 0:  # closed: the head is unmapped, and the segment's descriptor may be another file's
            return self.last_seq
        packed = _pack(fields) if fields else _NO_FIELDS
        if at is not None:
            return self.relay.append_at(at, kind, connection, request, packed, data)
        return self.relay.append(kind, connection, request, packed, data)

    def flush(self) -> None:
        """Hand all appended events, the relay's as well, to the kernel."""
        if self._fd >= 0:
            self.relay.flush()

    def close(self) -> None:
        """Flush and say that no writer is there any more. The relay carries nothing by then. May be called multiple times."""
        if self._fd < 0:
            return
        self.flush()
        self.relay.let_go()
        self._release()

    def _release(self) -> None:
        self._head[layout.HEAD_STATE] = layout.STATE_NO_WRITER
        self._chores.put(None)
        self._janitor.join()
        os.close(self._numbers.fd)
        self._fd = -1
        self._head.release()
        self._map.close()
        os.close(self._head_fd)

    def segment_begun(self) -> None:
        """The relay has begun another segment: see whether old ones are to go."""
        if self._keep_bytes is not None or self._keep_seconds is not None:
            self._chores.put(self._drop_oldest)

    def switched_off(self, error: int) -> None:
        """The relay could not write: say so."""
        self._on_trouble(f"recording is off: {os.strerror(error)}; traffic flows on unrecorded")

    def switched_on(self, lost: int) -> None:
        """The relay writes again: say so."""
        self._on_trouble(f"recording is on again; {lost} events were not recorded")

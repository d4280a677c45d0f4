"""Writing a recording: append-only segments that survive the death of their writer.

Reading is in ``reading.py``, the byte layout in ``layout.py``. What is promised:

1. After ``flush`` returns, the events are in the kernel's hands: ``kill -9`` of this process loses none of them.
2. No call waits for a disk: there is no fsync on the caller's path. A power cut can lose the last half minute;
   ``Recording.sync`` (of another process) makes a recording durable.
3. No call raises because of the disk. When it is full the recording switches itself off, counts what it loses, and
   goes on with a note when there is room again.

Not promised: the kernel may make a writer wait while it has too many dirty pages.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import mmap
import os
import queue
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgpack

from relive.errors import DiskFull, PermissionMissing, RecordingError
from relive.recording import layout
from relive.recording.events import EventKind
from relive.recording.reader import Recording
from relive.recording.retention import RecordingSegment, excess, pinned_ranges

__all__ = ["DEFAULT_SEGMENT_BYTES", "RecordingWriter"]

DEFAULT_SEGMENT_BYTES = 64 * 1024 * 1024
RETRY_SECONDS = 1.0  # how often a recording that is off looks for room
# So that it does not switch on and off with every block that comes free.
ROOM_TO_RESUME_BYTES = 4 * 1024 * 1024
AUTO_FLUSH_BYTES = 1024 * 1024
_IOV_MAX = 1024
_LEAST_SEGMENT_BYTES = 64 * 1024
_pack = msgpack.Packer(use_bin_type=True).pack


class RecordingWriter:
    """The one writer of a recording. Not for use by more than one thread.

    ``append`` puts an event into memory, ``flush`` hands all of them to the kernel in one call; the owner flushes
    before it lets out the bytes that the events are about. Numbers of events, requests and connections go on from
    where an earlier writer of the same directory left off, also when that one was killed.

    Args:
        directory: made if absent, readable by its owner only.
        segment_bytes: a new file is begun when the present one would exceed this.
        keep_bytes: oldest segments are dropped when all together exceed this; nothing is dropped for its size without it.
            Segments are then at most an eighth of it. At least the current segment is kept, and what ``retention`` says.
        keep_seconds: segments are dropped that were last written to so long ago, and none is written to for more than an
            eighth of it; nothing is dropped for its age without it.
        on_trouble: told one sentence when recording switches off or on, or damage of an earlier writer is found.

    Raises:
        RecordingError: another process writes this recording, or a newer Relive did.
        PermissionMissing, DiskFull: the directory or the first segment cannot be made.
    """

    def __init__(
        self,
        directory: Path,
        *,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        keep_bytes: int | None = None,
        keep_seconds: float | None = None,
        on_trouble: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.directory = directory
        self.last_seq = self.last_request = self.last_connection = 0
        self._segment_bytes = segment_bytes
        if keep_bytes is not None:
            self._segment_bytes = min(segment_bytes, max(keep_bytes // 8, _LEAST_SEGMENT_BYTES))
        self._keep_bytes, self._keep_seconds = keep_bytes, keep_seconds
        self._full_at = math.inf  # monotonic [s], when the segment has been written to for long enough
        self._on_trouble = on_trouble
        self._parts: list[bytes] = []  # of records not yet in the kernel's hands
        self._part_bytes = 0
        self._part_events = 0
        self._lost = 0
        self._retry_at: float | None = None  # not None: the recording is off
        self._fd = -1
        self._chores: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        with _disk_errors(directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._map = self._open_head()
            self._head = memoryview(self._map).cast("Q")
            self._continue_after_earlier_writer()
            self._begin_segment(self.last_seq + 1)
        self._head[layout.HEAD_STATE] = layout.STATE_RECORDING
        # Deleting a large file takes milliseconds: not on the thread that carries the traffic.
        self._janitor = threading.Thread(target=self._do_chores, name="recording-janitor", daemon=True)
        self._janitor.start()

    @property
    def is_on(self) -> bool:
        """False while the disk is full."""
        return self._retry_at is None

    @property
    def lost(self) -> int:
        """Events not recorded since the recording was last switched off; 0 once it is on again."""
        return self._lost

    @property
    def segment(self) -> int:
        """Names the segment that is being written; another one when a new file was begun."""
        return self._first_seq

    def next_request(self) -> int:
        """A request number never given before in this recording."""
        self.last_request += 1
        return self.last_request

    def next_connection(self) -> int:
        """A connection number never given before in this recording."""
        self.last_connection += 1
        return self.last_connection

    def append(
        self,
        kind: EventKind,
        connection: int = 0,
        request: int = 0,
        data: bytes = b"",
        fields: Mapping[str, Any] | None = None,
        at: tuple[int, int] | None = None,
    ) -> int:
        """Put one event into memory and return its seq; ``flush`` makes it safe.

        ``at``: monotonic and wall time [ns] of an event that was seen by somebody else; default: now.

        ``data`` is kept by reference until then and must be shorter than ``MAX_RECORD_BYTES``.
        """
        if self._retry_at is not None and not self._resumed():
            self.last_seq += 1
            self._lost += 1
            self._publish_head()
            return self.last_seq
        self.last_seq = seq = self.last_seq + 1
        mono_ns, wall_ns = at or (time.monotonic_ns(), time.time_ns())
        meta = _pack((seq, mono_ns, wall_ns, kind, connection, request, fields or {}))
        body = b"\x92" + meta + _bin_header(len(data))
        size = len(body) + len(data)
        crc = zlib.crc32(data, zlib.crc32(body))
        self._parts.append(layout.RECORD_HEADER.pack(size, size ^ 0xFFFFFFFF, crc) + body)
        if data:
            self._parts.append(data)
        self._part_bytes += size + layout.RECORD_HEADER.size
        self._part_events += 1
        if self._part_bytes > AUTO_FLUSH_BYTES:
            self.flush()
        return seq

    def append_packed(self, records: bytes, count: int) -> None:
        """Put ``count`` whole records into memory as ``append`` does: the first has the seq ``last_seq + 1``, each other the next.

        For a writer that is on.
        """
        self.last_seq += count
        self._parts.append(records)
        self._part_bytes += len(records)
        self._part_events += count
        if self._part_bytes > AUTO_FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand all appended events to the kernel. Cheap when there are none; never raises because of the disk."""
        if not self._parts:
            return
        parts, self._parts = self._parts, []
        size, self._part_bytes = self._part_bytes, 0
        events, self._part_events = self._part_events, 0
        try:
            is_full = self._offset + size > self._segment_bytes or time.monotonic() > self._full_at
            if is_full and self._offset > layout.SEGMENT_HEADER_BYTES:
                self._begin_segment(self.last_seq - events + 1)
            self._write(parts, size)
            self._lost = 0
        except OSError as error:
            self._switch_off(error, events)
        self._publish_head()

    def close(self) -> None:
        """Flush and say that no writer is there any more. May be called multiple times."""
        if self._fd < 0:
            return
        self.flush()
        self._head[layout.HEAD_STATE] = layout.STATE_NO_WRITER
        self._chores.put(None)
        self._janitor.join()
        os.close(self._fd)
        self._fd = -1
        self._head.release()
        self._map.close()
        os.close(self._head_fd)

    # The head file

    def _open_head(self) -> mmap.mmap:
        self._head_fd = os.open(self.directory / "head", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # The kernel lets it go when we are killed.
            fcntl.flock(self._head_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._head_fd)
            raise RecordingError(
                f"{self.directory} is being written by another process",
                cause="its head file is locked",
                remedy="Stop the other proxy, or give this one a directory of its own.",
            ) from error
        if os.fstat(self._head_fd).st_size != layout.HEAD_BYTES:
            # Written, not stretched: a hole would be filled on first touch and kill us on a full disk (SIGBUS).
            blank = layout.HEAD.pack(layout.HEAD_MAGIC, layout.VERSION, 0, 0, 0, 0, 0, 0)
            os.pwrite(self._head_fd, blank.ljust(layout.HEAD_BYTES, b"\0"), 0)
            os.ftruncate(self._head_fd, layout.HEAD_BYTES)
        return mmap.mmap(self._head_fd, layout.HEAD_BYTES)

    def _publish_head(self) -> None:
        head = self._head
        head[layout.HEAD_REQUEST] = self.last_request
        head[layout.HEAD_CONNECTION] = self.last_connection
        head[layout.HEAD_SEGMENT] = self._first_seq
        head[layout.HEAD_OFFSET] = self._offset
        # Last, so that whoever reads this cursor finds all events up to it in the files.
        head[layout.HEAD_SEQ] = self.last_seq

    def _continue_after_earlier_writer(self) -> None:
        """Find the numbers to go on from, and cut off a torn tail."""
        state = Recording(self.directory).resume_point()
        self.last_seq, self.last_request, self.last_connection = state.seq, state.request, state.connection
        if state.damage is not None:
            # Left as it is, as evidence: we go on in a segment of our own, never in one of its name.
            while layout.segment_path(self.directory, self.last_seq + 1).exists():
                self.last_seq += 1
            self._on_trouble(f"{state.damage}; recording goes on in a new segment")
        elif state.torn is not None:
            os.truncate(state.torn.path, state.torn.offset)
            self._on_trouble(
                f"{state.torn.path} ended in a torn record at offset {state.torn.offset}; it was cut off"
            )

    # Segments

    def _begin_segment(self, first: int) -> None:
        path = layout.segment_path(self.directory, first)
        header = layout.SegmentHeader(
            first, self.last_request, self.last_connection, time.monotonic_ns(), time.time_ns()
        )
        # Under another name until it has its header, so that a kill in between leaves no half segment.
        unborn = path.with_suffix(".unborn")
        fd = os.open(unborn, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            written = os.write(fd, layout.pack_segment_header(header))
            if written != layout.SEGMENT_HEADER_BYTES:
                raise OSError(errno.ENOSPC, "no space for the header of a segment")
            unborn.rename(path)
        except OSError:
            os.close(fd)
            unborn.unlink(missing_ok=True)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._first_seq, self._offset = fd, first, layout.SEGMENT_HEADER_BYTES
        self._publish_head()
        if self._keep_seconds is not None:
            self._full_at = time.monotonic() + self._keep_seconds / 8
        if self._keep_bytes is not None or self._keep_seconds is not None:
            self._chores.put(self._drop_oldest)

    def _write(self, parts: list[bytes], size: int) -> None:
        written = 0
        if len(parts) <= _IOV_MAX:
            written = os.writev(self._fd, parts)
        if written != size:  # a short write: the disk is (nearly) full; or too many parts for one call
            rest = memoryview(b"".join(parts))[written:]
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        self._offset += size

    def _switch_off(self, error: OSError, events: int) -> None:
        self._lost += events
        self._retry_at = time.monotonic() + RETRY_SECONDS
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self._offset)
            os.lseek(self._fd, self._offset, os.SEEK_SET)
        self._head[layout.HEAD_STATE] = layout.STATE_OFF
        self._on_trouble(f"recording is off: {error.strerror}; traffic flows on unrecorded")

    def _resumed(self) -> bool:
        """Try to go on, at most every ``RETRY_SECONDS``; the note that says what is missing comes first."""
        now = time.monotonic()
        if self._retry_at is None or now < self._retry_at:
            return False
        self._retry_at = now + RETRY_SECONDS
        try:
            room = os.statvfs(self.directory)
            if room.f_bavail * room.f_frsize < ROOM_TO_RESUME_BYTES:
                return False
            self._begin_segment(self.last_seq + 1)
        except OSError:
            return False
        self._retry_at = None
        self._head[layout.HEAD_STATE] = layout.STATE_RECORDING
        text = "recording was off because the disk was full"
        self.append(EventKind.NOTE, fields={"about": "disk", "text": text, "lost": self._lost})
        self._on_trouble(f"recording is on again; {self._lost} events were not recorded")
        return True

    # Chores of the janitor thread

    def _do_chores(self) -> None:
        while (chore := self._chores.get()) is not None:
            with contextlib.suppress(OSError):
                chore()

    def _drop_oldest(self) -> None:
        segments = []
        for path in Recording(self.directory).segments():
            facts = path.stat()
            segments.append(RecordingSegment(path, int(path.stem), facts.st_size, facts.st_mtime_ns))
        oldest_ns = None if self._keep_seconds is None else time.time_ns() - int(self._keep_seconds * 1e9)
        pinned = pinned_ranges(self.directory)
        for one in excess(segments, pinned, keep_bytes=self._keep_bytes, oldest_ns=oldest_ns):
            one.path.unlink()


def _bin_header(size: int) -> bytes:
    if size < 256:
        return b"\xc4" + size.to_bytes(1)
    if size < 65536:
        return b"\xc5" + size.to_bytes(2)
    return b"\xc6" + size.to_bytes(4)


@contextlib.contextmanager
def _disk_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise PermissionMissing(f"{directory} cannot be written", cause=str(error)) from error
    except OSError as error:
        raise DiskFull(f"no recording can be begun in {directory}", cause=str(error)) from error

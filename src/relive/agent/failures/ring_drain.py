"""Draining the rings of a service's Python processes into the recording of what happened inside.

One thread of the agent looks at every ring again and again; it is the only writer of that recording. A ring whose process
is gone is removed when it is empty. While no agent is there, the rings keep the last events, and the next agent takes them.

Most looks are at the rings that are known, and cost little where nothing was written. Which rings there are, and which of
their processes still run, is asked when a name was made or removed, and four times a second.

Events leave their ring, and rings go, when the recording holds them. An agent that is killed in between leaves events in both: the
next one knows those of the recording's end again, and passes them over.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import structlog

from relive.agent.capsule.start_events import StartEvents
from relive.agent.commits.protection import Protection
from relive.errors import RecordingCorrupt, RecordingError
from relive.recording.bodies import Bodies, is_body_name
from relive.recording.events import Event, EventKind
from relive.recording.packed_batch import PackingLibrary
from relive.recording.reader import Recording
from relive.recording.ring_batch import DecodedBatch, RingBatch, RingRecords
from relive.recording.rings import RingReader
from relive.recording.writer import RecordingWriter

__all__ = ["InsideDrain"]

HEARTBEAT = "agent.alive"
_PERIOD = 0.05  # [s] between two looks
_SURVEY = 0.25  # [s] the longest between two looks at all that is there
_AT_ONCE = 1024  # records packed together: a segment is not longer for it than it may be
_PART = "inside"
_RING = re.compile(r"(?P<pid>[0-9]+)-(?P<made>[0-9a-f]{1,16})\.ring")


def _key(pid: int, event: Event) -> tuple[object, ...]:
    return pid, event.fields.get("own_seq"), event.mono_ns


def _end_of(recording: Path) -> frozenset[tuple[object, ...]]:
    """Which events the end of a recording holds: all that an agent before can have left in rings as well."""
    known = Recording(recording)
    segments = known.segments()[-2:]
    keys = set()
    with contextlib.suppress(RecordingError):  # what cannot be read is no reason not to go on
        for event in known.events(after=int(segments[0].stem) - 1 if segments else 0):
            keys.add(_key(int(event.fields.get("pid", 0)), event))
    return frozenset(keys)


class InsideDrain:
    """Starts its thread at once.

    Args:
        rings: directory of the rings.
        recording: directory of the recording that is written.
        beginnings: the file that ``StartEvents`` writes.
        keep_bytes: oldest events, and oldest long bodies, are dropped when either exceeds this.
        body_bytes: of one long body; a longer file is refused.
        is_alive: tells whether a process (its pid in the capsule, and when it made its ring, in nanoseconds of CLOCK_MONOTONIC)
            still runs.
        on_failure: called in the drain's thread with every ``failure`` event; its fields hold ``pid`` too.
        protection: is told when a look fails; the next one follows all the same.
        packing: packs what nobody needs to see; without it Python does.

    While it lives, the file ``HEARTBEAT`` in the rings' directory is touched again and again, its time being the monotonic clock:
    a failing thread waits for its commit only then (``failure/waiting.py`` of the recorder, which believes it for one second).
    """

    def __init__(
        self,
        rings: Path,
        recording: Path,
        *,
        beginnings: Path,
        keep_bytes: int,
        body_bytes: int,
        is_alive: Callable[[int, int], bool],
        on_failure: Callable[[Event], None],
        protection: Protection,
        packing: PackingLibrary | None,
    ) -> None:
        self._rings = rings
        self._protection = protection
        self._is_alive = is_alive
        self._on_failure = on_failure
        self._packing = packing
        self._log = structlog.get_logger()
        self._directory = str(rings)
        self._changed = -1  # st_mtime_ns of the directory before its names were read
        self._survey_at = 0.0  # monotonic [s]: when to read the names although none has changed
        self._readers: dict[str, RingReader] = {}
        self._pids: dict[str, int] = {}  # of the same
        self._refused: set[str] = set()
        self._said_off: set[str] = set()
        self._looking = threading.Lock()
        self._end = threading.Event()
        self._recorded = _end_of(recording)
        self._writer = RecordingWriter(recording, keep_bytes=keep_bytes, on_trouble=self._log.warning)
        self._bodies = Bodies(recording / "bodies", keep_bytes=keep_bytes, most=body_bytes)
        self._beginnings = StartEvents(beginnings)
        self._beat()
        self._thread = threading.Thread(target=self._work, name="inside-drain", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        pause = _PERIOD
        while not self._end.wait(pause):
            try:
                self._look()
            except Exception as error:
                pause = self._protection.failed(_PART, error)
                self._log.exception("the rings were not drained; it is tried again", pause=pause)
            else:
                pause = _PERIOD
                self._protection.works(_PART)

    def _look(self) -> None:
        now = time.monotonic()
        if now < self._survey_at and self._changed_at() == self._changed:
            self._drain(self._read_known)
        else:
            self._survey_at = now + _SURVEY
            self._beat()
            self._drain(self._survey)

    def _changed_at(self) -> int:
        try:
            return os.stat(self._directory).st_mtime_ns
        except FileNotFoundError:
            return 0

    def _beat(self) -> None:
        now = time.monotonic_ns()
        path = self._rings / HEARTBEAT
        try:
            # By descriptor, not through a link: the service may make names there too.
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        except OSError:
            return  # then nobody waits
        try:
            os.utime(fd, ns=(now, now))
        finally:
            os.close(fd)

    def drain(self) -> None:
        """Take all that is in the rings now. May be called by any thread."""
        self._drain(self._survey)

    def _drain(self, read: Callable[[], tuple[list[RingRecords], list[str]]]) -> None:
        with self._looking:
            rings, ended = read()
            events = self._record_all(rings) if rings else []
            self._recorded = frozenset()
            for reader in self._readers.values():
                reader.note_taken()
            for name in ended:
                self._forget(name)
            if events:
                self._beginnings.add(events)
        for pid, event in events:
            if event.kind is EventKind.FAILURE:
                self._on_failure(replace(event, fields={**event.fields, "pid": pid}))

    def _record_all(self, rings: list[RingRecords]) -> list[tuple[int, Event]]:
        batch = self._packing.batch(rings) if self._packing else DecodedBatch(rings)
        try:
            return self._take(rings, batch)
        finally:
            batch.close()

    def _take(self, rings: list[RingRecords], batch: RingBatch) -> list[tuple[int, Event]]:
        """Record what rings hold; what somebody wants to see of it is returned. If that fails, it is all still in the rings."""
        for index, error in batch.refused.items():
            self._refuse(rings[index].path, error)
        seen: list[tuple[int, Event]] = []
        number = 0
        try:
            while number < batch.count:
                number += self._record_next(batch, number, seen)
            self._writer.flush()
        except BaseException:
            # The writer has them, and writes them with what comes next.
            self._recorded |= {_key(*batch.event(given)) for given in range(number)}
            for reader in self._readers.values():
                reader.rewind()
            raise
        return seen

    def _record_next(self, batch: RingBatch, number: int, seen: list[tuple[int, Event]]) -> int:
        """Record one event, or as many as can be packed; returns how many."""
        is_plain = self._writer.is_on and not self._recorded
        packable = min(batch.packable(number), _AT_ONCE) if is_plain else 0
        if packable:
            records = batch.pack(number, packable, self._writer.last_seq + 1)
            self._writer.append_packed(records, packable)
            return packable
        pid, event = batch.event(number)
        if _key(pid, event) not in self._recorded:
            self._record(pid, event)
            seen.append((pid, event))
        return 1

    def _survey(self) -> tuple[list[RingRecords], list[str]]:
        """What is in the rings now, and those of them whose process is gone."""
        self._changed = self._changed_at()
        ended = []
        for name in self._names():
            if not self._meet(name):
                ended.append(name)
        return self._read_known()[0], ended

    def _names(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._directory) if _RING.fullmatch(name)]
        except FileNotFoundError:
            return []

    def _meet(self, name: str) -> bool:
        """Know that ring; returns whether its process lives, asked before it is read: what it wrote last is taken."""
        match = _RING.fullmatch(name)
        if match is None or name in self._refused:
            return True
        pid = int(match["pid"])
        is_alive = self._is_alive(pid, int(match["made"], 16))
        try:
            reader = self._readers.get(name) or self._open(name, pid)
            if reader is None:
                return True
            if reader.is_switched_off and name not in self._said_off:
                self._said_off.add(name)
                self._log.warning(
                    "the recorder in a process switched itself off; its standard error says why", pid=pid
                )
        except RecordingCorrupt as error:
            self._refuse(self._rings / name, error)
        return is_alive

    def _read_known(self) -> tuple[list[RingRecords], list[str]]:
        """What is in the rings that are known now; none of them is said to be gone."""
        rings = []
        for name, reader in self._readers.items():
            if name in self._refused:
                continue
            lost = reader.lost
            try:
                raw = reader.read_raw()
            except RecordingCorrupt as error:
                self._refuse(reader.path, error)
                continue
            if reader.lost > lost:
                self._log.warning(
                    "events were overwritten before they were taken", ring=name, bytes=reader.lost
                )
            if raw:
                pid = self._pids[name]
                rings.append(RingRecords(reader.path, pid, raw, self._beginnings.has_room(pid)))
        return rings, []

    def _refuse(self, ring: Path, error: RecordingCorrupt) -> None:
        self._log.warning("a ring is not read any more", ring=ring.name, error=error.as_json())
        self._refused.add(ring.name)

    def _open(self, name: str, pid: int) -> RingReader | None:
        try:
            reader = self._readers[name] = RingReader(self._rings / name)
        except FileNotFoundError:
            return None
        self._pids[name] = pid
        return reader

    def _forget(self, name: str) -> None:
        reader = self._readers.pop(name, None)
        if reader is not None:
            reader.close()
            del self._pids[name]
        with contextlib.suppress(OSError):
            (self._rings / name).unlink()

    def _record(self, pid: int, event: Event) -> None:
        fields = {**event.fields, "pid": pid}
        body = fields.get("file")
        if body is not None and is_body_name(body):
            self._record_body(body)
        try:
            self._writer.append(
                event.kind, 0, event.request, event.data, fields, at=(event.mono_ns, event.wall_ns)
            )
        except (ValueError, OverflowError) as error:
            # JSON knows larger numbers and deeper trees than a recording; nobody's ring may end this thread.
            self._log.warning("an event was not kept", pid=pid, kind=event.kind.value, cause=str(error))

    def _record_body(self, name: str) -> None:
        try:
            self._bodies.move_in(self._rings / name)
        except OSError as error:
            self._log.warning("a body was not kept", name=name, cause=str(error))

    def close(self) -> None:
        """Take what is there and end."""
        self._end.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            (self._rings / HEARTBEAT).unlink()
        self.drain()
        self._writer.close()
        for reader in self._readers.values():
            reader.close()

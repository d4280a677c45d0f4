"""Draining the rings of a service's Python processes into the recording of what happened inside.

One thread of the agent looks at every ring again and again; it is the only writer of that recording. A ring whose process
is gone is removed when it is empty. While no agent is there, the rings keep the last events, and the next agent takes them.

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
from relive.recording.reader import Recording
from relive.recording.rings import RingReader
from relive.recording.writer import RecordingWriter

__all__ = ["InsideDrain"]

HEARTBEAT = "agent.alive"
_PERIOD = 0.05  # [s] between two looks
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


def _time_of(pair: tuple[int, Event]) -> int:
    return pair[1].mono_ns


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

    While it lives, the file ``HEARTBEAT`` in the rings' directory is touched again and again, its time being the monotonic
    clock: a failing thread waits for its commit only then (``failure/waiting.py`` of the recorder).
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
    ) -> None:
        self._rings = rings
        self._protection = protection
        self._is_alive = is_alive
        self._on_failure = on_failure
        self._log = structlog.get_logger()
        self._readers: dict[str, RingReader] = {}
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
                self._beat()
                self.drain()
            except Exception as error:
                pause = self._protection.failed(_PART, error)
                self._log.exception("the rings were not drained; it is tried again", pause=pause)
            else:
                pause = _PERIOD
                self._protection.works(_PART)

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
        with self._looking:
            given = set()
            try:
                events, ended = self._read_all()
                for pid, event in events:
                    self._record(pid, event)
                    given.add(_key(pid, event))
                self._writer.flush()
            except BaseException:
                self._recorded |= given  # the writer has them, and writes them with what comes next
                for reader in self._readers.values():
                    reader.rewind()
                raise
            self._recorded = frozenset()
            for reader in self._readers.values():
                reader.note_taken()
            for name in ended:
                self._forget(name)
            self._beginnings.add(events)
        for pid, event in events:
            if event.kind is EventKind.FAILURE:
                self._on_failure(replace(event, fields={**event.fields, "pid": pid}))

    def _read_all(self) -> tuple[list[tuple[int, Event]], list[str]]:
        """What is in the rings now, and those of them whose process is gone."""
        events: list[tuple[int, Event]] = []
        ended = []
        for name in self._names():
            found, is_alive = self._read(name)
            events += found
            if not is_alive:
                ended.append(name)
        # Of several processes, by time: CLOCK_MONOTONIC is one for all of a host.
        events.sort(key=_time_of)
        return [pair for pair in events if _key(*pair) not in self._recorded], ended

    def _names(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._rings) if _RING.fullmatch(name)]
        except FileNotFoundError:
            return []

    def _read(self, name: str) -> tuple[list[tuple[int, Event]], bool]:
        """The events in a ring, and whether its process lives."""
        match = _RING.fullmatch(name)
        if match is None or name in self._refused:
            return [], True
        pid = int(match["pid"])
        # Asked before, so that what it wrote last is taken.
        is_alive = self._is_alive(pid, int(match["made"], 16))
        try:
            reader = self._readers.get(name) or self._open(name)
            if reader is None:
                return [], True
            lost = reader.lost
            events = reader.read_new()
            if reader.lost > lost:
                self._log.warning(
                    "events were overwritten before they were taken", ring=name, bytes=reader.lost
                )
            if reader.is_switched_off and name not in self._said_off:
                self._said_off.add(name)
                self._log.warning(
                    "the recorder in a process switched itself off; its standard error says why", pid=pid
                )
        except RecordingCorrupt as error:
            self._log.warning("a ring is not read any more", ring=name, error=error.as_json())
            self._refused.add(name)
            events = []
        return [(pid, event) for event in events], is_alive

    def _open(self, name: str) -> RingReader | None:
        try:
            reader = self._readers[name] = RingReader(self._rings / name)
        except FileNotFoundError:
            return None
        return reader

    def _forget(self, name: str) -> None:
        reader = self._readers.pop(name, None)
        if reader is not None:
            reader.close()
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

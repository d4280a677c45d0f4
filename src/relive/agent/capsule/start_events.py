"""What each process of a service asked when it began: kept for as long as the life, when the recording has long dropped it.

A fresh process that is to reproduce a failure begins the same way: it asks a database for its version, a cache for its settings.
Those answers lie hours before the failure. So the first events of each process are kept, each in one file of the form of
``relive.incidents.evidence``: calls, whatever request they belong to (a pool connects at the first one), and what was read
outside of requests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from relive.errors import RecordingCorrupt
from relive.incidents.evidence import event_line, read_events
from relive.recording.events import Event, EventKind

__all__ = ["StartEvents", "beginning_for"]

_EVENTS = 1000  # of one process ...
_BYTES = 1 << 20  # ... which may be so long together, as lines
_PROCESSES = 64
_NONE = [0, 0]  # the room of a process of which no more is kept
_READINGS = frozenset({EventKind.CLOCK, EventKind.RANDOM})
_FORKS = 32  # generations


class StartEvents:
    """For one thread. Of a file that an earlier agent wrote, what stands there stays, and its processes are known.

    A file that cannot be written, or whose earlier part cannot be read, costs reproductions and nothing else: no more is kept.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rooms: dict[int, list[int]] = {}  # by pid: events and bytes that it may still have
        self._count = 0
        self._is_broken = False
        try:
            for event in read_events(path):
                self._takes(int(event.fields.get("pid", 0)), event, len(event_line(event)))
        except RecordingCorrupt:
            self._is_broken = True

    def add(self, events: Iterable[tuple[int, Event]]) -> None:
        """Keep what is to be kept of (pid, event) pairs."""
        lines = []
        for pid, event in events:
            if not self.has_room(pid) and event.kind is not EventKind.PROCESS_STARTED:
                continue
            if self._is_broken or not _belongs(event):
                continue
            line = event_line(replace(event, fields={**event.fields, "pid": pid}))
            if self._takes(pid, event, len(line)):
                lines.append(line)
        if lines:
            try:
                with self._path.open("ab") as file:
                    file.write(b"".join(lines))
            except OSError:
                self._is_broken = True

    def has_room(self, pid: int) -> bool:
        """More is kept of that process."""
        return self._rooms.get(pid, _NONE) != _NONE

    def _takes(self, pid: int, event: Event, size: int) -> bool:
        if event.kind is EventKind.PROCESS_STARTED:
            if self._count >= _PROCESSES:
                self._rooms.pop(pid, None)  # a number that is used again
                return False
            self._count += 1
            self._rooms[pid] = [_EVENTS, _BYTES]
        room = self._rooms.get(pid)
        if room is None:
            return False
        if room[0] < 1 or room[1] < size:
            room[:] = _NONE  # without a gap: what comes after it is not kept
            return False
        room[0] -= 1
        room[1] -= size
        return True


def _belongs(event: Event) -> bool:
    if event.kind is EventKind.PROCESS_STARTED or "asked" in event.fields:
        return event.kind is not EventKind.MISS
    return event.kind in _READINGS and not event.request


def beginning_for(path: Path, pid: int) -> list[Event]:
    """The beginning of a process (the last one of that number), and of those that forked it, in the order of time.

    Of a process of which nothing is kept, that of its last sibling does: workers of one server begin alike.
    """
    lives: dict[int, list[Event]] = {}
    parents: dict[int, int] = {}
    last_child = 0
    with contextlib.suppress(RecordingCorrupt):
        for event in read_events(path):
            number = int(event.fields.get("pid", 0))
            if event.kind is EventKind.PROCESS_STARTED:
                lives[number] = []
                parent = event.fields.get("forked_from")
                parents[number] = parent if isinstance(parent, int) else 0
                last_child = number if parents[number] else last_child
            lives.setdefault(number, []).append(event)
    found: list[Event] = []
    wanted = pid if pid in lives else last_child
    for _ in range(_FORKS):
        found = lives.pop(wanted, []) + found
        wanted = parents.get(wanted, 0)
    return found

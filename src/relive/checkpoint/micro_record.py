"""What ``relive-micro`` writes of a process: a look at it, or all that a commit on top needs (``native/micro/record.h``).

All numbers are this machine's, u64 unless said: a file is a sequence of (kind, length, payload), kinds as in
``native/micro/record.c``.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import struct
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from relive.checkpoint.page_runs import Span

__all__ = [
    "CopiedRun",
    "CopiedRuns",
    "FullCommitNeeded",
    "GhostFacts",
    "MicroRecord",
    "NotNow",
    "RecordedConnection",
    "RecordedMapping",
    "RecordedStream",
    "RecordedThread",
    "Seen",
    "TimerSetting",
    "WatchedDescriptor",
    "read_record",
    "read_seen",
    "spans_of",
]

(
    _TEXT,
    _AFTERWARDS,
    _THREAD,
    _PRESENT,
    _AHEAD_RUNS,
    _AHEAD_PAGES,
    _RUNS,
    _PAGES,
    _CLOCKS,
    _OFFSETS,
    _WAITING,
    _SHARED_RUNS,
    _SHARED_PAGES,
    _NOTHING,
) = range(1, 15)
_MANY = {_THREAD, _NOTHING}  # kinds of which a record may have several
_HEAD = struct.Struct("=QQ")
_REGION = struct.Struct("=QQQ")
_THREAD_HEAD = struct.Struct("=QQ27Q")
_CLOCK_NUMBERS = struct.Struct("=4q")
_PAGE = 4096
_KEPT = 128  # blocks of text that are parsed once: two for each process of a tree
_O_CLOEXEC = 0o2000000
_SHARED_MEMORY = "/dev/zero (deleted)"
_SYSTEM_V = "/SYSV"
_MOVING = (
    "=position ",
    "=connection ",
    "=stream ",
    "=ghost ",
    "=timerfd ",
    "=pending ",
    "=asked ",
    "=believed ",
)
"""Lines that are others in each commit."""
_FIRST_THREAD = re.compile(r"thread (\d+) NSpid:.*?(\d+)$")
_WATCHED = re.compile(
    r"tfd: *(\d+) events: *([0-9a-f]+) data: *([0-9a-f]+) +pos:(-?\d+) ino:([0-9a-f]+) sdev:([0-9a-f]+)\|"
)


class FullCommitNeeded(Exception):
    """A commit cannot be taken on top of another, for the reason given; the process runs on, and CRIU has to dump all of it."""


class NotNow(FullCommitNeeded):
    """What is in the way passes by itself: the next commit may well be possible."""


@dataclass(frozen=True, slots=True)
class RecordedMapping:
    """One line of /proc/PID/maps.

    Attributes:
        name: what stands behind the numbers; empty for memory without a name.
        inode: 0 for memory that is in no file.
    """

    start: int
    end: int
    rights: str
    line: str

    name: str
    inode: int

    @classmethod
    def parse(cls, line: str) -> RecordedMapping:
        """From the line; raises ValueError, IndexError."""
        span, rights, _, _, inode, *name = line.split(maxsplit=5)
        start, _, end = span.partition("-")
        return cls(int(start, 16), int(end, 16), rights, line, name[0] if name else "", int(inode))

    @property
    def is_shared_memory(self) -> bool:
        """Shared, and in no file with a name: mmap(2) with MAP_SHARED and MAP_ANONYMOUS, or a System V segment."""
        return self.rights[3] == "s" and (self.name == _SHARED_MEMORY or self.is_segment)

    @property
    def is_segment(self) -> bool:
        """A segment of System V shared memory, whose number is the inode."""
        return self.rights[3] == "s" and self.name.startswith(_SYSTEM_V)


@dataclass(frozen=True, slots=True)
class WatchedDescriptor:
    """One of those that an epoll instance watches, as its fdinfo has it; ``device`` as written there."""

    descriptor: int
    events: int
    data: int
    position: int
    inode: int
    device: str


@dataclass(frozen=True, slots=True)
class RecordedConnection:
    """A descriptor of a TCP connection.

    Attributes:
        flags: with which it is open (fcntl(2), F_GETFL), without those of the descriptor itself.
        closes: FD_CLOEXEC is set.
        state: as in TCP_INFO. ready: what poll(2) says.
        name, peer: struct sockaddr_in or sockaddr_in6.
        peek: SO_PEEK_OFF.
        like: all else that CRIU saves of it; equal where two are alike.
    """

    descriptor: int
    inode: int
    flags: int
    closes: bool
    state: int
    ready: int
    send_buffer: int
    receive_buffer: int
    peek: int
    name: bytes
    peer: bytes
    like: str

    @property
    def kind(self) -> str:
        """What it is, and where it leads, for people."""
        is_four = int.from_bytes(self.peer[:2], "little") == socket.AF_INET
        raw = self.peer[4:8] if is_four else self.peer[8:24]
        if len(raw) != (4 if is_four else 16):
            return "a TCP connection"
        address = ipaddress.ip_address(raw)
        port = int.from_bytes(self.peer[2:4], "big")
        return f"a TCP connection to {address if is_four else f'[{address}]'}:{port}"

    @property
    def words(self) -> str:
        """The descriptor and what it is."""
        return f"descriptor {self.descriptor} ({self.kind})"

    @classmethod
    def parse(cls, line: str) -> RecordedConnection:
        """From a line that begins with "=connection"; raises ValueError, KeyError."""
        head, _, like = line.partition(" like ")
        _, descriptor, inode, *words = head.split()
        facts = dict(word.split("=", 1) for word in words)
        flags = int(facts["flags"], 8)
        return cls(
            descriptor=int(descriptor),
            inode=int(inode),
            flags=flags & ~_O_CLOEXEC,
            closes=bool(flags & _O_CLOEXEC),
            state=int(facts["state"]),
            ready=int(facts["ready"], 16),
            send_buffer=int(facts["sndbuf"]),
            receive_buffer=int(facts["rcvbuf"]),
            peek=int(facts["peek"]),
            name=bytes.fromhex(facts["name"]),
            peer=bytes.fromhex(facts["peer"]),
            like=like,
        )


@dataclass(frozen=True, slots=True)
class RecordedStream:
    """Where a TCP connection stood; names are those of CRIU's ``tcp-stream.proto``.

    Attributes:
        received: bytes that had come and were not read. sent: that had been sent and were not acknowledged.
        reuse: SO_REUSEADDR.
    """

    inode: int
    state: int
    inq_len: int
    inq_seq: int
    outq_len: int
    outq_seq: int
    opt_mask: int
    snd_wscale: int
    rcv_wscale: int
    mss_clamp: int
    timestamp: int
    snd_wl1: int
    snd_wnd: int
    max_window: int
    rcv_wnd: int
    rcv_wup: int
    reuse: bool = field(kw_only=True)
    received: bytes = field(default=b"", kw_only=True)
    sent: bytes = field(default=b"", kw_only=True)


class GhostFacts(NamedTuple):
    """A regular file without a name; times in (seconds, nanoseconds)."""

    uid: int
    gid: int
    accessed: tuple[int, int]
    modified: tuple[int, int]


class TimerSetting(NamedTuple):
    """Where a timerfd stood.

    Attributes:
        ticks: expiries that were not read. flags: of timerfd_settime(2).
        left, period: in (seconds, nanoseconds).
        rests: it is known not to expire, where it has neither ticks nor time left.
    """

    ticks: int
    flags: int
    left: tuple[int, int]
    period: tuple[int, int]
    rests: bool


@dataclass(slots=True)
class Seen:
    """A process as it is seen from outside, and by a round trip through it.

    Attributes:
        pid: its number; inside: that in its own namespace.
        lines: compared word for word with another look.
        positions: descriptor of a regular file to (position, size).
        mappings: by address.
        hidden: lines that only the process itself could tell.
        flags: start of a mapping to what smaps says of it, a moment later.
        connections: descriptors of TCP connections; they are not among ``lines``.
        watched: by descriptor of an epoll instance, what that watches; not among ``lines`` either.
        streams: the words of "=stream" lines.
        ghosts: descriptors of regular files without a name.
        timers: descriptors of timerfds.
        pending: of threads that have signals to get, their number and which.
        asked: what was not known from the kernel's objects (``native/micro/unchanged.h``).
        believed: "memory" where its counters were, of what was not looked at (``native/micro/audit.h``).
    """

    pid: int = 0
    inside: int = 0
    lines: list[str] = field(default_factory=list)
    positions: dict[int, tuple[int, int]] = field(default_factory=dict)
    mappings: list[RecordedMapping] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    flags: dict[int, frozenset[str]] = field(default_factory=dict)
    connections: list[RecordedConnection] = field(default_factory=list)
    watched: dict[int, frozenset[WatchedDescriptor]] = field(default_factory=dict)
    streams: list[list[int]] = field(default_factory=list)
    ghosts: dict[int, GhostFacts] = field(default_factory=dict)
    timers: dict[int, TimerSetting] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    believed: list[str] = field(default_factory=list)

    def read(self, text: str) -> None:
        """Take in a section of lines."""
        before, maps, text = _cut(text, "=map ")
        while maps:
            self.mappings += _mappings(maps)
            before, maps, text = _cut(before + text, "=map ")
        before, flags, text = _cut(before, "=flags ")
        while flags:
            self.flags |= _flags(flags)
            before, flags, text = _cut(before + text, "=flags ")
        lines = before.split("\n")
        for line in lines:
            if line.startswith(_MOVING):
                self._read_told(line)
        still = _still("\n".join([line for line in lines if not line.startswith(_MOVING)]))
        self.lines += still.lines
        self.hidden += still.hidden
        self.watched |= still.watched
        if not self.pid:
            self.pid, self.inside = still.pid, still.inside

    def _read_told(self, line: str) -> None:
        if line.startswith("=position "):
            number, position, size = (int(word) for word in line.split()[1:])
            self.positions[number] = (position, size)
        elif line.startswith("=connection "):
            self.connections.append(RecordedConnection.parse(line))
        elif line.startswith("=stream "):
            self.streams.append([int(word) for word in line.split()[1:]])
        elif line.startswith("=ghost "):
            number, *facts = (int(word) for word in line.split()[1:])
            self.ghosts[number] = GhostFacts(facts[0], facts[1], (facts[2], facts[3]), (facts[4], facts[5]))
        elif line.startswith("=timerfd "):
            number, ticks, flags, *times, rests = (int(word) for word in line.split()[1:])
            left, period = (times[0], times[1]), (times[2], times[3])
            self.timers[number] = TimerSetting(ticks, flags, left, period, rests=bool(rests))
        elif line.startswith("=pending "):
            self.pending.append(line[9:])
        elif line.startswith("=asked "):
            self.asked.append(line[7:])
        elif line.startswith("=believed "):
            self.believed.append(line[10:])


class _Still(NamedTuple):
    """What lines say that are mostly the same from one commit to the next; attributes as of ``Seen``."""

    lines: list[str]
    hidden: list[str]
    watched: dict[int, frozenset[WatchedDescriptor]]
    pid: int
    inside: int


def _cut(text: str, prefix: str) -> tuple[str, str, str]:
    """What stands before, in and behind the first lines that begin so and follow one another; all before where there are none."""
    begin = 0 if text.startswith(prefix) else text.find(f"\n{prefix}") + 1
    if not text.startswith(prefix, begin):
        return text, "", ""
    end = text.find("\n", text.rfind(f"\n{prefix}") + 1) + 1 or len(text)
    block = text[begin:end]
    if block.count(f"\n{prefix}") + 1 != len(_lines(block)):  # others stand between them
        end = begin + block.index("\n") + 1
    return text[:begin], text[begin:end], text[end:]


# From one commit to the next these blocks are mostly the same, and parsing them would take most of the time of all that is read.
@lru_cache(maxsize=_KEPT)
def _still(block: str) -> _Still:
    """Nobody changes what it gives."""
    found = [line for line in block.split("\n") if line]
    hidden = [line[1:] for line in found if line.startswith("?")]
    watched: dict[int, frozenset[WatchedDescriptor]] = {}
    lines = []
    for line in found:
        if line.startswith("fd ") and "tfd:" in line:
            watched[int(line.split(maxsplit=2)[1])] = _watched_by(line)
            lines.append(_WATCHED.sub("", line))
        elif not line.startswith("?"):
            lines.append(line)
    first = next((match for line in lines if (match := _FIRST_THREAD.match(line))), None)
    pid, inside = (int(first[1]), int(first[2])) if first is not None else (0, 0)
    return _Still(lines, hidden, watched, pid, inside)


def _watched_by(line: str) -> frozenset[WatchedDescriptor]:
    return frozenset(
        WatchedDescriptor(int(number), int(events, 16), int(data, 16), int(position), int(inode, 16), device)
        for number, events, data, position, inode, device in _WATCHED.findall(line)
    )


@lru_cache(maxsize=_KEPT)
def _mappings(block: str) -> tuple[RecordedMapping, ...]:
    return tuple(RecordedMapping.parse(line.removeprefix("=map ")) for line in _lines(block))


@lru_cache(maxsize=_KEPT)
def _flags(block: str) -> dict[int, frozenset[str]]:
    """Nobody changes what it gives."""
    rows = [line.split() for line in _lines(block)]
    return {int(start, 16): frozenset(flags) for _, start, *flags in rows}


def _lines(block: str) -> list[str]:
    return block.removesuffix("\n").split("\n")


@dataclass(frozen=True, slots=True)
class RecordedThread:
    """Of a thread that stood still: its pid inside, its mask, the words of ``user_regs_struct``, its XSAVE area."""

    tid: int
    mask: int
    registers: tuple[int, ...]
    xstate: bytes


class CopiedRun(NamedTuple):
    """Pages ``first`` to ``end`` that were copied; ``offset`` [bytes] into the file."""

    first: int
    end: int
    offset: int


class CopiedRuns(NamedTuple):
    """Many of them as the tracker wrote them (``micro_pages.copied_runs``): of thousands each is not looked at here.

    Attributes:
        data: of each start, end [bytes] and flags. offset: of the first of their pages in the file; size: of all of them [bytes].
    """

    data: bytes
    offset: int
    size: int


@dataclass(slots=True)
class MicroRecord:
    """All that a commit on top of another needs.

    Attributes:
        present: pages that a dump would hold, in any order, as the tracker wrote them (``spans_of``).
        copied: in the order of copying; of a page that comes twice the later counts.
        xsave: offset and size [bytes] of each component of the XSAVE area.
        streams: by the inode of a TCP connection.
        shared: of shared memory in no file, by its inode: pages from its beginning on.
        wall_ns, monotonic_ns, boot_ns: when it stood still. pause_ns: for how long.
    """

    path: Path
    seen: Seen = field(default_factory=Seen)
    threads: list[RecordedThread] = field(default_factory=list)
    present: bytes = b""
    copied: list[CopiedRuns] = field(default_factory=list)
    xsave: list[tuple[int, int]] = field(default_factory=list)
    streams: dict[int, RecordedStream] = field(default_factory=dict)
    shared: dict[int, list[CopiedRun]] = field(default_factory=dict)
    wall_ns: int = 0
    monotonic_ns: int = 0
    boot_ns: int = 0
    pause_ns: int = 0


def read_seen(path: Path) -> Seen:
    """Read a file of "look".

    Raises:
        FullCommitNeeded: it is not whole.
    """
    return read_record(path, is_look=True).seen


def read_record(path: Path, *, is_look: bool = False) -> MicroRecord:
    """Read a file of "commit"; its pages stay where they are.

    Raises:
        FullCommitNeeded: it is not whole.
    """
    record = MicroRecord(path)
    runs: dict[int, bytes] = {}
    pages: dict[int, tuple[int, int]] = {}
    shared: list[tuple[int, int, int]] = []
    kinds = set()
    try:
        with path.open("rb", buffering=0) as file:
            read = partial(os.pread, file.fileno())  # most of it are pages, which are not read
            end = os.fstat(file.fileno()).st_size
            at = 0
            while at < end:
                kind, size = _HEAD.unpack(read(_HEAD.size, at))
                at += _HEAD.size
                if at + size > end:
                    raise _damaged(path, "it is cut off")
                if kind in kinds and kind not in _MANY:
                    raise _damaged(path, f"there is more than one part of kind {kind}")
                kinds.add(kind)
                if kind in (_AHEAD_PAGES, _PAGES):
                    pages[kind] = (at, size)
                elif kind == _SHARED_PAGES:
                    record.shared = _placed_shared(path, shared, at, size)
                elif kind != _NOTHING:
                    data = read(size, at)
                    if len(data) < size:
                        raise _damaged(path, "it is cut off")
                    if kind in (_AHEAD_RUNS, _RUNS):
                        runs[kind] = data
                    elif kind == _SHARED_RUNS:
                        shared = list(_REGION.iter_unpack(data))
                    else:
                        _parse(record, kind, data)
                at += size
    except (OSError, struct.error, ValueError, IndexError, KeyError, TypeError) as error:
        raise _damaged(path, str(error)) from error
    wanted = {_TEXT, _AFTERWARDS} if is_look else set(range(_TEXT, _SHARED_PAGES + 1))
    if not wanted <= kinds:
        raise _damaged(path, "it is cut off")
    if not is_look:
        record.copied = [
            CopiedRuns(runs[_AHEAD_RUNS], *pages[_AHEAD_PAGES]),
            CopiedRuns(runs[_RUNS], *pages[_PAGES]),
        ]
    return record


def _parse(record: MicroRecord, kind: int, data: bytes) -> None:
    if kind in (_TEXT, _AFTERWARDS):
        record.seen.read(data.decode(errors="surrogateescape"))
    elif kind == _THREAD:
        tid, mask, *registers = _THREAD_HEAD.unpack_from(data)
        record.threads.append(RecordedThread(tid, mask, tuple(registers), data[_THREAD_HEAD.size :]))
    elif kind == _PRESENT:
        if len(data) % _REGION.size:
            raise ValueError("a list of present pages is cut off")
        record.present = data
    elif kind == _CLOCKS:
        record.wall_ns, record.monotonic_ns, record.boot_ns, record.pause_ns = _CLOCK_NUMBERS.unpack(data)
    elif kind == _OFFSETS:
        record.xsave = list(_HEAD.iter_unpack(data))
    elif kind == _WAITING:
        record.streams = _streams(record.seen.streams, data)


def _streams(lines: list[list[int]], waiting: bytes) -> dict[int, RecordedStream]:
    found, at = {}, 0
    for words in lines:
        *numbers, reuse = words
        told = RecordedStream(*numbers, reuse=bool(reuse))
        between, end = at + told.inq_len, at + told.inq_len + told.outq_len
        found[told.inode] = replace(told, received=waiting[at:between], sent=waiting[between:end])
        at = end
    if at != len(waiting):
        raise ValueError("streams and their bytes do not fit together")
    return found


def spans_of(data: bytes) -> list[Span]:
    """Of ``MicroRecord.present``."""
    return [(start // _PAGE, end // _PAGE) for start, end, _ in _REGION.iter_unpack(data)]


def _placed_shared(
    path: Path, runs: list[tuple[int, int, int]], offset: int, size: int
) -> dict[int, list[CopiedRun]]:
    found: dict[int, list[CopiedRun]] = {}
    begin = offset
    for start, end, inode in runs:
        found.setdefault(inode, []).append(CopiedRun(start // _PAGE, end // _PAGE, offset))
        offset += end - start
    if offset - begin != size:
        raise _damaged(path, "runs and pages do not fit together")
    return found


def _damaged(path: Path, cause: str) -> FullCommitNeeded:
    return FullCommitNeeded(f"what the tracker wrote to {path.name} cannot be read: {cause}")

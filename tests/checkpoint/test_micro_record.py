"""What the tracker writes, whole and cut off anywhere."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from relive.checkpoint.micro_pages import copied_runs
from relive.checkpoint.micro_record import (
    CopiedRuns,
    FullCommitNeeded,
    TimerSetting,
    WatchedDescriptor,
    read_record,
    read_seen,
    spans_of,
)

PAGE = 4096
TEXT = (
    b"stat 1\n=position 3 40 200\n=map 1000-3000 rw-p 00000000 00:00 0 \n?brk 1000\n"
    b"=connection 8 77 flags=2004002 ready=1 sndbuf=10 rcvbuf=20 peek=-1 name=0200 peer=0203 state=1 like family=2 1.9=01\n"
    b"fd 4 info pos:\t0|tfd:        8 events:       19 data: ffff  pos:0 ino:4d sdev:8|\n"
    b"=timerfd 5 2 1 3 4 5 6 1\n"
    b"=stream 77 1 3 1000 2 2000 7 8 9 1460 55 11 12 13 14 15 1\n"
)
AFTERWARDS = b"=flags 1000 rd wr sd\npersonality 0\n"
UNREAD = 1 << 32


def section(kind: int, data: bytes) -> bytes:
    return struct.pack("=QQ", kind, len(data)) + data


def region(start: int, end: int, flags: int = 0) -> bytes:
    return struct.pack("=QQQ", start * PAGE, end * PAGE, flags)


WHOLE = b"".join(
    (
        section(1, TEXT),
        section(2, AFTERWARDS),
        section(3, struct.pack("=29Q", 7, 0x10, *range(27)) + b"x" * 576),
        section(4, region(1, 4)),
        section(5, region(1, 3)),
        section(6, b"a" * PAGE + b"b" * PAGE),
        section(7, region(2, 3) + region(3, 4, UNREAD)),
        section(8, b"c" * PAGE),
        section(9, struct.pack("=4q", 1, 2, 3, 4)),
        section(10, struct.pack("=QQ", 576, 256) * 20),
        section(11, b"insou"),
        section(12, region(0, 1, 9) + region(4, 5, 9)),
        section(13, b"s" * 2 * PAGE),
    )
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "record"
    made.write_bytes(WHOLE)
    return made


@pytest.mark.parametrize("kind", [1, 2, *range(4, 14)])
def test_a_part_that_comes_twice_is_refused(path: Path, kind: int) -> None:
    """Behind the record the file holds what earlier commits left there."""
    path.write_bytes(WHOLE + section(kind, b""))
    with pytest.raises(FullCommitNeeded, match="more than one"):
        read_record(path)


def test_a_whole_record_is_read(path: Path) -> None:
    record = read_record(path)
    assert record.seen.lines == ["stat 1", "fd 4 info pos:\t0|", "personality 0"]
    assert record.seen.positions == {3: (40, 200)}
    assert record.seen.hidden == ["brk 1000"]
    assert record.seen.flags == {0x1000: frozenset({"rd", "wr", "sd"})}
    [mapping] = record.seen.mappings
    assert (mapping.start, mapping.end, mapping.rights, mapping.name, mapping.inode) == (
        0x1000,
        0x3000,
        "rw-p",
        "",
        0,
    )
    [thread] = record.threads
    assert (thread.tid, thread.mask, thread.registers) == (7, 0x10, tuple(range(27)))
    assert spans_of(record.present) == [(1, 4)]
    assert (record.wall_ns, record.monotonic_ns, record.boot_ns, record.pause_ns) == (1, 2, 3, 4)


def test_connections_are_read_with_what_waits_in_them(path: Path) -> None:
    record = read_record(path)
    [connection] = record.seen.connections
    assert (connection.descriptor, connection.inode, connection.peek) == (8, 77, -1)
    assert (connection.flags, connection.closes) == (0o4002, True)
    assert (connection.name, connection.peer, connection.like) == (b"\2\0", b"\2\3", "family=2 1.9=01")
    assert record.seen.timers == {5: TimerSetting(2, 1, (3, 4), (5, 6), rests=True)}
    assert record.seen.watched == {4: {WatchedDescriptor(8, 0x19, 0xFFFF, 0, 77, "8")}}
    stream = record.streams[77]
    assert (stream.inq_seq, stream.outq_seq, stream.mss_clamp, stream.reuse) == (1000, 2000, 1460, True)
    assert (stream.received, stream.sent) == (b"ins", b"ou")


def test_copies_are_found_in_the_file_in_the_order_of_copying(path: Path) -> None:
    first, end, (one, two, lost) = (found.tolist() for found in copied_runs(read_record(path).copied))
    assert (first, end, lost) == ([1, 2, 3], [3, 3, 4], -1)
    assert (WHOLE[one + PAGE : one + PAGE + 1], WHOLE[two : two + 1]) == (b"b", b"c")


@pytest.mark.parametrize("data", [region(1, 3)[:-1], region(1, 2), region(3, 1) + region(1, 5)])
def test_copies_that_do_not_fit_their_list_are_not_taken(data: bytes) -> None:
    with pytest.raises(FullCommitNeeded):
        copied_runs([CopiedRuns(data, 100, 2 * PAGE)])


@pytest.mark.parametrize("size", [*range(0, len(WHOLE) - 1, 503), len(WHOLE) - 1])
def test_one_that_is_cut_off_is_never_taken_for_whole(path: Path, size: int) -> None:
    path.write_bytes(WHOLE[:size])
    with pytest.raises(FullCommitNeeded):
        read_record(path)


def test_pages_may_come_first_and_nothing_is_passed_over(path: Path) -> None:
    """As the tracker writes them: pages copied ahead before all else, and behind all what an earlier commit left there."""
    ahead = section(6, b"a" * PAGE + b"b" * PAGE)
    rest = WHOLE.replace(ahead, b"")
    assert len(rest) == len(WHOLE) - len(ahead)
    before = section(14, b"\0" * 40)
    path.write_bytes(before + ahead + rest + section(14, section(1, b"stat 2\n") + b"left"))
    record = read_record(path)
    first, end, (one, two, lost) = (found.tolist() for found in copied_runs(record.copied))
    data = path.read_bytes()
    assert (first, end, lost) == ([1, 2, 3], [3, 3, 4], -1)
    assert (data[one : one + 1], data[two : two + 1]) == (b"a", b"c")
    assert record.seen.lines == ["stat 1", "fd 4 info pos:\t0|", "personality 0"]


def test_a_look_needs_no_pages(path: Path) -> None:
    path.write_bytes(section(1, TEXT) + section(2, AFTERWARDS))
    assert read_seen(path).lines == ["stat 1", "fd 4 info pos:\t0|", "personality 0"]

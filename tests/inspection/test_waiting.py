import struct

import pytest

from relive.images import criu_images_pb2 as pb
from relive.inspection.state import FileLock
from relive.inspection.system_calls import FCNTL, FLOCK, FUTEX
from relive.inspection.waiting import Stand, file_locks, mutex_owner, waiting_threads
from relive.inspection.words import waiting_words


def stand(pid: int, tid: int, number: int, di: int = 0, si: int = 0, memory: bytes | None = None) -> Stand:
    registers = pb.UserX86RegsEntry(ip=1, sp=2, orig_ax=number, ax=number, di=di, si=si)
    return Stand(pid, tid, registers, lambda _address, _size: memory)


def path_of(_pid: int, fd: int) -> str:
    return {3: "/lock", 4: "/other"}.get(fd, "")


def test_a_lock_of_the_kernel_is_told_in_words():
    entry = pb.FileLockEntry(flag=1, type=1, pid=5, fd=3, start=2, len=8)
    assert file_locks([entry], path_of) == [
        FileLock(pid=5, fd=3, path="/lock", kind="posix", mode="write", start=2, length=8)
    ]


@pytest.mark.parametrize(
    ("kind", "waits"),
    [
        ("flock", stand(6, 6, FLOCK, di=3)),
        ("posix", stand(6, 6, FCNTL, di=3, si=7)),
    ],
)
def test_who_waits_for_a_file_waits_for_who_has_it(kind, waits):
    lock = FileLock(pid=5, fd=3, path="/lock", kind=kind, mode="write", start=0, length=0)
    (found,) = waiting_threads([waits], [lock], path_of)
    assert waiting_words(found) == "thread 6 of 6 waits for the lock on /lock, which process 5 holds"


@pytest.mark.parametrize(
    "stands",
    [
        stand(6, 6, FLOCK, di=4),  # another file
        stand(5, 9, FLOCK, di=3),  # its own process has it
        stand(6, 6, FCNTL, di=3, si=6),  # F_SETLK does not wait
        stand(6, 6, FCNTL, di=3, si=7),  # not the same kind of lock
        stand(6, 6, FUTEX, di=64),
    ],
)
def test_who_waits_for_something_else_does_not(stands):
    lock = FileLock(pid=5, fd=3, path="/lock", kind="flock", mode="write", start=0, length=0)
    assert waiting_threads([stands], [lock], path_of) == []


def test_a_mutex_names_the_thread_that_holds_it():
    held = struct.pack("<IIi", 2, 0, 8)
    threads = [stand(6, 7, FUTEX, di=64, si=128, memory=held), stand(6, 8, 1)]
    (found,) = waiting_threads(threads, [], path_of)
    assert (found.tid, found.holder_thread) == (7, 8)


@pytest.mark.parametrize(
    "data",
    [None, struct.pack("<IIi", 1, 0, 8), struct.pack("<IIi", 2, 0, 99), struct.pack("<IIi", 0, 0, 8)],
)
def test_any_other_word_is_no_mutex(data):
    assert mutex_owner(data, {8}) is None

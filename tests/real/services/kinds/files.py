"""Files, directories, FIFOs and locks."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable
from pathlib import Path

from holding import RUN, TOP, Kind, in_child, kind


@kind
def open_file_at_an_offset() -> Kind:
    path = TOP / "offset"
    path.write_bytes(b"0123456789")
    file = path.open("rb", buffering=0)
    file.read(4)
    twin = os.dup(file.fileno())
    yield
    assert os.read(twin, 1) == b"4" and file.read(1) == b"5"


@kind
def appended_file() -> Kind:
    path = TOP / "appended"
    file = path.open("a", buffering=1)
    file.write("one\n")
    yield
    file.write("two\n")
    assert path.read_text() == "one\ntwo\n"


@kind
def mapped_file() -> Kind:
    path = TOP / "mapped"
    path.write_bytes(bytes(8192))
    with path.open("r+b") as file:
        area = mmap.mmap(file.fileno(), 8192)
    area[:4] = b"kept"
    yield
    assert area[:4] == b"kept" and path.read_bytes()[:4] == b"kept"
    area[:4] = b"more"
    assert path.read_bytes()[:4] == b"more"


@kind
def deleted_file() -> Kind:
    path = TOP / "deleted"
    file = path.open("w+b", buffering=0)
    file.write(b"kept" * 100_000)
    path.unlink()
    yield
    assert os.fstat(file.fileno()).st_nlink == 0
    assert os.pread(file.fileno(), 1 << 20, 0) == b"kept" * 100_000
    assert not path.exists()


@kind
def deleted_file_with_another_name() -> Kind:
    path, other = TOP / "first-name", TOP / "second-name"
    file = path.open("w+b", buffering=0)
    file.write(b"kept")
    other.hardlink_to(path)
    path.unlink()
    yield
    assert os.pread(file.fileno(), 99, 0) == b"kept" == other.read_bytes()
    file.write(b" and more")
    assert not path.exists() and not list(TOP.glob("link_remap*"))


@kind
def file_renamed_over() -> Kind:
    path = TOP / "renamed-over"
    path.write_text("old")
    file = path.open("rb", buffering=0)
    fresh = TOP / "fresh"
    fresh.write_text("new")
    fresh.rename(path)
    yield
    assert file.read(9) == b"old" and path.read_text() == "new"


@kind
def open_file_renamed() -> Kind:
    path = TOP / "before"
    file = path.open("w+", buffering=1)
    file.write("a\n")
    path.rename(TOP / "after")
    yield
    file.write("b\n")
    assert (TOP / "after").read_text() == "a\nb\n"


@kind
def file_without_a_name() -> Kind:
    number = os.open(TOP, os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(number, b"kept")
    yield
    assert os.pread(number, 9, 0) == b"kept"


@in_child
def deleted_working_directory() -> Kind:
    place = TOP / "place"
    place.mkdir()
    os.chdir(place)
    place.rmdir()
    yield
    assert os.stat(".").st_nlink == 0 or not place.exists()


@in_child
def working_directory_and_root() -> Kind:
    place = TOP / "new-root"
    (place / "inner").mkdir(parents=True)
    os.chroot(place)
    os.chdir("/inner")
    yield
    assert str(Path.cwd()) == "/inner" and os.listdir("/") == ["inner"]


@kind
def whiteout() -> Kind:
    """The test made these on the host; here they are deleted."""
    (TOP / "host-file").unlink()
    (TOP / "host-directory" / "inner").unlink()
    (TOP / "host-directory").rmdir()
    (TOP / "host-directory").mkdir()
    (TOP / "host-directory" / "own").touch()
    yield
    assert not (TOP / "host-file").exists()
    assert os.listdir(TOP / "host-directory") == ["own"]


@kind
def metadata_of_a_host_file() -> Kind:
    path = TOP / "host-metadata"
    path.chmod(0o604)
    os.chown(path, 1234, 4321)
    os.setxattr(path, "user.mine", b"yes")
    os.utime(path, ns=(1, 2_000_000_003))
    yield
    facts = path.stat()
    assert (facts.st_mode & 0o7777, facts.st_uid, facts.st_gid) == (0o604, 1234, 4321)
    assert facts.st_mtime_ns == 2_000_000_003 and os.getxattr(path, "user.mine") == b"yes"


@kind
def symbolic_link() -> Kind:
    path = TOP / "link"
    path.symlink_to("nowhere/at/all")
    yield
    assert os.readlink(path) == "nowhere/at/all"


@kind
def fifo_with_data() -> Kind:
    path = TOP / "fifo"
    os.mkfifo(path)
    number = os.open(path, os.O_RDWR)
    os.write(number, b"kept")
    yield
    assert os.read(number, 9) == b"kept"
    writing = os.open(path, os.O_WRONLY)
    os.write(writing, b"more")
    assert os.read(number, 9) == b"more"


@kind
def fifo_and_files_in_run() -> Kind:
    RUN.mkdir(exist_ok=True)
    os.mkfifo(RUN / "fifo")
    number = os.open(RUN / "fifo", os.O_RDWR)
    os.write(number, b"kept")
    (RUN / "service.pid").write_text("1\n")
    (RUN / "link").symlink_to("service.pid")
    large = (RUN / "large").open("w+b", buffering=0)
    large.write(b"x" * (3 << 20))
    yield
    assert os.read(number, 9) == b"kept"
    assert (RUN / "link").read_text() == "1\n"
    assert len(os.pread(large.fileno(), 4 << 20, 0)) == 3 << 20


@kind
def flock_held() -> Kind:
    file = (TOP / "flocked").open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    yield
    assert _is_refused(lambda: fcntl.flock((TOP / "flocked").open("w"), fcntl.LOCK_EX | fcntl.LOCK_NB))
    fcntl.flock(file, fcntl.LOCK_UN)
    fcntl.flock((TOP / "flocked").open("w"), fcntl.LOCK_EX | fcntl.LOCK_NB)


@kind
def record_lock_held() -> Kind:
    file = (TOP / "record-locked").open("w+b", buffering=0)
    file.write(bytes(100))
    fcntl.lockf(file, fcntl.LOCK_EX, 10, 20)
    yield
    pid = os.fork()
    if pid == 0:
        other = os.open(TOP / "record-locked", os.O_RDWR)
        fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 40)  # beside the lock
        os._exit(0 if _is_refused(lambda: fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 25)) else 1)
    assert os.waitpid(pid, 0)[1] == 0


@kind
def flock_held_on_a_file_of_the_host() -> Kind:
    """Not written to, so it lies below the overlay in the original and in the branch alike."""
    file = (TOP / "host-locked").open("r")
    fcntl.flock(file, fcntl.LOCK_EX)
    yield
    assert _is_refused(lambda: fcntl.flock((TOP / "host-locked").open("r"), fcntl.LOCK_EX | fcntl.LOCK_NB))


def _is_refused(lock: Callable[[], object]) -> bool:
    try:
        lock()
    except BlockingIOError:
        return True
    return False

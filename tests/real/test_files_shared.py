"""The service's files are the host's: what either side does, the other sees at once, by every means that Linux has."""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import socket
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from relive.kernel.inotify import AwaitedName
from support.waiting import eventually

from .harness import Relive
from .obedient import HELPERS, Obedient


@pytest.fixture(scope="module")
def relive() -> Iterator[Relive]:
    """One for all tests here."""
    home = Path(tempfile.mkdtemp(prefix="relive-"))
    made = Relive(home, "shared files")
    yield made
    made.close()
    shutil.rmtree(home)


@pytest.fixture(scope="module")
def service(relive: Relive) -> Obedient:
    made = Obedient(relive)
    made(HELPERS + "\nimport fcntl, select, sqlite3, struct")
    return made


def test_locks_hold_on_both_sides(service: Obedient, place: Path) -> None:
    path = place / "locked"
    path.touch()
    ways: list[tuple[str, Callable[[IO[str]], object]]] = [
        ("fcntl.flock(f, fcntl.LOCK_EX)", lambda f: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)),
        ("fcntl.lockf(f, fcntl.LOCK_EX)", lambda f: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)),
        (
            "fcntl.fcntl(f, 37, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0))",
            lambda f: fcntl.fcntl(f, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)),
        ),
    ]
    for take, own in ways:
        service(f"f = open({str(path)!r}, 'r+'); {take}")
        with path.open("r+") as file:
            with pytest.raises(BlockingIOError):
                own(file)
            service("f.close()")
            own(file)


def test_a_database_is_read_by_a_neighbour(relive: Relive, service: Obedient, place: Path) -> None:
    path = place / "x.db"
    service(
        f"""
db = sqlite3.connect({str(path)!r}, check_same_thread=False, isolation_level=None)
db.execute('pragma journal_mode=wal'); db.execute('create table t (n integer primary key)')
done, is_done = 0, False
def write():
    global done
    while not is_done:
        db.execute('insert into t values (?)', (done + 1,)); done += 1
t = threading.Thread(target=write); t.start()
"""
    )
    with sqlite3.connect(path) as reader:
        for _ in range(3):
            before = service("said = done")
            count, most = reader.execute("select count(*), coalesce(max(n), 0) from t").fetchone()
            assert before <= count == most
            commit = relive.commit(service.capsule)
        service("is_done = True; t.join()")
        assert reader.execute("pragma integrity_check").fetchone() == ("ok",)
    branch = relive.restore(commit, service.port)
    assert service(
        "is_done = True; t.join(); said = db.execute('pragma integrity_check').fetchone()",
        branch.ports[service.port],
    ) == ["ok"]
    assert (
        service(
            "said = [done, db.execute('select max(n) from t').fetchone()[0]]", branch.ports[service.port]
        )[0]
        >= before
    )


def test_changes_are_notified_in_both_directions(service: Obedient, place: Path) -> None:
    with AwaitedName(place, "from-service") as awaited:
        service(f"w(Path({str(place)!r})/'from-service', 'x')")
        assert select.select([awaited.fileno()], [], [], 10)[0] and awaited.has_come()
    service(
        f"""
n = libc.inotify_init1(0); libc.inotify_add_watch(n, {str(place).encode()!r}, 0x100)
"""
    )
    (place / "from-host").touch()
    assert service(
        "said = 'from-host' in os.read(n, 4096).decode('latin1') if select.select([n], [], [], 10)[0] else None"
    )
    service("os.close(n)")


@pytest.mark.parametrize("where", ["/tmp", "/run", "/var/tmp", "/dev/shm"])
def test_sockets_are_met_anywhere(service: Obedient, where: str) -> None:
    for outer in (False, True):
        path = f"{where}/relive-test-{os.getpid()}-{outer:d}"
        try:
            if outer:
                with socket.socket(socket.AF_UNIX) as listener:
                    listener.bind(path)
                    listener.listen()
                    service(f"c = socket.socket(socket.AF_UNIX); c.connect({path!r}); c.send(b'hi')")
                    with listener.accept()[0] as met:
                        assert met.recv(2) == b"hi"
            else:
                service(f"s = socket.socket(socket.AF_UNIX); s.bind({path!r}); s.listen()")
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(path)
                    client.send(b"hi")
                    assert service("said = s.accept()[0].recv(2).decode()") == "hi"
        finally:
            Path(path).unlink(missing_ok=True)


def test_a_spool_folder_is_emptied_by_a_consumer(relive: Relive, service: Obedient, place: Path) -> None:
    (place / "spool").mkdir()
    service(
        f"""
spool, made = Path({str(place / "spool")!r}), 200
def produce():
    for i in range(made):
        w(spool/f'.{{i}}', str(i)); (spool/f'.{{i}}').rename(spool/f'{{i}}')
t = threading.Thread(target=produce); t.start()
"""
    )
    seen: set[int] = set()

    def consume() -> bool:
        for path in (place / "spool").glob("[0-9]*"):
            seen.add(int(path.read_text()))
            path.unlink()
        return len(seen) == 200

    commit = relive.commit(service.capsule)
    eventually(consume, "all is consumed")
    assert seen == set(range(200)) and not list((place / "spool").iterdir())
    relive.restore(commit)


def test_logs_are_rotated(relive: Relive, service: Obedient, place: Path) -> None:
    log = place / "log"
    service(f"log = open({str(log)!r}, 'a', buffering=1); log.write('one\\n')")
    first = relive.commit(service.capsule)
    log.rename(place / "log.1")  # as logrotate does, then tells the service
    service(
        f"log.write('two\\n'); log.close(); log = open({str(log)!r}, 'a', buffering=1); log.write('three\\n')"
    )
    assert (place / "log.1").read_text() == "one\ntwo\n" and log.read_text() == "three\n"
    second = relive.commit(service.capsule)
    (place / "log.2").write_bytes(log.read_bytes())  # copytruncate
    os.truncate(log, 0)
    service("log.write('four\\n')")
    assert log.read_text() == "four\n"
    third = relive.commit(service.capsule)
    for commit, text in ((first, "one\n"), (second, "three\n"), (third, "four\n")):
        branch = relive.restore(commit, service.port)
        assert branch.exec("cat", str(log)) == text
        service("log.write('five\\n')", branch.ports[service.port])
        assert branch.exec("cat", str(log)) == text + "five\n"
    assert log.read_text() == "four\n"


INTERRUPTED = """
import os, signal, sys
count = failed = 0
def handler(*_):
    global count
    count += 1
signal.signal(signal.SIGALRM, handler)
signal.siginterrupt(signal.SIGALRM, True)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
names = [sys.argv[1] + '/a', sys.argv[1] + '/b']
while count < 500:
    try:
        os.rename(*names)
        names.reverse()
    except InterruptedError:
        failed += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(failed, count)
"""


def test_a_call_that_a_signal_interrupts_did_nothing(service: Obedient, place: Path) -> None:
    """Handlers without SA_RESTART can have such calls fail with EINTR, as never without Relive; they may be tried again."""
    (place / "a").touch()
    command = ["/usr/bin/python3", "-c", INTERRUPTED, str(place)]
    failed, signals = service(
        f"said = [int(x) for x in subprocess.run({command!r}, capture_output=True, text=True, check=True).stdout.split()]"
    )
    print(f"{failed} calls of a process that does nothing else were interrupted by {signals} signals")
    assert len(list(place.iterdir())) == 1


def test_files_without_a_name_are_not_missed(relive: Relive, service: Obedient, place: Path) -> None:
    service(
        f"d = Path({str(place)!r}); n = os.open(d, os.O_TMPFILE | os.O_RDWR); os.write(n, b'x');"
        "g = open(d/'gone', 'w+'); g.write('y'); g.flush(); (d/'gone').unlink()"
    )
    commit = relive.commit(service.capsule)
    assert not [line for layer in commit.manifest.layers for line in layer.left_out]
    branch = relive.restore(commit, service.port)
    assert (
        service(
            "said = os.pread(n, 1, 0).decode() + os.pread(g.fileno(), 1, 0).decode()",
            branch.ports[service.port],
        )
        == "xy"
    )
    service("os.close(n); g.close()")

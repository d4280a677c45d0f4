"""Locks that processes hold on files stand in a branch, of every kind, as another process there meets them."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from support.waiting import eventually

from .harness import PYTHON, Relive
from .obedient import HELPERS, Obedient

PROBE = Path(__file__).parent / "lockprobe.py"

TAKING = """
import fcntl, struct
def lock(kind, start, length, command=fcntl.F_SETLK):
    return command, struct.pack('hhqqi4x', kind, os.SEEK_SET, start, length, 0)
READ, WRITE, OFD = fcntl.F_RDLCK, fcntl.F_WRLCK, 37
"""

# What is made on the host, unless the name is "new"; how the service locks it. Files are 8192 bytes long, and ``f`` is open.
KINDS = {
    "posix read": "fcntl.fcntl(f, *lock(READ, 128, 1))",
    "posix write": "fcntl.fcntl(f, *lock(WRITE, 0, 0))",
    "posix ranges": (
        "fcntl.fcntl(f, *lock(READ, 10, 5)); fcntl.fcntl(f, *lock(WRITE, 100, 7)); fcntl.fcntl(f, *lock(READ, 1 << 40, 1));"
        "fcntl.fcntl(f, *lock(WRITE, 5000, 0))"
    ),
    "posix by two descriptors": (
        "g = open(f.name, 'r+b'); fcntl.fcntl(f, *lock(READ, 0, 10)); fcntl.fcntl(g, *lock(WRITE, 5, 10)); keep.append(g)"
    ),
    "posix of a file only read": "f = open(f.name, 'rb'); fcntl.fcntl(f, *lock(READ, 3, 4))",
    "posix and mapped": "keep.append(mmap.mmap(f.fileno(), 0)); fcntl.fcntl(f, *lock(READ, 128, 1)); fcntl.fcntl(f, *lock(WRITE, 200, 3))",  # noqa: E501 - a table
    "posix and mapped privately": (
        "keep.append(mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE)); fcntl.fcntl(f, *lock(WRITE, 1, 3))"
    ),
    "posix in a child": (
        "fcntl.fcntl(f, *lock(WRITE, 0, 10)); keep.append(mmap.mmap(f.fileno(), 0));"
        "p, q = os.pipe()\nif os.fork() == 0:\n    fcntl.fcntl(f, *lock(WRITE, 20, 10)); os.write(q, b'x'); signal.pause()\n"
        "os.read(p, 1)"
    ),
    "posix in a stopped child": (
        "keep.append(mmap.mmap(f.fileno(), 0)); child = os.fork()\n"
        "if child == 0:\n    fcntl.fcntl(f, *lock(WRITE, 20, 10)); os.kill(os.getpid(), signal.SIGSTOP); signal.pause()\n"
        "os.waitpid(child, os.WUNTRACED)"
    ),
    "ofd read": "fcntl.fcntl(f, *lock(READ, 128, 1, OFD))",
    "ofd write": "fcntl.fcntl(f, *lock(WRITE, 0, 0, OFD))",
    "ofd ranges": (
        "fcntl.fcntl(f, *lock(READ, 10, 5, OFD)); fcntl.fcntl(f, *lock(WRITE, 100, 7, OFD)); fcntl.fcntl(f, *lock(READ, 1 << 40, 1, OFD))"  # noqa: E501 - a table
    ),
    "ofd of two descriptions": (
        "g = open(f.name, 'r+b'); fcntl.fcntl(f, *lock(READ, 0, 10, OFD)); fcntl.fcntl(g, *lock(READ, 5, 10, OFD)); keep.append(g)"
    ),
    "ofd and mapped": "keep.append(mmap.mmap(f.fileno(), 0)); fcntl.fcntl(f, *lock(READ, 128, 1, OFD))",
    "flock shared": "fcntl.flock(f, fcntl.LOCK_SH)",
    "flock exclusive": "fcntl.flock(f, fcntl.LOCK_EX)",
    "flock and mapped": "keep.append(mmap.mmap(f.fileno(), 0)); fcntl.flock(f, fcntl.LOCK_EX)",
    "all": "fcntl.fcntl(f, *lock(READ, 10, 5)); fcntl.fcntl(f, *lock(WRITE, 100, 7, OFD)); fcntl.flock(f, fcntl.LOCK_SH)",
    "none": "",
}


def where(place: Path, number: int) -> list[Path]:
    """One file that the host had, and that the service only opens; one that it wrote to; one that it made."""
    return [place / f"{number}-{kind}" for kind in ("old", "changed", "new")]


@pytest.mark.parametrize("files", ["host", "overlay"])
def test_locks_stand_in_a_branch_as_in_the_original(relive: Relive, place: Path, files: str) -> None:
    names = []
    for number in range(len(KINDS)):
        old, changed, _ = where(place, number)
        old.write_bytes(bytes(8192))
        changed.write_bytes(bytes(8192))
    service = Obedient(relive, options=("--files", files))
    service(HELPERS + TAKING + "import signal\nkeep = []")
    for number, taking in enumerate(KINDS.values()):
        for path in where(place, number):
            names.append(str(path))
            touch = "" if path.name.endswith("old") else "f.write(bytes(8192)); f.flush();"
            how = "w+b" if path.name.endswith("new") else "r+b"
            service(f"f = open({str(path)!r}, {how!r}); {touch} keep.append(f)\n{taking}\nkeep.append(f)")
    probe = [str(PYTHON), str(PROBE), *names]
    inside = f"said = json.loads(subprocess.run({probe!r}, capture_output=True, check=True).stdout)"
    then = service("import json\n" + inside)
    assert len({json.dumps(one) for one in then.values()}) > len(KINDS) / 2  # they do lock, in different ways
    branch = relive.restore(relive.commit(service.capsule), service.port)
    assert named(json.loads(branch.exec(*probe))) == named(then)
    assert service(inside) == then, "the original still has its own"
    # The locks are the branch's to give up and take again.
    again = service(f"for f in keep:\n    f.close()\n{inside}", branch.ports[service.port])
    assert {json.dumps(one) for path, one in again.items() if "child" not in kind_of(path)} == {
        json.dumps(then[names[-1]])
    }


UPDATING = """
import random, sqlite3
base = {base!r}
db = sqlite3.connect(base, check_same_thread=False, isolation_level=None)
db.execute('pragma journal_mode=wal'); db.execute('create table t (n integer primary key, x blob)')
db.executemany('insert into t values (?, ?)', ((n, random.randbytes(900)) for n in range(4_000)))
done, is_done = 0, False
def write():
    global done
    while not is_done:
        db.execute('update t set x = ? where n = ?', (random.randbytes(900), random.randrange(4_000))); done += 1
t = threading.Thread(target=write, daemon=True); t.start()
"""


@pytest.mark.parametrize("how", [(), ("--lazy",)], ids=["at once", "lazily"])
def test_a_database_in_wal_mode_is_opened_by_a_second_program_in_a_branch(
    relive: Relive, place: Path, how: tuple[str, ...]
) -> None:
    """It sees that it is not the first, so it leaves the index alone that the service has mapped."""
    service = Obedient(relive)
    service(HELPERS + UPDATING.format(base=str(place / "app.db")))
    commit = relive.commit(service.capsule)
    branch = relive.restore(commit, service.port, options=how)
    port = branch.ports[service.port]
    for _ in range(3):
        with_second = branch.exec(
            str(PYTHON), "-c", f"import sqlite3; d = sqlite3.connect({str(place / 'app.db')!r}, timeout=60);"
            "print(*d.execute('pragma integrity_check').fetchone(), *d.execute('select count(*) from t').fetchone())"
        )  # fmt: skip
        assert with_second.split() == ["ok", "4000"]
        before = service("said = done", port)
        eventually(lambda: service("said = done", port) > before, "the service of the branch goes on")  # noqa: B023
    assert service(
        "is_done = True; t.join(); said = db.execute('pragma integrity_check').fetchone()", port
    ) == ["ok"]
    assert sqlite3.connect(place / "app.db").execute("select count(*) from t").fetchone() == (4_000,)


SHARING = """
import sqlite3
def connect():
    return sqlite3.connect({base!r}, timeout=0.1, isolation_level=None, check_same_thread=False)
def insert():
    new = connect()
    try:
        new.execute('insert into t values (1)')
    except sqlite3.OperationalError as error:
        return str(error)
    finally:
        new.close()
held = connect()
held.execute('pragma journal_mode={journal}'); held.execute('create table t (n)')
"""


@pytest.mark.parametrize("files", ["host", "overlay"])
@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_connections_of_before_and_after_a_commit_see_each_other(
    relive: Relive, place: Path, journal: str, files: str
) -> None:
    """SQLite knows by the numbers of a database that both are to it."""
    service = Obedient(relive, options=("--files", files))
    service(SHARING.format(base=str(place / "app.db"), journal=journal))
    branch = relive.restore(relive.commit(service.capsule), service.port)
    port = branch.ports[service.port]
    for _ in range(3):
        service("held.execute('insert into t values (1)'); insert()", port)
    assert service("said = held.execute('select count(*) from t').fetchone()", port) == [6]
    service("held.execute('begin immediate'); held.execute('insert into t values (1)')", port)
    assert service("said = insert()", port) == "database is locked"
    assert service(
        "held.execute('commit'); said = held.execute('pragma integrity_check').fetchone()", port
    ) == ["ok"]


def kind_of(path: str) -> str:
    return list(KINDS)[int(Path(path).name.partition("-")[0])]


def named(found: dict[str, object]) -> dict[str, object]:
    return {f"{kind_of(path)} {path}": one for path, one in found.items()}

"""Files that a program has open keep their inode numbers in a branch: SQLite with a rollback journal writes only to such a one."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from support.ports import free_port
from support.waiting import eventually

from .harness import PYTHON, SERVICES, Branch, Process, Relive
from .obedient import HELPERS, Obedient, told

# What becomes of a database after the commit; `d` its connection, `p` its path.
AFTERWARDS = {
    "kept": "",
    "written": "d.execute('insert into t values (2)')",
    "vacuumed": "d.execute('create table u (x)'); d.execute('insert into u values (zeroblob(1000000))'); d.execute('drop table u');"
    "d.execute('vacuum')",
    "replaced": "shutil.copy(p, p + '.new'); os.replace(p + '.new', p)",
    "deleted": "os.unlink(p)",
}
OPEN = """
import sqlite3
place, bases = {place!r}, {{}}
for name, journal in {bases!r}:
    path = place + '/' + name
    bases[name] = sqlite3.connect(path, check_same_thread=False, isolation_level=None), path
    bases[name][0].execute('pragma journal_mode=' + journal)
    bases[name][0].execute('create table if not exists t (n integer)'); bases[name][0].execute('insert into t values (1)')
"""
NAMES = [
    *((name, "delete") for name in AFTERWARDS),
    ("persistent", "persist"),
    ("truncated", "truncate"),
    ("wal", "wal"),
]
INSERT = """
said = {}
for name, (d, p) in bases.items():
    try:
        d.execute('insert into t values (7)')
        said[name] = [d.execute('select n from t').fetchall(), d.execute('pragma integrity_check').fetchone()]
    except sqlite3.Error as error:
        said[name] = str(error)
"""
NUMBERS = """
def numbers_of(p):
    fds = ['/proc/self/fd/' + name for name in os.listdir('/proc/self/fd')]
    return [os.stat(p).st_ino, *{os.stat(fd).st_ino for fd in fds if os.path.realpath(fd) == p}]
said = {name: numbers_of(p) for name, (d, p) in bases.items()}
"""


def writable(branch: Branch, port: int, then: dict[str, list[int]]) -> None:
    assert told(NUMBERS, branch.ports[port]) == then
    assert told(INSERT, branch.ports[port]) == {name: [[[1], [7]], ["ok"]] for name, _ in NAMES}
    assert told(NUMBERS, branch.ports[port]) == then


def check(relive: Relive, place: Path, target: str, port: int) -> None:
    told(HELPERS + OPEN.format(place=str(place), bases=NAMES), port)
    then = told(NUMBERS, port)
    assert all(len(set(numbers)) == 1 for numbers in then.values())
    commit = relive.commit(target)
    at_once = relive.restore(commit, port)
    writable(at_once, port, then)
    for name, code in AFTERWARDS.items():
        told(f"d, p = bases[{name!r}]; {code}", port)
    later = relive.restore(commit, port)
    writable(later, port, then)
    # The branch that ran meanwhile does not depend on what became of the original's files.
    assert told(NUMBERS, at_once.ports[port]) == then
    assert told("d, p = bases['deleted']; d.execute('insert into t values (8)')", at_once.ports[port]) is None
    assert told(INSERT, port)["kept"] == [[[1], [7]], ["ok"]], "the original has nothing of its branches"
    assert told("said = os.path.exists(bases['deleted'][1])", port) is False


@pytest.mark.parametrize("files", ["host", "overlay"])
def test_databases_are_written_in_a_branch_of_a_capsule(relive: Relive, place: Path, files: str) -> None:
    with sqlite3.connect(place / "kept") as old:  # made by another program, before the service was there
        old.execute("create table t (n integer)")
    old.close()
    service = Obedient(relive, options=("--files", files))
    check(relive, place, "service", service.port)


def test_databases_are_written_in_a_branch_of_a_process(relive: Relive, place: Path) -> None:
    port = free_port()
    service = Process(PYTHON, SERVICES / "orders.py", str(port))
    try:
        eventually(lambda: answers(lambda: told("said = 1", port)), "it takes orders")
        check(relive, place, f"pid:{service.pid}", port)
    finally:
        service.close()


def answers(ask: Callable[[], object]) -> bool:
    try:
        return ask() == 1
    except OSError:
        return False


def test_a_database_in_memory_is_written_or_named(relive: Relive) -> None:
    """A branch gets /dev/shm anew, with numbers of its own. What SQLite remembers is corrected, if it is no number like others."""
    with tempfile.TemporaryDirectory(prefix="relive-", dir="/dev/shm") as place:
        service = Obedient(relive)
        service(HELPERS + OPEN.format(place=place, bases=[("journal", "delete"), ("wal", "wal")]))
        is_like_others = service("said = os.stat(bases['journal'][1]).st_ino") < 1 << 16
        commit = relive.commit("service")
        branch = relive.restore(commit, service.port)
        named = relive("restore", commit.id)["unwritable_databases"]
        shown = relive.say("restore", commit.id).stderr
        written = [[[1], [7]], ["ok"]]
        said = told(INSERT, branch.ports[service.port])
        assert said["wal"] == written
        if is_like_others:
            assert named == [f"{place}/journal"] and said["journal"] == "attempt to write a readonly database"
            assert f"{place}/journal cannot be written in the branch" in shown
        else:
            assert named == [] and said["journal"] == written

"""Twenty commits of each of seven services that write all the time, each restored and compared file by file with what was there.

What was there is seen at the very moment of the commit, and what a branch has before it runs (``frozen``): content, kind, mode,
owner, times, extended attributes. Takes a quarter of an hour, and needs Debian's archive for a source and for logrotate:

    make test ARGS="-m soak -s -n0 tests/real/test_files_campaign.py"
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import statistics
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from support.ports import free_port
from support.servers import HAS_POSTGRES, POSTGRES
from support.waiting import eventually

from .debian import program, source
from .frozen import FrozenLook
from .harness import PYTHON, SERVICES, Process, Relive
from .likeness import Likeness, differences
from .obedient import HELPERS, Obedient

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

COMMITS = 20
EARLY = 5  # each of so many is restored at once too, and runs on while the original changes what it was
Start = Callable[[Relive, Path, FrozenLook], "contextlib.AbstractContextManager[Service]"]


@dataclass
class Service:
    """What runs.

    Attributes:
        progress: another value each time that it has done something.
        comparable: leaves out of both what the service does not change itself.
    """

    name: str
    progress: Callable[[], object]
    comparable: Callable[[Likeness, Likeness], tuple[Likeness, Likeness]] = lambda then, found: (then, found)
    check: Callable[[], None] = field(default=lambda: None)


@contextlib.contextmanager
def postgres(relive: Relive, data: Path, _: FrozenLook) -> Iterator[Service]:
    """pgbench writes to tables that were there before."""
    if not HAS_POSTGRES:
        pytest.skip("needs PostgreSQL")
    assert POSTGRES is not None
    shutil.chown(data, "postgres", "postgres")
    as_user = ("runuser", "-u", "postgres", "--")
    initdb = [
        *as_user,
        POSTGRES.with_name("initdb"),
        "--no-sync",
        "--auth=trust",
        "-U",
        "postgres",
        "-D",
        data / "db",
    ]
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd="/")
    port = free_port()
    settings = {"port": port, "listen_addresses": "127.0.0.1", "huge_pages": "off", "shared_buffers": "16MB"}
    settings |= {"unix_socket_directories": "", "checkpoint_timeout": "30s", "max_wal_size": "64MB"}
    server = [
        POSTGRES,
        "-D",
        data / "db",
        *(word for item in settings.items() for word in ("-c", "=".join(map(str, item)))),
    ]
    pgbench = ["pgbench", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres"]

    def ask(query: str) -> object:
        with psycopg.connect(host="127.0.0.1", port=port, user="postgres", dbname="postgres") as connection:
            row = connection.execute(query).fetchone()  # type: ignore[call-overload]
            return row and row[0]

    def answers() -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            return ask("select 1") == 1
        return False

    before = Process(*as_user, *server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
    eventually(answers, "PostgreSQL answers")
    subprocess.run([*pgbench, "-i", "-s", "4", "-q", "postgres"], check=True, capture_output=True)
    subprocess.run(
        [*as_user, POSTGRES.with_name("pg_ctl"), "-D", data / "db", "stop"],
        check=True,
        capture_output=True,
        cwd="/",
    )
    before.close()
    relive.run(*server, user="postgres")
    eventually(answers, "PostgreSQL answers")
    load = Process(
        *pgbench,
        "-n",
        "-c",
        "2",
        "-T",
        "3600",
        "-R",
        "150",
        "postgres",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Service("service", lambda: int(str(ask("select count(*) from pgbench_history"))) // 200)
        assert load.popen.poll() is None, "pgbench has lost a connection"
    finally:
        load.close()


@contextlib.contextmanager
def build(relive: Relive, data: Path, _: FrozenLook) -> Iterator[Service]:
    """``make -j2`` of Lua's interpreter, again and again."""
    tree = source("lua5.4", data.parent / "source")
    shutil.copytree(tree, data / "tree", symlinks=True)
    again = "while make clean && make -j2 linux; do echo whole; done"
    relive.run("/bin/sh", "-c", f"cd {data}/tree && {again}")

    def made() -> object:
        return sorted((path.name, path.stat().st_mtime_ns) for path in (data / "tree/src").glob("*.[oa]"))

    yield Service("service", made)


@contextlib.contextmanager
def rotation(relive: Relive, data: Path, _: FrozenLook, *, outside: bool = False) -> Iterator[Service]:
    """logrotate, started by the service itself, or by the host."""
    unpacked = data.parent / "logrotate"
    rotate = program("logrotate", "usr/sbin/logrotate", unpacked)
    library = program("libpopt0", "usr/lib/x86_64-linux-gnu/libpopt.so.0", data.parent / "popt").parent
    rules = data.parent / "rules"
    common = "rotate 4\n nocompress\n size 1\n missingok\n"
    rules.write_text(
        f"su root root\n{data}/copied {{\n {common} copytruncate\n}}\n"
        f'{data}/renamed {{\n {common} create 0640 root adm\n postrotate\n  test -z "$HUP" || kill -HUP "$HUP"\n endscript\n}}\n'
    )
    command = f"HUP=$PPID LD_LIBRARY_PATH={library} exec {rotate} -f -s {data}/state {rules}"
    (data.parent / "rotate.sh").write_text(command if not outside else "exec sleep 0.2")
    capsule = relive.run(PYTHON, SERVICES / "rotated.py", data, "300", "/bin/sh", data.parent / "rotate.sh")
    eventually((data / "pid").exists, "it writes")

    def rotate_outside() -> None:
        with_pid = {**os.environ, "HUP": str(capsule.pid), "LD_LIBRARY_PATH": str(library)}
        subprocess.run([rotate, "-f", "-s", data.parent / "state", rules], check=True, env=with_pid)

    def sizes() -> object:
        if outside:
            rotate_outside()
        found = []
        for path in data.iterdir():
            with contextlib.suppress(FileNotFoundError):  # rotated away meanwhile
                found.append((path.name, path.stat().st_ino, path.stat().st_size))
        return sorted(found)

    def open_only(then: Likeness, found: Likeness) -> tuple[Likeness, Likeness]:
        """What the host renamed or made is not the service's; its two logs are."""
        logs = {f"{data}/copied", f"{data}/renamed"} & then.keys()
        return {path: then[path] for path in logs}, {path: found[path] for path in logs & found.keys()}

    yield Service("service", sizes, open_only if outside else Service.comparable)


@contextlib.contextmanager
def rotation_by_the_host(relive: Relive, data: Path, look: FrozenLook) -> Iterator[Service]:
    """logrotate, started by the host."""
    with rotation(relive, data, look, outside=True) as service:
        yield service


READER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60)
while True:
    total, count = db.execute('select sum(n), count(*) from t').fetchone()
    assert db.execute('pragma quick_check').fetchone() == ('ok',)
    print(count, flush=True)
"""


@contextlib.contextmanager
def database(relive: Relive, data: Path, _: FrozenLook, *, journal: str = "wal") -> Iterator[Service]:
    """SQLite in WAL mode, read by a second process of the host meanwhile."""
    service = Obedient(relive)
    service(
        HELPERS
        + f"""
import random, sqlite3
db = sqlite3.connect({str(data / "app.db")!r}, timeout=60, check_same_thread=False, isolation_level=None)
db.execute('pragma journal_mode={journal}'); db.execute('create table t (n integer primary key, x blob)')
done, is_done = 0, False
def write():
    global done
    while not is_done:
        db.execute('begin immediate')
        db.execute('insert or replace into t values (?, ?)', (random.randrange(20_000), random.randbytes(700))); done += 1
        db.execute('delete from t where n = ?', (random.randrange(20_000),))
        db.execute('commit')
t = threading.Thread(target=write, daemon=True); t.start()
"""
    )
    eventually(lambda: service("said = done") > 0, "it writes")
    reader = Process(PYTHON, "-c", READER, data / "app.db", stdout=subprocess.DEVNULL)

    def without_index(then: Likeness, found: Likeness) -> tuple[Likeness, Likeness]:
        """The reader writes its marks into the index, also while the service stands still."""
        for one in (then, found):
            one.get(f"{data}/app.db-shm", {}).pop("content", None)
        return then, found

    def check() -> None:
        with contextlib.closing(sqlite3.connect(data / "app.db")) as db:
            assert db.execute("pragma integrity_check").fetchone() == ("ok",)

    try:
        yield Service("service", lambda: int(service("said = done")) // 300, without_index, check)
        assert reader.popen.poll() is None, "the reader has seen what is no database"
    finally:
        reader.close()


@contextlib.contextmanager
def database_with_a_journal(relive: Relive, data: Path, look: FrozenLook) -> Iterator[Service]:
    """SQLite with a rollback journal that is made and removed for each transaction, and a second process as above."""
    with database(relive, data, look, journal="delete") as service:
        yield service


@contextlib.contextmanager
def spool(relive: Relive, data: Path, _: FrozenLook) -> Iterator[Service]:
    """A consumer of what the host lays into a folder."""
    incoming, done = data / "incoming", data / "done"
    incoming.mkdir()
    done.mkdir()
    service = Obedient(relive)
    service(
        HELPERS
        + f"""
incoming, done, taken = Path({str(incoming)!r}), Path({str(done)!r}), 0
def consume():
    global taken
    while True:
        for path in sorted(incoming.glob('[0-9]*'))[:20]:
            text = path.read_text()
            w(done/('.' + path.name), text.upper()); os.setxattr(done/('.' + path.name), 'user.from', text[:20].encode())
            (done/('.' + path.name)).rename(done/path.name)
            if int(path.name) % 3: path.unlink()
            else: path.rename(done/f'{{path.name}}.kept')
            taken += 1
            for old in sorted(done.iterdir())[:-300]: old.unlink()
t = threading.Thread(target=consume, daemon=True); t.start()
"""
    )
    is_done = threading.Event()

    def produce() -> None:
        for number in range(10**9):
            eventually(lambda: len(os.listdir(incoming)) < 100 or is_done.is_set(), "it consumes")
            (incoming / f".{number}").write_text(f"{number} " * 50)
            (incoming / f".{number}").rename(incoming / f"{number:09}")
            if is_done.wait(0.01):
                return

    producer = threading.Thread(target=produce, daemon=True)
    producer.start()

    def without_news(then: Likeness, found: Likeness) -> tuple[Likeness, Likeness]:
        """What the host has laid there since, or was about to lay there, is the host's."""

        def is_ours(path: str) -> bool:
            return path != str(incoming) and not path.startswith(f"{incoming}/.")

        then = {path: one for path, one in then.items() if is_ours(path)}
        later = {path for path in found if path.startswith(f"{incoming}/")} - then.keys()
        last = max((path for path in then if path.startswith(f"{incoming}/")), default=f"{incoming}/")
        return then, {
            path: one for path, one in found.items() if is_ours(path) and not (path in later and path > last)
        }

    try:
        yield Service("service", lambda: int(service("said = taken")) // 30, without_news)
    finally:
        is_done.set()
        producer.join()


@pytest.mark.parametrize(
    "start",
    [postgres, build, rotation, rotation_by_the_host, database, database_with_a_journal, spool],
    ids=lambda one: one.__name__,
)
def test_each_commit_has_the_files_as_they_were(relive: Relive, place: Path, start: Start) -> None:
    data, own = place / "data", place / "look"
    for directory in (data, own):
        directory.mkdir(mode=0o755)
    look = FrozenLook(relive, own, data)
    compared, wrong, grown = 0, [], []
    with contextlib.closing(relive), start(relive, data, look) as service:

        def compare(number: int, commit: str, then: Likeness, when: str) -> int:
            branch = relive.restore(commit)
            expected, found = service.comparable(*look.in_branch(branch, then))
            wrong.extend(f"commit {number}, {when}: {line}" for line in differences(expected, found))
            if when == "at the end":
                branch.stop()
            return len(expected)

        taken = []
        for number in range(COMMITS):
            before = service.progress()
            eventually(lambda: service.progress() != before, f"{service.name} goes on")  # noqa: B023
            commit, then = look.commit(service.name)
            taken.append((commit.id, then))
            grown.append(relive("show", commit.id)["new_bytes"] if number else 0)
            left_out = [line for layer in commit.manifest.layers for line in layer.left_out]
            wrong.extend(f"commit {number} lacks {line}" for line in left_out)
            if number % EARLY == 0:
                compared += compare(number, commit.id, then, "at once")
        for number, (commit_id, then) in enumerate(taken):
            compared += compare(number, commit_id, then, "at the end")
        service.check()
    said = f"{COMMITS} commits, {compared} files compared, {len(wrong)} differences"
    print(f"\n{start.__name__}: {said}; a commit brings {statistics.median(grown[1:]) / 1e6:.2f} MB")
    assert compared and not wrong, "\n".join(wrong[:40])

"""PostgreSQL: several processes with shared memory, as a user of their own, its tables on the host."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest

from support.ports import free_port
from support.servers import HAS_POSTGRES, POSTGRES, postgres_cluster
from support.waiting import LIMIT, eventually

from .harness import Commit, Load, Relive

ON_TOP = '"micro": true'
TRIES = 40
"""Commits until enough are on top of others: a thread may not stop in time, and after refusals tries are rarer."""

pytestmark = pytest.mark.skipif(not HAS_POSTGRES, reason="needs PostgreSQL")


@pytest.fixture
def cluster() -> Iterator[Path]:
    """A data directory that belongs to the user postgres, below a directory that this user can enter."""
    with postgres_cluster() as directory:
        yield directory


def connect(port: int) -> psycopg.Connection:
    return psycopg.connect(host="127.0.0.1", port=port, user="postgres", dbname="postgres", autocommit=True)


def connect_soon(port: int) -> psycopg.Connection:
    def attempt() -> psycopg.Connection | None:
        try:
            return connect(port)
        except psycopg.OperationalError:
            return None

    return eventually(attempt, "postgres answers")


def ask(connection: psycopg.Connection, query: str) -> object:
    row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def test_postgres_under_writes(relive: Relive, cluster: Path) -> None:
    port = free_port()
    settings = {"port": port, "listen_addresses": "127.0.0.1", "huge_pages": "off", "fsync": "off"}
    settings |= {"unix_socket_directories": str(cluster), "shared_buffers": "16MB"}
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    capsule = relive.run(POSTGRES, "-D", cluster / "data", *words, name="postgres", user="postgres")
    with connect_soon(port) as writer, connect(port) as idle:
        writer.execute("create table hits (n bigserial primary key)")
        idle.execute("begin")
        idle.execute("create table never (n int)")  # a transaction that is open at the commit

        def write() -> object:
            return ask(writer, "insert into hits default values returning n")

        with Load(write) as load:
            first = int(str(load.last))
            commit = relive.commit(capsule)
            last = int(str(load.last)) + 1
            load.more()
            branches = [relive.restore(commit, port), relive.restore(commit, port)]
            load.more()
        processes = commit.manifest.target.processes
        assert len(processes) >= 7 and {process.uid for process in processes} != {0}
        for branch in branches:
            with connect_soon(branch.ports[port]) as inside:
                count = int(str(ask(inside, "select count(*) from hits")))
                assert first <= count <= last
                assert ask(inside, "select to_regclass('never') is null")
                written = [
                    int(str(ask(inside, "insert into hits default values returning n"))) for _ in range(5)
                ]
                assert written == sorted(written) and written[0] > count
                inside.execute("checkpoint")
                assert ask(inside, "select count(*) from hits") == count + 5
                pids = inside.execute(
                    "select pid from pg_stat_activity where backend_type != 'client backend'"
                )
                assert {row[0] for row in pids} <= {process.pid for process in processes}
            assert branch.seal().is_intact
        assert ask(writer, "select count(*) from hits") == load.last
        idle.execute("commit")
        assert ask(writer, "select to_regclass('never') is not null")


def test_a_branch_of_a_commit_on_top_of_another_has_what_was_written_by_then(
    relive: Relive, cluster: Path
) -> None:
    """Its processes share memory, and have a System V segment attached; a worker may come or go amid a commit."""
    port = free_port()
    settings = {"port": port, "unix_socket_directories": str(cluster), "huge_pages": "off", "fsync": "off"}
    settings |= {"shared_buffers": "16MB", "autovacuum": "off"}
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    capsule = relive.run(POSTGRES, "-D", cluster / "data", *words, user="postgres", RELIVE_MICRO="1")
    with connect_soon(port) as writer, connect(port) as idle:
        writer.execute("create table hits (n int)")
        ask(idle, "select count(*) from hits")
        on_top: list[tuple[int, Commit]] = []
        for number in range(1, TRIES + 1):
            writer.execute("insert into hits values (%s)", (number,))
            commit = relive.commit(capsule)
            if relive.agent_log(capsule).count(ON_TOP) > len(on_top):
                on_top.append((number, commit))
            if len(on_top) == 3:
                break
        assert len(on_top) == 3
        assert ask(writer, "select count(*) from hits") == number
    number, commit = on_top[-1]
    branch = relive.restore(commit, port)
    with connect_soon(branch.ports[port]) as inside:
        assert ask(inside, "select array_agg(n order by n) from hits") == list(range(1, number + 1))
        inside.execute("insert into hits values (0)")
        inside.execute("checkpoint")
        assert ask(inside, "select count(*) from hits") == number + 1


def is_alone(connection: psycopg.Connection) -> bool:
    sessions = "select count(*) from pg_stat_activity where backend_type = 'client backend'"
    return ask(connection, sessions) == 1


def test_sessions_of_clients_hold_their_locks_unless_they_are_closed(relive: Relive, cluster: Path) -> None:
    """And PostgreSQL with clients is stopped by SIGINT, or when its time is up: TERM is its shutdown that waits for them."""
    port = free_port()
    words = ["-c", f"port={port}", "-c", f"unix_socket_directories={cluster}", "-c", "huge_pages=off"]
    command = [str(POSTGRES), "-D", str(cluster / "data"), *words, "-c", "fsync=off"]
    relive.run(*command, name="postgres", user="postgres")
    with contextlib.closing(connect_soon(port)) as idle, contextlib.closing(connect(port)) as waiting:
        idle.execute("create table hits (n int)")
        idle.execute("begin")
        idle.execute("lock table hits")
        waiting.execute("select 1")
        commit = relive.commit("postgres")
        answers = []
        for clients in ("keep", "close"):
            outer = free_port()
            restored = relive(
                "restore", "--clients", clients, "--publish", f"{outer}:{port}", "--clock", "now", commit.id
            )
            assert (
                restored["clients"] == clients and restored["taken_wall_ns"] == commit.manifest.taken_wall_ns
            )
            with connect_soon(outer) as inside:
                if clients == "close":
                    eventually(partial(is_alone, inside), "only this session is there")
                inside.execute("set lock_timeout = '300ms'")
                try:
                    inside.execute("truncate hits")
                    answers.append("done")
                except psycopg.errors.LockNotAvailable:
                    answers.append("locked")
            relive("stop", restored["id"])
        assert answers == ["locked", "done"]
        said = relive.say("stop", "--timeout", "0.5", "postgres")
        assert "is killed" in said.stderr and said.returncode == 0
    relive.run(*command, name="postgres", user="postgres")
    with contextlib.closing(connect_soon(port)):
        said = relive.say("stop", "--signal", "INT", "postgres")
        assert "is killed" not in said.stderr and said.returncode == 0
    assert relive("incidents") == []


class Writer(threading.Thread):
    """Inserts rows until the server is gone. ``acknowledged``: those of which it has said that they are there."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[int] = []
        self._connection = connect(port)

    def run(self) -> None:
        with contextlib.suppress(psycopg.Error), self._connection as connection:
            while True:
                self.acknowledged.append(
                    int(str(ask(connection, "insert into hits default values returning n")))
                )


def kill_amid_writes(port: int, kill: int, between: Callable[[], object]) -> set[int]:
    """Rows that were acknowledged before a process, and with it the server, was killed."""
    writers = [Writer(port) for _ in range(4)]
    for writer in writers:
        writer.start()
    eventually(lambda: all(writer.acknowledged for writer in writers), "all write")
    between()
    count = sum(len(writer.acknowledged) for writer in writers)
    eventually(lambda: sum(len(writer.acknowledged) for writer in writers) > count + 100, "they go on")
    os.kill(kill, signal.SIGKILL)
    for writer in writers:
        writer.join(LIMIT)
    return {n for writer in writers for n in writer.acknowledged}


@pytest.mark.parametrize("rounds", [2, pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
def test_no_acknowledged_row_is_lost(relive: Relive, cluster: Path, rounds: int) -> None:
    """WHEN the server is killed amid writes, under Relive with all its processes; THEN one without Relive has all, and so on."""
    port = free_port()
    settings = {"port": port, "listen_addresses": "127.0.0.1", "huge_pages": "off"}
    settings |= {"unix_socket_directories": str(cluster), "shared_buffers": "16MB"}
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    command = [str(POSTGRES), "-D", str(cluster / "data"), *words]
    user = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")
    acknowledged: set[int] = set()
    for number in range(rounds):
        capsule = relive.run(*command, name=f"postgres-{number}", user="postgres")
        with connect_soon(port) as connection:
            connection.execute("create table if not exists hits (n bigserial primary key)")
        first = int(
            (Path("/proc") / str(capsule.pid) / "status").read_text().partition("PPid:")[2].split()[0]
        )
        acknowledged |= kill_amid_writes(port, first, partial(relive.commit, capsule))
        eventually(partial(_is_gone, capsule.pid), "it is gone")
        with subprocess.Popen([*user, *command], stderr=subprocess.DEVNULL, cwd="/") as plain:
            with connect_soon(port) as connection:
                there = {int(n) for (n,) in connection.execute("select n from hits")}
                assert acknowledged <= there
            acknowledged |= kill_amid_writes(port, plain.pid, lambda: None)
            plain.wait(LIMIT)
        eventually(partial(_starts_anew, cluster / "data" / "postmaster.pid"), "its processes are gone")
    branch = relive.restore(f"postgres-{rounds - 1}", port)
    with connect_soon(branch.ports[port]) as inside:
        assert ask(inside, "select count(*) from hits") != 0


def _is_gone(pid: int) -> bool:
    return not (Path("/proc") / str(pid)).exists()


def _starts_anew(pid_file: Path) -> bool:
    """Children of a server that was killed hold its shared memory for a moment more."""
    lines = pid_file.read_text().splitlines()
    identifier = lines[6].split()[-1] if len(lines) > 6 else "0"
    shared = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    return not any(fields[1] == identifier and fields[6] != "0" for fields in shared)

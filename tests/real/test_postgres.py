"""PostgreSQL: several processes with shared memory, as a user of their own, its tables in the capsule's overlay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from ports import free_port
from servers import HAS_POSTGRES, POSTGRES, postgres_cluster

from .harness import Load, Relive, eventually

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

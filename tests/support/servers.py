"""Database servers of a test's own: on free ports of loopback, with files of their own, ended with the test."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import redis

from support.ports import free_port
from support.waiting import eventually

__all__ = [
    "HAS_MARIADB",
    "HAS_POSTGRES",
    "HAS_REDIS",
    "POSTGRES",
    "mariadb_server",
    "postgres_cluster",
    "postgres_server",
    "redis_server",
]

POSTGRES = max(Path("/usr/lib/postgresql").glob("*/bin/postgres"), default=None)
"""The server's program."""
HAS_POSTGRES = POSTGRES is not None
HAS_REDIS = shutil.which("redis-server") is not None
HAS_MARIADB = shutil.which("mariadbd") is not None


@contextmanager
def _running(*command: str | Path, ready: Callable[[], object]) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
    try:
        eventually(ready, f"{command[0]} answers")
        yield
    finally:
        process.kill()
        process.wait()


def _answers(connect: Callable[[], Any], broken: type[Exception]) -> Callable[[], bool]:
    def attempt() -> bool:
        try:
            connect().close()
        except broken:
            return False
        return True

    return attempt


@contextmanager
def postgres_cluster() -> Iterator[Path]:
    """A directory of the user postgres with a fresh cluster in ``data``. Needs HAS_POSTGRES."""
    directory = _directory_of_postgres()
    try:
        subprocess.run(
            ["cp", "--archive", "--reflink=auto", _fresh_cluster(), directory / "data"], check=True
        )
        yield directory
    finally:
        shutil.rmtree(directory)


@cache
def _fresh_cluster() -> Path:
    """Made once in this process, and copied then: to make one takes a second of a processor, to copy it a tenth."""
    assert POSTGRES is not None
    directory = _directory_of_postgres()
    atexit.register(shutil.rmtree, directory)
    options = ("--no-sync", "--auth=trust", "--username=postgres", "--locale=C", "--encoding=UTF8")
    initdb = ("runuser", "-u", "postgres", "--", POSTGRES.with_name("initdb"), *options)
    subprocess.run((*initdb, "-D", directory / "data"), check=True, stdout=subprocess.DEVNULL, cwd="/")
    return directory / "data"


def _directory_of_postgres() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="relive-pg-"))
    shutil.chown(directory, "postgres", "postgres")
    return directory


@contextmanager
def postgres_server() -> Iterator[str]:
    """A PostgreSQL server; gives the URL of its database. Needs HAS_POSTGRES."""
    with postgres_cluster() as directory:
        port = free_port()
        given = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "fsync": "off",
            "unix_socket_directories": directory,
        }
        words = [word for name, value in given.items() for word in ("-c", f"{name}={value}")]
        address = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        ready = _answers(lambda: psycopg.connect(address), psycopg.OperationalError)
        # runuser would have to pass signals on, so it is replaced by the server.
        user = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")
        with _running(*user, str(POSTGRES), "-D", directory / "data", *words, ready=ready):
            yield address


@contextmanager
def redis_server() -> Iterator[str]:
    """A Redis server; gives its URL. Needs HAS_REDIS."""
    port = free_port()
    ready = _answers(lambda: _pinged(redis.Redis(port=port)), redis.ConnectionError)
    with _running("redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", ready=ready):
        yield f"redis://127.0.0.1:{port}"


def _pinged(client: redis.Redis) -> redis.Redis:
    client.ping()
    return client


@contextmanager
def mariadb_server() -> Iterator[str]:
    """A MariaDB server with an empty database ``mysql``; gives its port. Needs HAS_MARIADB."""
    directory = Path(tempfile.mkdtemp(prefix="relive-my-"))
    try:
        # Whoever comes is let in, so the system's own tables, for which the client's package would be needed, are left out.
        (directory / "data" / "mysql").mkdir(parents=True)
        port = free_port()
        words = (
            f"--datadir={directory / 'data'}",
            f"--port={port}",
            "--bind-address=127.0.0.1",
            f"--socket={directory}/socket",
            "--skip-grant-tables",
            "--innodb-log-file-size=4M",
        )
        ready = _answers(
            lambda: pymysql.connect(host="127.0.0.1", port=port, user="root"), pymysql.err.OperationalError
        )
        with _running("mariadbd", "--no-defaults", "--user=root", *words, ready=ready):
            yield str(port)
    finally:
        shutil.rmtree(directory)

"""The clients that services have, in commits under load: in each branch they go on on their old connections, byte for byte.

Nothing is recorded inside the services: Python with psycopg and asyncpg pools, redis-py, httpx with keep-alive; Node with pg and
redis.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from relive.recording.exchanges import Exchanges
from relive.recording.reader import Recording
from support.servers import HAS_POSTGRES, HAS_REDIS, postgres_server, redis_server

from .harness import SERVICES, TOOLS, Load, Relive
from .test_stubs import Answered, servers

__all__ = ["servers"]

_node, _npm = shutil.which("node"), shutil.which("npm")
_CLIENTS = ("pg@8", "redis@5")
needs_databases = pytest.mark.skipif(not (HAS_POSTGRES and HAS_REDIS), reason="needs PostgreSQL and Redis")


@pytest.fixture(scope="module")
def databases() -> Iterator[dict[str, int]]:
    """Ports of a PostgreSQL with the table that the service fills, and of a Redis."""
    with postgres_server() as address, redis_server() as cache:
        with psycopg.connect(address) as connection:
            connection.execute("create table hits (n bigserial, who text)")
        port = urlsplit(address).port
        yield {"psycopg": port, "asyncpg": port, "redis": urlsplit(cache).port}


def under_load(service: Answered, names: list[str]) -> Load:
    """All clients are used one after the other, with other numbers each time."""
    rounds = iter(range(1, 100_000))

    def work() -> str:
        number = next(rounds)
        return "".join(service.ask(f"/{name}/{number % 50}") for name in names)

    return Load(work)


def lives_on(service: Answered, names: list[str], commits: int) -> None:
    """Commit under load again and again; each commit's branch answers the requests after it as they were answered."""
    with under_load(service, names) as load:
        taken = []
        for _ in range(commits):
            taken.append(service.relive.commit("answered", measured=False).id)
            load.more(3)
    last = service.last_request()
    for commit in taken:
        first = _first_after(service, commit)
        for request in {min(first + len(names) * 2, last)}:
            done = service.relive.say("replay", "--request", str(request), "--speed", "10", commit)
            result = json.loads(done.stdout)
            (run,) = result["runs"]
            assert done.returncode == 0, json.dumps(run, indent=1)
            assert run["outcome"]["misses"] == [] and run["outcome"]["stubs"]["strangers"] == []
            assert run["outcome"]["stubs"]["notes"] == []
            assert run["outcome"]["stubs"]["continued"] >= len(names)
            assert run["outcome"]["stubs"]["opened"] == 0
            assert run["outcome"]["packets_left"] == 0


def _first_after(service: Answered, commit: str) -> int:
    """Number of the first request that began after a commit."""
    cursor = service.relive("show", commit)["cursor"]["sequence"]
    return min(one.number for one in Exchanges(Recording(service.life / "recording")).all(after=cursor))


@needs_databases
def test_python_clients_go_on(relive: Relive, databases: dict[str, int], servers: dict[str, int]) -> None:
    names = ["psycopg", "asyncpg", "redis", "httpx"]
    ports = {**databases, "httpx": servers["httpx"]}
    lives_on(Answered(relive, ports), names, 2)


@pytest.mark.soak
@needs_databases
def test_python_clients_go_on_from_twenty_commits(
    relive: Relive, databases: dict[str, int], servers: dict[str, int]
) -> None:
    names = ["psycopg", "asyncpg", "redis", "httpx"]
    ports = {**databases, "httpx": servers["httpx"]}
    lives_on(Answered(relive, ports), names, 20)


@pytest.fixture(scope="module")
def modules() -> Path:
    """A directory of modules with clients for Node; fetched once, and kept beside Relive's tools."""
    directory = TOOLS / "node-clients"
    if not (directory / "whole").exists():
        directory.mkdir(exist_ok=True)
        command = [str(_npm), "install", "--no-audit", "--no-fund", "--prefix", directory, *_CLIENTS]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=directory)
        if done.returncode != 0:
            pytest.skip(f"npm cannot fetch clients: {done.stderr.strip().splitlines()[-1:]}")
        (directory / "whole").touch()
    return directory / "node_modules"


@needs_databases
@pytest.mark.skipif(_node is None or _npm is None, reason="needs node and npm")
@pytest.mark.parametrize("commits", [1, pytest.param(20, marks=pytest.mark.soak)])
def test_node_clients_go_on(relive: Relive, databases: dict[str, int], modules: Path, commits: int) -> None:
    ports = {"pg": databases["psycopg"], "redis": databases["redis"]}
    service = Answered(
        relive, ports, program=(str(_node), str(SERVICES / "answered.js")), NODE_PATH=str(modules)
    )
    lives_on(service, ["pg", "redis"], commits)

"""The cache that poisoned itself (examples/prices): Node with PostgreSQL and Redis, recorded at the border; replayed without."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from support.patched import patched
from support.ports import free_port
from support.servers import HAS_POSTGRES, HAS_REDIS, postgres_server, redis_server
from support.waiting import eventually

from .harness import Relive, ask

NODE, NPM = shutil.which("node"), shutil.which("npm")
pytestmark = [
    pytest.mark.skipif(not (HAS_POSTGRES and HAS_REDIS), reason="needs PostgreSQL and redis-server"),
    pytest.mark.skipif(NODE is None or NPM is None, reason="needs node and npm"),
]
EXAMPLE = Path(__file__).parents[2] / "examples" / "prices"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example with what it needs installed."""
    copy = tmp_path_factory.mktemp("prices") / "examples" / "prices"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("node_modules"))
    install = [str(NPM), "ci", "--omit=dev", "--no-audit", "--no-fund", "--prefer-offline"]
    subprocess.run(install, cwd=copy, check=True, capture_output=True)
    return copy


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    with postgres_server() as database, redis_server() as counts:
        yield {"PRICES_DATABASE": database, "PRICES_REDIS": counts}


def started(relive: Relive, source: Path, servers: dict[str, str]) -> int:
    """Run the service; returns the port at which it is asked."""
    port = free_port()
    options = ["--detach", "--name", "prices", "--record-egress", "--every", "1s", "--pause-share", "100"]
    command = [str(NODE), str(source / "server.js"), str(port)]
    relive("run", *options, "--listen", f"127.0.0.1:{port}", "--", *command, environment=servers)
    ask(port, "/price/sku-40")
    return port


def asked_while_locked(port: int, sku: str, database: str) -> int:
    """Status of an answer that was asked for while nobody can read the table, for longer than the service waits."""
    with psycopg.connect(database) as connection:
        connection.execute("LOCK TABLE prices")
        return httpx.get(f"http://127.0.0.1:{port}/price/{sku}", timeout=30).status_code


def test_a_query_that_took_too_long_once_is_told_for_ever_and_comes_back_without_a_database(
    relive: Relive, example: Path, servers: dict[str, str]
) -> None:
    port = started(relive, example, servers)
    command = [sys.executable, str(EXAMPLE / "traffic.py"), "--url", f"http://127.0.0.1:{port}"]
    told = subprocess.run(
        [*command, "--database", servers["PRICES_DATABASE"]], capture_output=True, text=True, check=False
    )
    assert told.returncode == 1, told.stdout + told.stderr
    path = told.stdout.split()[-1]
    # The lock is gone, the database answers, and the price does not come back.
    assert [httpx.get(f"http://127.0.0.1:{port}{path}").status_code for _ in range(3)] == [500] * 3
    eventually(relive.incidents, "the incident")

    shown: dict[str, Any] = relive("show", "1")
    queries = [row for row in shown["timeline"]["rows"] if row["kind"] == "query"]
    assert [row["what"] for row in queries] == ["SELECT price FROM prices WHERE sku = $1"]
    assert queries[0]["failed"]
    assert "statement timeout" in queries[0]["result"]

    replay = relive("replay", "1", "--first", "--times", "3")
    assert [run["verdict"]["kind"] for run in replay["runs"]] == ["reproduced"] * 3
    assert {run["outcome"]["packets_left"] for run in replay["runs"]} == {0}


def test_with_the_patch_the_price_is_read_again(
    relive: Relive, example: Path, servers: dict[str, str], tmp_path: Path
) -> None:
    port = started(relive, patched(example, tmp_path), servers)
    assert asked_while_locked(port, "sku-7", servers["PRICES_DATABASE"]) == 500
    with psycopg.connect(servers["PRICES_DATABASE"]) as connection:
        (price,) = connection.execute("SELECT price FROM prices WHERE sku = 'sku-7'").fetchone()
    assert ask(port, "/price/sku-7")["price"] == str(price)

"""The order that was charged nothing (examples/checkout): real PostgreSQL, Redis and gateway; its replay has none of them."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import psycopg
import pytest

from support.patched import loaded, patched
from support.ports import free_port
from support.servers import HAS_POSTGRES, HAS_REDIS, postgres_server, redis_server
from support.waiting import eventually

from .harness import Process, Relive, ask

pytestmark = pytest.mark.skipif(not (HAS_POSTGRES and HAS_REDIS), reason="needs PostgreSQL and redis-server")
EXAMPLE = Path(__file__).parents[2] / "examples" / "checkout"
UVICORN = Path(sysconfig.get_path("scripts")) / "uvicorn"


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    with postgres_server() as database, redis_server() as carts:
        yield {"CHECKOUT_DATABASE": database, "CHECKOUT_REDIS": carts.rpartition(":")[2]}


@pytest.fixture
def gateway(start: Callable[..., Process]) -> Callable[[float], dict[str, str]]:
    """Starts a gateway that is busy for a share of its charges; returns where the service finds it."""

    def begin(busy: float) -> dict[str, str]:
        port = free_port()
        start(sys.executable, EXAMPLE / "gateway.py", "--port", str(port), "--busy", str(busy))
        return {"CHECKOUT_GATEWAY": f"http://127.0.0.1:{port}"}

    return begin


def test_the_second_try_asks_for_nothing_and_the_replay_shows_it_without_any_server(
    relive: Relive, servers: dict[str, str], gateway: Callable[[float], dict[str, str]]
) -> None:
    port = free_port()
    options = [
        "--detach",
        "--name",
        "shop",
        "--every",
        "1s",
        "--pause-share",
        "100",
        "--listen",
        f"127.0.0.1:{port}",
    ]
    service = [str(UVICORN), "app:app", "--app-dir", str(EXAMPLE), "--port", str(port)]
    environment = servers | gateway(0.1)
    relive("run", *options, "--", *service, environment=environment)
    ask(port, "/products")
    command = [sys.executable, str(EXAMPLE / "traffic.py"), "--url", f"http://127.0.0.1:{port}"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 1, told.stdout + told.stderr
    assert re.search(r"^500 after .*: POST /checkout/c\d+$", told.stdout, re.MULTILINE)
    eventually(relive.incidents, "the incident")

    shown = relive("show", "incident/1")
    assert re.search(r"ChargeRefused: order \d+: 422 amount 0 is not positive", shown["sighting"]["summary"])
    calls = [
        (row["what"].split()[0], row["result"])
        for row in shown["timeline"]["rows"]
        if row["kind"] == "http-call"
    ]
    assert calls == [("POST", "503 Service Unavailable"), ("POST", "422 Unprocessable Entity")]
    (cart,) = (one for one in shown["origins"] if one["kind"] == "redis-command")
    assert cart["last"][-1]["what"].startswith("DEL cart:")
    assert cart["last"][-1]["before_ns"] < 0  # by the request itself

    replay = relive("replay", "1", "--times", "3")
    assert [run["verdict"]["kind"] for run in replay["runs"]] == ["reproduced"] * 3
    assert {run["outcome"]["packets_left"] for run in replay["runs"]} == {0}

    # It is the code alone that fails: a fresh process, whose pools connect to what was recorded, does the same.
    (attempt,) = relive("reproduce", "1")["attempts"]
    assert (attempt["kind"], attempt["misses"], attempt["packets_left"]) == ("reproduced", [], 0)


def test_with_the_patch_the_second_try_asks_for_what_the_order_cost(
    servers: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (servers | {"CHECKOUT_GATEWAY": "http://127.0.0.1:1"}).items():
        monkeypatch.setenv(name, value)
    for source, amounts in ((EXAMPLE, ["9.00", "0"]), (patched(EXAMPLE, tmp_path), ["9.00", "9.00"])):
        assert (
            asked_of_a_gateway_that_is_busy_once(loaded(source / "app.py"), servers["CHECKOUT_DATABASE"])
            == amounts
        )


def asked_of_a_gateway_that_is_busy_once(app: ModuleType, database: str) -> list[str]:
    """The amounts that one order was tried to be charged with."""
    asked: list[str] = []

    def post(_path: str, json: dict[str, str]) -> app.httpx.Response:
        asked.append(json["amount"])
        return app.httpx.Response(503 if len(asked) == 1 else 201, json={"charge": "ch_1"})

    app.gateway.post = post
    with psycopg.connect(database) as connection:
        connection.execute((EXAMPLE / "schema.sql").read_text())
    app.database.open(wait=True)
    try:
        app.carts.hset("cart:c1", "tin-1", 2)
        app.check_out("c1")
    finally:
        app.database.close()
    return asked

"""The plan that was applied last and deleted (examples/dnsplans): it comes by itself, is explained, and comes back in branches."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import redis

from support.patched import loaded, patched
from support.ports import free_port
from support.servers import HAS_REDIS, redis_server
from support.waiting import eventually

from .harness import Relive, ask

pytestmark = pytest.mark.skipif(not HAS_REDIS, reason="needs redis-server")
EXAMPLE = Path(__file__).parents[2] / "examples" / "dnsplans"
UVICORN = Path(sysconfig.get_path("scripts")) / "uvicorn"


@pytest.fixture
def store_port() -> Iterator[int]:
    with redis_server() as address:
        yield int(address.rpartition(":")[2])


def test_the_older_plan_that_was_applied_last_is_found_and_comes_back(
    relive: Relive, store_port: int
) -> None:
    environment = {"PLANS_REDIS": str(store_port)}
    port = free_port()
    options = [
        "--detach",
        "--name",
        "names",
        "--every",
        "1s",
        "--pause-share",
        "100",
        "--listen",
        f"127.0.0.1:{port}",
    ]
    service = [str(UVICORN), "app:app", "--app-dir", str(EXAMPLE), "--port", str(port)]
    relive("run", *options, "--", *service, environment=environment)
    ask(port, "/endpoints")
    command = [sys.executable, str(EXAMPLE / "traffic.py"), "--url", f"http://127.0.0.1:{port}"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 1, told.stdout + told.stderr
    found = re.search(r"GET /resolve/(\S+)", told.stdout)
    assert found is not None
    eventually(relive.incidents, "the incident")

    shown = relive("show", "incident/1")
    assert found[1] in shown["sighting"]["summary"]
    (followed,) = (one for one in shown["origins"] if one["name"] == f"active {found[1]}")
    plans = [int(write["what"].split()[-1]) for write in followed["last"]]
    named = re.search(r"follows plan (\d+)", shown["sighting"]["summary"])
    assert named is not None
    missing = int(named[1])
    with redis.Redis(port=store_port) as client:
        assert missing < int(client.get("plan:newest") or 0)
    # The older plan came last, and from the other enactor; who is late may apply so many in a row that nobody else's are shown.
    # Where the machine is busy, another may be applied between the two questions of the request, too.
    newer = {
        write["thread"] for write, number in zip(followed["last"], plans, strict=True) if number > missing
    }
    assert plans[-1] != missing or followed["last"][-1]["thread"] not in newer
    (plan,) = (one for one in shown["origins"] if one["name"] == f"plan:{missing}")
    assert plan["last"][-1]["what"].startswith("DEL ")

    # Which thread asks first is not replayed. Where the machine is busy, and the last commit lies far back, they ask what nobody
    # had asked, or meet another order; then no more can be told of a run than that.
    back = eventually(
        lambda: comes_back(relive), "a run in which the same exception comes from the same frames"
    )
    assert back <= {"reproduced", "same-answer"}


def comes_back(relive: Relive) -> set[str]:
    """The verdicts of the runs that raised what the service raised."""
    runs = json.loads(relive.say("replay", "1", "--times", "3").stdout)["runs"]
    same = "the same exception inside: plans.NoPlan, from the same frames"
    return {run["verdict"]["kind"] for run in runs if same in run["verdict"]["evidence"]}


@pytest.fixture
def fixed(tmp_path: Path) -> Path:
    return patched(EXAMPLE, tmp_path)


def late(plans: ModuleType, port: int) -> list[str]:
    """One enactor was held up with plan 1 while the other applied plan 9 and deleted what was before 4; then asked."""
    store = plans.PlanStore(port)
    for number in range(1, 10):
        store.add({"mail.example": [f"192.0.2.{number}"]})
    store.apply("mail.example", 9)
    store.delete_before(4)
    store.apply("mail.example", 1)
    found: list[str] = store.addresses("mail.example")
    return found


def test_the_one_harmful_order_fails_and_with_the_patch_it_does_not(store_port: int, fixed: Path) -> None:
    example = loaded(EXAMPLE / "plans.py")
    with pytest.raises(example.NoPlan, match=r"mail.example follows plan 1"):
        late(example, store_port)
    with redis.Redis(port=store_port) as client:
        client.flushall()
    assert late(loaded(fixed / "plans.py"), store_port) == ["192.0.2.9"]


def test_with_the_patch_a_plan_that_is_followed_stays(store_port: int, fixed: Path) -> None:
    store = loaded(fixed / "plans.py").PlanStore(store_port)
    for number in range(1, 10):
        store.add({"mail.example": [f"192.0.2.{number}"]})
    store.apply("mail.example", 2)
    assert store.delete_before(8) == 6
    assert store.addresses("mail.example") == ["192.0.2.2"]

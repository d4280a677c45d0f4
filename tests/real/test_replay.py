"""What is in flight at a commit: requests that are being served, and many at a time with a commit before each."""

from __future__ import annotations

import http.client
import json
import os
import select
import subprocess
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from relive.recording.exchanges import ExchangeEnd, Exchanges
from relive.recording.reader import Recording
from relive.sandbox.branch import Branch, list_branches
from support.ports import free_port
from support.waiting import LIMIT, eventually

from .harness import PYTHON, RELIVE, SERVICES, Process, Relive

TRIES = 10


def start_counter(relive: Relive, directory: Path, every: str) -> int:
    """Start the counter behind the proxy; returns the proxy's port."""
    inner, outer = free_port(), free_port()
    command = [
        *(str(PYTHON), "-m", "uvicorn", "--app-dir", str(SERVICES), "counter_app:app"),
        "--port",
        str(inner),
    ]
    options = [
        "--name",
        "counter",
        "--every",
        every,
        "--listen",
        f"127.0.0.1:{outer}",
        "--upstream",
        str(inner),
    ]
    relive(
        "run", "--detach", *options, "--", *command, environment={"COUNTER_DB": str(directory / "hits.db")}
    )
    eventually(lambda: relive.commits("counter"), "the commit at the start")
    return outer


def ask(port: int, method: str, path: str) -> tuple[int, Any]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)) as client:
        client.request(method, path)
        answer = client.getresponse()
        return answer.status, answer.read()


def test_a_request_that_a_commit_holds_half_served_is_answered_in_the_branch(
    relive: Relive, tmp_path: Path, start: Callable[..., Process]
) -> None:
    """GIVEN a request that the service takes a while for
    WHEN a commit is taken meanwhile, and a later request is replayed from it
    THEN both are answered in the branch as they were recorded.
    """
    port = start_counter(relive, tmp_path, "start")
    life = next(relive.home.glob("capsules/counter/2*"))
    exchanges = Exchanges(Recording(life / "recording"))
    answers: list[tuple[int, Any]] = []
    for number in range(1, TRIES):
        slow = threading.Thread(target=lambda: answers.append(ask(port, "GET", "/slow/1.5")))
        slow.start()
        eventually(
            lambda wanted=number: sum(one.sent_seq is not None for one in exchanges.all()) == wanted,
            "the slow request is being served",
        )
        commit = relive("commit", "counter")
        slow.join(LIMIT)
        assert [status for status, _ in answers] == [200] * number
        held = relive("show", commit["id"])["cursor"]["open_requests"]
        if held:  # on a loaded machine it may have been answered before the commit
            break
    assert len(held) == 1
    assert ask(port, "POST", "/count")[0] == 200
    last = list(exchanges.all())[-1]
    done = relive.say("replay", "--request", str(last.number), commit["id"])
    result = json.loads(done.stdout)
    assert done.returncode == 0, json.dumps(result, indent=1)
    run = result["runs"][0]
    assert run["outcome"]["status"] == 200
    assert run["forwarded"] >= 1
    assert run["verdict"]["notes"] == []

    # Killed while the slow request is served again, it leaves no branch that runs.
    words = ["--lazy", "--times", "2", "--jobs", "2", "--request", str(last.number), commit["id"]]
    replay = start(RELIVE, "replay", *words, env=relive.environment, stderr=subprocess.DEVNULL)
    branches = eventually(lambda: _both(relive), "two branches")
    handles = [os.pidfd_open(branch.facts.init) for branch in branches]
    try:
        replay.popen.kill()
        for handle in handles:
            assert select.select([handle], [], [], LIMIT)[0], "process 1 ends"
    finally:
        for handle in handles:
            os.close(handle)
    replay.popen.wait(LIMIT)
    assert [one["kind"] for one in relive("ps", "--all")] == ["capsule"]
    assert not list(relive.settings.branches.iterdir())


def _both(relive: Relive) -> list[Branch]:
    found = list_branches(relive.settings)
    return found if len(found) == 2 else []


def test_requests_stay_concurrent_with_a_commit_before_each(relive: Relive, tmp_path: Path) -> None:
    """Eight slow requests at once are not served one after another, and each began after a commit."""
    port = start_counter(relive, tmp_path, "request")
    threads = [threading.Thread(target=ask, args=(port, "GET", "/slow/2")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    life = next(relive.home.glob("capsules/counter/2*"))
    served = [one for one in Exchanges(Recording(life / "recording")).all() if one.target.startswith("/slow")]
    assert [one.ended for one in served] == [ExchangeEnd.ANSWERED] * 8

    def all_durable() -> bool:
        commits = relive.commits("counter")
        cursors = sorted(one["sequence"] for one in commits if one["trigger"] == "request")
        return bool(cursors) and all(any(cursor < one.started_seq for cursor in cursors) for one in served)

    eventually(all_durable, "a commit before each request")
    overlapping = [
        one
        for one in served
        if any(two.started_seq < one.started_seq < (two.ended_seq or 0) for two in served)
    ]
    assert overlapping, "commits happen with other requests in flight"

"""gunicorn with two workers: a master, sockets shared by fork, shared memory, temporary files that are unlinked."""

from __future__ import annotations

from pathlib import Path

from support.ports import free_port
from support.waiting import eventually

from .harness import PYTHON, SERVICES, Relive, ask
from .scenario import lives_twice
from .test_bisect import get


def test_gunicorn_with_two_workers(relive: Relive, tmp_path: Path) -> None:
    port = free_port()
    capsule = relive.run(
        *(PYTHON, "-m", "gunicorn", "--preload", "--workers", "2", "--worker-class", "gthread"),
        *("--chdir", SERVICES, "--bind", f"127.0.0.1:{port}", "wsgi_counter:app"),
        COUNTER_LOG=str(tmp_path / "counts"),
    )
    ask(port, "/state")
    commit, branches = lives_twice(relive, capsule, port)
    assert len(commit.manifest.target.processes) == 3
    # The master still masters: it replaces a worker that dies.
    before = branches[0].pids()
    branches[0].exec("kill", "-9", str(before[-1]))
    ask(branches[0].ports[port], "/state")


def test_a_request_comes_again_to_the_worker_that_had_it(relive: Relive) -> None:
    """GIVEN three workers, of which one has poisoned its cache, and a request that failed there
    THEN it fails again in each replay, though it passes in the two others, and the request that did it is named.
    """
    port = free_port()
    relive.run(
        *(PYTHON, "-m", "gunicorn", "--workers", "3", "--chdir", SERVICES),
        *("--bind", f"127.0.0.1:{port}", "poisoned_workers:app"),
        options=("--listen", f"127.0.0.1:{port}", "--every", "request"),
    )
    ask(port, "/price")
    eventually(relive.commits, "the first commit")
    assert get(port, "/price?currency=chf") == 404
    statuses = []
    while 500 not in statuses and len(statuses) < 100:
        statuses.append(get(port, "/price?currency=CHF"))
    assert statuses[-1] == 500
    incident = eventually(relive.incidents, "the incident")[0]["number"]
    again = relive("replay", str(incident), "--times", "4")
    assert [one["verdict"]["kind"] for one in again["runs"]] == ["reproduced"] * 4
    (jump,) = relive("bisect", "--replay", str(incident), "--limit", "60")["jumps"]
    assert [one["target"] for one in jump["requests"]] == ["/price?currency=chf"]

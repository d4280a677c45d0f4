"""Commits on top of others, of a service that runs, and branches of them."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path
from typing import Any

from relive.kernel import procfs
from support.ports import free_port
from support.waiting import eventually

from .harness import PYTHON, SERVICES, Capsule, Relive, ask

ON_TOP = "taken on top of the one before"
TRACKER = "relive-micro"


def is_whole(told: dict[str, Any]) -> bool:
    """Its chain of digests, which a wrong register or page would have broken, is what it must be."""
    digest = b"first"
    for _ in range(told["links"]):
        digest = hashlib.sha256(digest * 40).digest()
    return bool(digest.hex() == told["digest"])


def trackers_of(relive: Relive, service: Capsule) -> list[int]:
    children = procfs.children_of(relive.agent(service))
    return [pid for pid in children if (procfs.command_of(pid) or [""])[0].endswith(TRACKER)]


def test_a_branch_goes_on_where_a_commit_on_top_of_others_was_taken(relive: Relive) -> None:
    port = free_port()
    service = relive.run(PYTHON, SERVICES / "chained.py", str(port), RELIVE_MICRO="1")
    commits = []
    for number in range(1, 8):
        assert ask(port, "/")["requests"] == number
        commits.append((number, relive.commit(service)))
    assert relive.agent_log(service).count(ON_TOP) >= 2  # on a loaded machine a thread may not stop in time
    for number, commit in (commits[3], commits[-1]):
        branch = relive.restore(commit, port)
        told = ask(branch.ports[port], "/")
        assert told["requests"] == number + 1
        assert is_whole(told)
        branch.stop()
    told = ask(port, "/")
    assert told["requests"] == 8
    assert is_whole(told)


def test_a_service_goes_on_without_its_tracker_and_without_its_agent(relive: Relive) -> None:
    port = free_port()
    service = relive.run(PYTHON, SERVICES / "chained.py", str(port), RELIVE_MICRO="1")
    ask(port, "/")
    relive.commit(service)
    [tracker] = eventually(lambda: trackers_of(relive, service), "a tracker")
    os.kill(tracker, signal.SIGKILL)
    relive.commit(service)
    [tracker] = eventually(lambda: trackers_of(relive, service), "another tracker")
    os.kill(relive.agent(service), signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{tracker}").exists(), "the end of the tracker, whose agent is gone")
    for number in range(2, 5):
        assert ask(port, "/")["requests"] == number
        commit = eventually(lambda: relive.commit(service), "a commit by the agent's successor")
    branch = relive.restore(commit, port)
    assert ask(branch.ports[port], "/")["requests"] == 5
    branch.stop()
    assert is_whole(ask(port, "/"))

"""Commits on top of others, of a service that runs, and branches of them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from relive.kernel import procfs
from relive.store import Store
from support.call_filter import USERFAULTFD, under_filter
from support.ports import free_port
from support.waiting import eventually

from .harness import (
    PROGRAMS,
    PYTHON,
    RELIVE,
    SERVICES,
    Capsule,
    Commit,
    Http,
    Refused,
    Relive,
    ask,
    compiled,
    counting,
)
from .scenario import settled

ON_TOP = '"micro": true, "pages": '
TRACKER = "relive-micro"
TRIES = 200
"""Commits until enough are on top of others. On a loaded machine a thread may not stop in time; then there is a full one, and after
each further refusal some more before the next try."""


def is_whole(told: dict[str, Any]) -> bool:
    """Its chain of digests, which a wrong register or page would have broken, is what it must be."""
    digest = b"first"
    for _ in range(told["links"]):
        digest = hashlib.sha256(digest * 40).digest()
    return bool(digest.hex() == told["digest"])


def trackers_of(relive: Relive, service: Capsule) -> list[int]:
    children = procfs.children_of(relive.agent(service))
    return [pid for pid in children if (procfs.command_of(pid) or [""])[0].endswith(TRACKER)]


def counter(relive: Relive, directory: Path) -> tuple[Capsule, int]:
    """A service that keeps the connections of clients, however long a commit takes; and its port."""
    port = free_port()
    command = [PYTHON, "-m", "uvicorn", "--app-dir", SERVICES, "counter_app:app", "--port", str(port)]
    command += ["--timeout-keep-alive", "600"]
    service = relive.run(*command, RELIVE_MICRO="1", COUNTER_DB=str(directory / "hits.db"))
    ask(port, "/state")
    return service, port


def test_a_branch_goes_on_where_a_commit_on_top_of_others_was_taken(relive: Relive) -> None:
    port = free_port()
    service = relive.run(PYTHON, SERVICES / "chained.py", str(port), RELIVE_MICRO="1")
    commits: list[tuple[int, Commit]] = []
    on_top: list[int] = []
    while len(on_top) < 3 and len(commits) < TRIES:
        assert ask(port, "/")["requests"] == len(commits) + 1
        commits.append((len(commits) + 1, relive.commit(service)))
        if relive.agent_log(service).count(ON_TOP) > len(on_top):
            on_top.append(len(commits) - 1)
    assert len(on_top) == 3
    for number, commit in (commits[on_top[1]], commits[on_top[2]]):
        branch = relive.restore(commit, port)
        told = ask(branch.ports[port], "/")
        assert told["requests"] == number + 1
        assert is_whole(told)
        branch.stop()
    told = ask(port, "/")
    assert told["requests"] == len(commits) + 1
    assert is_whole(told)


def test_timers_go_on_in_a_branch_as_they_were_set_last(relive: Relive, tmp_path: Path) -> None:
    program = compiled(PROGRAMS / "timer_states.c", tmp_path)
    kinds = [f"{program} {kind} told" for kind in ("descriptors", "alarms", "timers")]
    service = relive.run("sh", "-c", " & ".join(kinds) + " & wait", RELIVE_MICRO="1")

    def lines(output: str) -> list[str]:
        return [line for line in output.splitlines() if ":" in line]

    eventually(lambda: relive.output(service).count("ready") == len(kinds), "that all have timers")
    pids = [pid for pid in procfs.tree_of(service.pid) if str(program) in (procfs.command_of(pid) or [])]
    assert len(pids) == len(kinds)
    for _ in range(TRIES):
        before, said = relive.agent_log(service).count(ON_TOP), relive.output(service).count("\n")
        for pid in pids:
            os.kill(pid, signal.SIGHUP)
        eventually(lambda: relive.output(service).count("\n") == said + len(kinds), "that all are set")  # noqa: B023
        commit = relive.commit(service)
        if relive.agent_log(service).count(ON_TOP) > before:
            break
    else:
        pytest.fail("none was taken on top of another")
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    told = eventually(
        lambda: len(lines(relive.output(service))) == len(kinds) and lines(relive.output(service)), ""
    )
    branch = relive.restore(commit)
    branch.exec("pkill", "-TERM", "timer_states")
    again = eventually(
        lambda: len(lines(branch.output())) == len(kinds) and lines(branch.output()), "what is left"
    )
    assert sorted(again) == sorted(told)
    branch.stop()


def test_before_each_request_they_are_taken_without_being_asked_for(relive: Relive) -> None:
    """And hold what the service had told by then."""
    port = free_port()
    options = ("--every", "request", "--listen", f"127.0.0.1:{port}")
    service = relive.run(PYTHON, SERVICES / "chained.py", str(port), options=options)

    def is_held() -> bool:
        """Requests wait for commits, of which the first is a full one."""
        ask(port, "/")
        return any(one["trigger"] == "request" for one in relive.commits(service.name))

    eventually(is_held, "a commit before a request")
    for _ in range(TRIES):
        before, at = relive.agent_log(service).count(ON_TOP), time.time_ns()
        told = ask(port, "/")
        if before >= 2 and relive.agent_log(service).count(ON_TOP) > before:
            break
    assert before >= 2

    def commits() -> list[str]:
        """Of the last request; another by the clock there is none."""
        return [one["id"] for one in relive.commits(service.name) if one["taken_wall_ns"] > at]

    [commit] = eventually(commits, "that it is durable")
    branch = relive.restore(commit, port)
    again = ask(branch.ports[port], "/")
    assert again["requests"] == told["requests"] and is_whole(again)
    branch.stop()


def test_a_branch_has_the_connections_that_clients_kept_amid_traffic(relive: Relive, tmp_path: Path) -> None:
    """And its clock of now, which programs read from what the kernel maps beside their code."""
    service, port = counter(relive, tmp_path)
    on_top = 0
    with counting(port) as load:
        for _ in range(TRIES):
            first = load.last
            commit = relive.commit(service)
            last = load.last + 1
            load.more(3)
            on_top += relive.agent_log(service).count(ON_TOP) > on_top
            if on_top == 2:
                break
        assert on_top == 2
        branch = relive.restore(commit, port, clock="now")
        state = settled(ask(branch.ports[port], "/state"))
        assert first <= state["count"] <= last
        inward = [one for one in commit.manifest.connections if one.inward]
        assert inward
        held = [line.split()[3] == "01" for line in branch.exec("cat", "/proc/net/tcp").splitlines()[1:]]
        assert sum(held) >= 2 * len(inward)  # both ends, of which one is forged
        with Http(branch.ports[port]) as client:
            assert client("POST", "/count")["count"] == state["count"] + 1
        branch.stop()


def test_a_branch_has_a_connection_that_waited_between_requests(relive: Relive, tmp_path: Path) -> None:
    """Nothing is under way in it, so that where it stands is read in the kernel's own objects, if this host permits that."""
    service, port = counter(relive, tmp_path)
    on_top = 0
    with Http(port) as client:
        for number in range(1, TRIES):
            assert client("POST", "/count")["count"] == number
            eventually(lambda: not under_way(port), "all is acknowledged")
            commit = relive.commit(service)
            before, on_top = on_top, relive.agent_log(service).count(ON_TOP)
            if on_top > max(before, 3):  # all was asked, all was compared, and one more
                break
        assert on_top > 3
        branch = relive.restore(commit, port)
        assert ask(branch.ports[port], "/state")["count"] == number
        rows = [line.split() for line in branch.exec("cat", "/proc/net/tcp").splitlines()[1:]]
        [kept] = [one for one in commit.manifest.connections if one.inward]
        ends = [row for row in rows if row[3] == "01" and f":{port:04X}" in row[1] + row[2]]
        assert len(ends) == 2, kept  # of which one is forged
        assert client("POST", "/count")["count"] == number + 1
        with Http(branch.ports[port]) as other:
            assert other("POST", "/count")["count"] == number + 1
        branch.stop()


def under_way(port: int) -> list[str]:
    """Connections at a port with bytes that are not read, or not acknowledged."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [
        row[4]
        for row in rows
        if row[3] == "01" and f":{port:04X}" in row[1] + row[2] and row[4] != "00000000:00000000"
    ]


def test_a_service_goes_on_without_its_tracker_and_without_its_agent(relive: Relive) -> None:
    port = free_port()
    service = relive.run(PYTHON, SERVICES / "chained.py", str(port), options=("--micro",))
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
    eventually(lambda: trackers_of(relive, service), "a tracker of the agent's successor, which nobody told")
    branch = relive.restore(commit, port)
    assert ask(branch.ports[port], "/")["requests"] == 5
    branch.stop()
    assert is_whole(ask(port, "/"))


def test_of_a_clock_quicker_than_the_store_a_killed_agent_loses_only_what_was_not_durable(
    relive: Relive,
) -> None:
    """What is listed goes on from what was listed before it, and is whole."""
    port = free_port()
    options = ("--micro", "--every", "10ms", "--pause-share", "100")
    service = relive.run(PYTHON, SERVICES / "chained.py", str(port), options=options, RELIVE_KEEP="1000")
    asked = 0
    while len(relive.commits()) < 20:
        asked += 1
        assert ask(port, "/")["requests"] == asked
    os.kill(relive.agent(service), signal.SIGKILL)
    said = [json.loads(line) for line in relive.agent_log(service).splitlines()]
    listed = relive.commits()
    assert {one["commit"] for one in said if one["event"] == "durable"} <= {one["id"] for one in listed}
    with contextlib.closing(Store(relive.settings.store)) as store:
        lines = store.log("service")
    assert [one.parent for one in lines] == [*(one.id for one in lines[1:]), None]
    branch = relive.restore(listed[0]["id"], port)
    told = ask(branch.ports[port], "/")
    assert is_whole(told) and told["requests"] <= asked + 1
    branch.stop()


def test_a_branch_of_workers_goes_on_with_what_they_share(relive: Relive) -> None:
    """Also after the end of one of them in the moment of a commit, and with the worker in its place."""
    port = free_port()
    command = [
        "-m",
        "gunicorn",
        "--preload",
        "--workers",
        "2",
        "--chdir",
        SERVICES,
        "--bind",
        f"127.0.0.1:{port}",
    ]
    service = relive.run(PYTHON, *command, "wsgi_shared:app", RELIVE_MICRO="1")
    on_top: list[bool] = []
    for asked in range(1, TRIES):
        assert ask(port, "/")["requests"] == asked
        before = relive.agent_log(service).count(ON_TOP)
        if asked == 3:
            os.kill(procfs.children_of(service.pid)[0], signal.SIGKILL)
        commit = relive.commit(service)
        on_top.append(relive.agent_log(service).count(ON_TOP) > before)
        if asked > 4 and on_top[-1] and sum(on_top) >= 3:
            break
    assert on_top[-1]
    assert len(commit.manifest.target.processes) == 3
    branch = relive.restore(commit, port)
    assert [ask(branch.ports[port], "/")["requests"] for _ in range(4)] == [
        asked + one for one in range(1, 5)
    ]
    branch.stop()
    assert ask(port, "/")["requests"] == asked + 1


def test_where_the_kernel_refuses_userfaultfd_it_is_said_once_and_commits_are_full(relive: Relive) -> None:
    """Under a filter as a container may have it. CRIU saves nothing from within one, which is said, too; an agent without does."""

    def say(*words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [*under_filter(USERFAULTFD, errno.EPERM), str(RELIVE), *map(str, words)]
        return subprocess.run(command, env=relive.environment, capture_output=True, text=True, check=False)

    cause = "the kernel refuses userfaultfd: Operation not permitted"
    service = ["--", PYTHON, SERVICES / "chained.py", str(free_port())]
    asked = say("run", "--json", "--detach", "--no-wait", "--micro", "--name", "asks", *service)
    error = json.loads(asked.stdout)["error"]
    assert (asked.returncode, error["code"], error["cause"]) == (4, "host-incapable", cause)
    assert "seccomp" in error["remedy"]
    assert f"none on this host: {cause}" in say("check", *service).stdout
    begun = say("run", "--detach", "--no-wait", "--every", "0.9s", "--name", "plain", *service)
    assert begun.returncode == 0
    assert begun.stderr.count(f"Each commit is a full one, no micro-commit: {cause}; ") == 1
    with pytest.raises(Refused, match="filter of system calls"):
        relive.commit("plain")
    plain = relive.home / "capsules/plain/current/agent.pid"
    before = plain.read_text()
    relive.end_agent(plain.parent)  # its supervisor is under the filter, and so were an agent that it started
    relive.commit("plain")
    log = (plain.parent / "agent.log").read_text()
    assert plain.read_text() != before
    assert ON_TOP not in log and "a full commit is needed" not in log


def asked_in_redis(port: int, *, grows: bool) -> dict[str, Any]:
    with redis.Redis(port=port, socket_timeout=30, single_connection_client=True) as client:
        number = client.incr("requests") if grows else int(client.get("requests") or 0)
        if grows:
            client.set(f"key {number % 200}", bytes([number % 251]) * (64 + number * 37 % 4096))
        return {"requests": number, "digest": client.execute_command("DEBUG", "DIGEST").hex()}


def asked_by_http(port: int, *, grows: bool) -> dict[str, Any]:
    return dict(ask(port, "/grow" if grows else "/state"))


RUNTIMES: dict[str, tuple[Callable[..., dict[str, Any]], list[str | Path]]] = {
    "node": (asked_by_http, [SERVICES / "growing.js"]),
    # Without this it writes an answer in two pieces, of which the second waits 40 ms: an answer that is under way.
    "java": (asked_by_http, ["-Xmx64m", "-Dsun.net.httpserver.nodelay=true", SERVICES / "Growing.java"]),
    "redis-server": (asked_in_redis, ["--save", "", "--enable-debug-command", "yes", "--port"]),
}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_branch_of_another_runtime_holds_what_the_service_had_told(relive: Relive, runtime: str) -> None:
    told, words = RUNTIMES[runtime]
    hold_what_was_told(relive, told, runtime, *words)


@pytest.mark.soak  # 300 MB of compiler: threads like these are in tests/checkpoint/test_micro_stacks.py
@pytest.mark.timeout(600)
def test_a_branch_of_a_go_service_holds_what_the_service_had_told(relive: Relive, tmp_path: Path) -> None:
    """``apt-get install golang-go; pytest -n0 -m soak tests/real/test_micro_commits.py -k go_service``."""
    built = {**os.environ, "CGO_ENABLED": "0", "GOCACHE": str(tmp_path / "cache")}
    program = tmp_path / "growing"
    subprocess.run(["go", "build", "-o", program, SERVICES / "growing.go"], env=built, check=True)
    hold_what_was_told(relive, asked_by_http, program)


def hold_what_was_told(
    relive: Relive, told: Callable[..., dict[str, Any]], runtime: str | Path, *words: str | Path
) -> None:
    """Of a commit on top of one on top of another: what is wrong in one only shows in those after it."""
    port = free_port()
    service = relive.run(runtime, *words, str(port), RELIVE_MICRO="1")
    eventually(lambda: told(port, grows=True), f"{runtime} answers")
    in_a_row = 0
    for _ in range(TRIES):
        before = relive.agent_log(service).count(ON_TOP)
        for _ in range(10):
            state = told(port, grows=True)
        commit = relive.commit(service)
        in_a_row = in_a_row + 1 if relive.agent_log(service).count(ON_TOP) > before else 0
        assert told(port, grows=False) == state
        if in_a_row == 3:
            break
    assert in_a_row == 3
    branch = relive.restore(commit, port)
    assert told(branch.ports[port], grows=False) == state
    assert told(branch.ports[port], grows=True) == told(port, grows=True)
    branch.stop()
    for tracker in trackers_of(relive, service):
        os.kill(tracker, signal.SIGKILL)
    assert told(port, grows=True)["requests"] == state["requests"] + 2

"""What ends with a status that is not 0 is committed before it is gone."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from relive.kernel import procfs
from support.drawn import drawn
from support.ports import free_port
from support.waiting import eventually

from .harness import PROGRAMS, PYTHON, Capsule, Http, Relive, ask, compiled

_HEARS = "process 1 holds who exits with a failure"  # a line of each agent's log


def _incident(relive: Relive, capsule: Capsule, kind: str = "exit") -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = relive.incidents(capsule.name)
        return next((one for one in found if one["sighting"]["kind"] == kind), None)

    return eventually(look, f"an incident of kind {kind}")


def _is_heard(relive: Relive, capsule: Capsule) -> bool:
    """The agent is there to be told of exits, which it is a moment after the service's start."""
    return _HEARS in relive.agent_log(capsule)


class Workers:
    """The program that keeps one worker alive, with a worker that has lived long enough to matter."""

    def __init__(
        self, relive: Relive, directory: Path, *, options: tuple[str, ...] = (), script: bool = False
    ) -> None:
        self.relive = relive
        self._in_script = script
        program = compiled(PROGRAMS / "exit_worker.c", directory)
        words = ["sh", "-c", f"{program}; exit 0"] if script else [program]
        self.capsule = relive.run(*words, options=options)
        if "overlay" not in options:
            eventually(lambda: _is_heard(relive, self.capsule), "an agent that hears of exits")
        eventually(lambda: self.lines("worker"), "the worker")
        self.wait_until_it_matters()

    def wait_until_it_matters(self) -> None:
        eventually(lambda: self.worker and _age(self.worker) > 1.1, "a worker that has lived for a second")

    @property
    def worker(self) -> int:
        pid = self.capsule.pid
        for _ in range(2 if self._in_script else 1):
            children = procfs.children_of(pid)
            pid = children[0] if children else 0
        return pid

    def lines(self, word: str) -> list[str]:
        return [line for line in self.relive.output(self.capsule).splitlines() if line.startswith(word)]


def _age(pid: int) -> float:
    started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return uptime - started / os.sysconf("SC_CLK_TCK")


def test_a_worker_that_exits_with_a_failure_is_committed_before_it(relive: Relive, tmp_path: Path) -> None:
    workers = Workers(relive, tmp_path)
    os.kill(workers.worker, signal.SIGUSR1)
    incident = _incident(relive, workers.capsule)
    sighting = incident["sighting"]
    assert (sighting["exit_status"], sighting["worker"]) == (3, True)
    assert sighting["summary"].startswith("worker ") and sighting["summary"].endswith("with status 3")
    assert workers.lines("ended") == [f"ended {3 << 8}"], "its parent sees what it would have seen"
    branch = relive.restore(incident["at"])
    (held,) = [pid for pid in branch.pids() if pid == sighting["pid"]]
    assert branch.exec("cat", f"/proc/{held}/stat").rpartition(")")[2].split()[0] == "T"
    if shutil.which("gdb") is not None:
        debugged = relive("debug", "-c", "backtrace", str(incident["number"]))
        assert "leave" in debugged["output"], f"the frame that has it exit: {debugged['output']}"


def test_a_script_that_starts_the_service_hides_none_of_its_workers(relive: Relive, tmp_path: Path) -> None:
    workers = Workers(relive, tmp_path, script=True)
    os.kill(workers.worker, signal.SIGUSR1)
    incident = _incident(relive, workers.capsule)
    assert incident["sighting"]["exit_status"] == 3 and incident["sighting"]["worker"] and incident["at"]
    assert relive("show", incident["at"])["stopped_pid"] == incident["sighting"]["pid"]


def test_a_worker_that_nobody_could_hold_is_an_incident_all_the_same(relive: Relive, tmp_path: Path) -> None:
    workers = Workers(relive, tmp_path, options=("--files", "overlay"))
    eventually(lambda: relive("commit", workers.capsule.name), "an agent that watches")
    os.kill(workers.worker, signal.SIGUSR1)
    incident = _incident(relive, workers.capsule)
    assert incident["sighting"]["summary"].endswith("ended with status 3")
    assert incident["sighting"]["worker"] and incident["at"] is None and incident["before"]


def test_children_that_live_for_a_moment_are_not_held(relive: Relive, tmp_path: Path) -> None:
    workers = Workers(relive, tmp_path)
    os.kill(workers.capsule.pid, signal.SIGUSR2)
    os.kill(workers.worker, signal.SIGUSR1)
    eventually(lambda: workers.lines("stormed"), "the end of the storm")
    _incident(relive, workers.capsule)
    assert [one["times"] for one in relive("incidents", workers.capsule.name)] == [1]
    assert len([one for one in relive("log", workers.capsule.name) if one["trigger"] == "incident"]) == 1


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js here")
def test_an_error_that_node_does_not_catch_is_committed_before_its_end(
    relive: Relive, tmp_path: Path
) -> None:
    script = tmp_path / "shop.js"
    script.write_text(
        'process.on("SIGUSR2", () => { throw new TypeError("no plan"); });\n'
        'setInterval(() => {}, 1000);\nconsole.log("ready");\n'
    )
    capsule = relive.run(str(shutil.which("node")), script)
    eventually(lambda: "ready" in relive.output(capsule) and _is_heard(relive, capsule), "the service")
    os.kill(capsule.pid, signal.SIGUSR2)
    incident = _incident(relive, capsule)
    assert incident["sighting"]["summary"] == "the service ended with status 1: TypeError: no plan"
    assert incident["sighting"]["exit_status"] == 1 and incident["at"]


def test_python_s_own_end_is_committed_and_an_exception_of_it_only_once(
    relive: Relive, tmp_path: Path
) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import signal, sys\n"
        'signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3))\nprint("ready", flush=True)\n'
        "while True:\n    signal.pause()\n"
    )
    capsule = relive.run(PYTHON, script)
    eventually(lambda: "ready" in relive.output(capsule) and _is_heard(relive, capsule), "the service")
    os.kill(capsule.pid, signal.SIGUSR1)
    incident = _incident(relive, capsule)
    assert incident["sighting"]["exit_status"] == 3 and incident["at"]
    assert len(relive("incidents", capsule.name)) == 1


WSGI = """
import os, socket, sys, traceback

def check_stock():
    raise ValueError("the stock is negative")

def app(environ, start_response):
    if environ["PATH_INFO"] == "/leave":
        try:
            check_stock()
        except ValueError:
            traceback.print_exc()
            sys.stderr.flush()
            if environ["QUERY_STRING"]:  # many a runtime does so before it exits
                environ["gunicorn.socket"].shutdown(socket.SHUT_RDWR)
            os._exit(7)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b'"here"']
"""


def test_a_worker_of_gunicorn_that_exits_is_one_incident_and_comes_back(
    relive: Relive, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(WSGI)
    inner, outer = free_port(), free_port()
    options = ("--every", "start", "--listen", f"127.0.0.1:{outer}", "--upstream", str(inner))
    gunicorn = (PYTHON, "-m", "gunicorn", "--chdir", tmp_path, "--bind", f"127.0.0.1:{inner}", "shop:app")
    capsule = relive.run(*gunicorn, options=options)
    eventually(lambda: relive.commits(capsule.name) and _is_heard(relive, capsule), "the commit at the start")
    assert ask(outer, "/") == "here"
    (worker,) = Path(f"/proc/{capsule.pid}/task/{capsule.pid}/children").read_text().split()
    eventually(lambda: _age(int(worker)) > 1.1, "a worker that has lived for a second")
    with Http(outer) as client, contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        client("GET", "/leave")
    incident = _incident(relive, capsule)
    sighting = incident["sighting"]
    assert (sighting["exit_status"], sighting["worker"], sighting["request"]) == (7, True, 2)
    assert incident["at"] and incident["before"] != incident["at"]
    done = relive.say("replay", "--pace", "fast", str(incident["number"]))
    (run,) = json.loads(done.stdout)["runs"]
    assert run["outcome"]["exit_status"] == 7 and run["outcome"]["worker"], json.dumps(run, indent=1)
    assert run["verdict"]["kind"] == "reproduced", json.dumps(run["verdict"], indent=1)
    assert len(relive("incidents", capsule.name)) == 1, "the broken answer is of the same failure"

    def another() -> int:
        (found,) = procfs.children_of(capsule.pid) or [int(worker)]
        return found if found != int(worker) and _age(found) > 1.1 else 0

    eventually(another, "another worker that has lived for a second")
    with Http(outer) as client, contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        client("GET", "/leave?closing")
    latest = eventually(lambda: _incident(relive, capsule)["latest"], "the second time")
    assert latest["sighting"]["request"] == 3, "its connection broke before the exit"
    assert latest["before"] == incident["before"], "in the commit at the first exit there is no worker"
    assert len(relive("incidents", capsule.name)) == 1


@pytest.mark.parametrize(
    ("rounds", "seed"),
    [(2, 1), pytest.param(150, None, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)
def test_nobody_stays_before_its_exit_when_the_agent_is_killed(
    relive: Relive, tmp_path: Path, rounds: int, seed: int | None
) -> None:
    """At whatever moment of it: the worker ends with its status, and its master starts another."""
    moments = drawn(seed)
    workers = Workers(relive, tmp_path)
    for round_ in range(rounds):
        workers.wait_until_it_matters()
        heard = relive.agent_log(workers.capsule).count(_HEARS)
        agent = relive.agent(workers.capsule)
        os.kill(workers.worker, signal.SIGUSR1)
        select.select([], [], [], moments.random() * 0.3)
        os.kill(agent, signal.SIGKILL)
        eventually(lambda: len(workers.lines("ended")) == round_ + 1, "the worker's end")  # noqa: B023
        eventually(lambda: relive.agent_log(workers.capsule).count(_HEARS) > heard, "another agent")  # noqa: B023
    assert set(workers.lines("ended")) == {f"ended {3 << 8}"}

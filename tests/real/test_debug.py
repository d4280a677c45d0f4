"""Exceptions in real services: one incident each, a commit in which the failing thread waits, and a debugger in its frame."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relive.incidents.evidence import package_of
from relive.model.failure import Where
from relive.sandbox.branch import find_branch, list_branches
from support.waiting import LIMIT, eventually

from .harness import PYTHON, RELIVE, SERVICES, Process, Relive, free_port


@dataclass
class App:
    """The failing FastAPI service behind the recording proxy."""

    relive: Relive
    life: Path
    outer: int
    inner: int

    def ask(self, method: str, path: str) -> int:
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self.outer, timeout=LIMIT)
        ) as connection:
            connection.request(method, path)
            answer = connection.getresponse()
            answer.read()
            return answer.status

    def incidents(self) -> list[dict[str, Any]]:
        return self.relive.incidents()

    def incident(self, summary: str) -> dict[str, Any]:
        """The incident whose summary holds that text, once it is there."""
        return eventually(
            lambda: next((one for one in self.incidents() if summary in one["sighting"]["summary"]), None),
            f"an incident with {summary!r}",
        )

    @property
    def agent(self) -> int:
        return int((self.life / "agent.pid").read_text().split()[0])


@pytest.fixture(scope="module")
def shared() -> Iterator[App]:
    """One service for all tests that leave it as it was; each looks for failures of its own."""
    home = Path(tempfile.mkdtemp(prefix="relive-"))
    relive = Relive(home, "debug")
    yield start(relive)
    relive.close()
    shutil.rmtree(home)


def start(relive: Relive, *options: str) -> App:
    inner, outer = free_port(), free_port()
    listen = ["--listen", f"127.0.0.1:{outer}", "--upstream", str(inner)]
    program = [str(PYTHON), str(SERVICES / "failing_app.py"), str(inner)]
    answer = relive(
        "run", "--detach", "--name", "shop", "--every", "start", *listen, *options, "--", *program
    )
    app = App(relive, relive.settings.capsules / "shop" / answer["life"], outer, inner)
    eventually(lambda: relive.commits("shop"), "the commit at the start")
    eventually(lambda: app.ask("GET", "/ok") == 200, "the service answers")
    return app


def debug(
    relive: Relive, incident: dict[str, Any], *commands: str, options: tuple[str, ...] = ()
) -> list[str]:
    words = [word for command in commands for word in ("-c", command)]
    answer = relive("debug", *options, *words, str(incident["number"]))
    return [one["answer"] for one in answer["answers"]]


def test_a_debugger_opens_in_the_failing_frame_of_the_process_itself(shared: App) -> None:
    """Values are printed, expressions are evaluated with the live objects, frames are walked; the original is untouched."""
    app = shared
    assert app.ask("POST", "/payments/1386") == 500
    incident = app.incident("KeyError: 1386 in pay (failing_app.py:")
    assert "POST /payments/1386" in incident["sighting"]["summary"]
    assert incident["before"] and incident["at"]
    assert [one["sighting"]["kind"] for one in app.incidents()] == ["exception"], (
        "the 5xx is the same incident"
    )

    number, total, items, seen, up = debug(
        app.relive, incident, "p number", "p order.total()", "p order.items", "p ACCOUNTS_SEEN", "up"
    )
    assert (number, total, items, seen) == ("1386", "14", "['book', 'pen']", "{'seen': 1}")
    assert "run_endpoint_function" in up
    assert app.ask("GET", "/ok") == 200
    assert not list(app.relive.settings.branches.iterdir()), "the branch ended with the debugger"

    package = package_of(app.relive.settings.incidents, incident["number"])
    assert package is not None
    frame = package.failing_frame()
    assert frame is not None
    assert (frame.function, frame.locals["number"]) == ("pay", "1386")
    assert "items=['book', 'pen']" in frame.locals["order"]
    lines = (app.relive.settings.incidents / f"{incident['number']}.events.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds[0] == "handling-started"
    assert {"failure", "handling-ended"} <= set(kinds)

    replayed = app.relive("replay", "--pace", "fast", str(incident["number"]))
    assert replayed["runs"][0]["verdict"]["kind"] == "reproduced"
    # With the state of before, in the handler's first line.
    number, seen, _, order = debug(
        app.relive, incident, "p number", "p ACCOUNTS_SEEN", "n", "p order.number", options=("--at-request",)
    )
    assert (number, seen, order) == ("1386", "{'seen': 0}", "1386")

    # When the debugger goes on, what comes of the request is told: as it was, and with a variable changed.
    words = ("debug", str(incident["number"]), "-c", "c")
    outcome = app.relive(*words)["outcome"]
    assert (outcome["recorded"]["status"], outcome["came"]["status"]) == (500, 500)
    assert outcome["verdict"]["kind"] in ("reproduced", "same-answer")
    words = ("debug", "--at-request", str(incident["number"]), "-c", "ACCOUNTS[1386] = 5", "-c", "c")
    outcome = app.relive(*words)["outcome"]
    assert (outcome["came"]["status"], outcome["came"]["body"]) == (200, "5")
    assert outcome["verdict"]["kind"] == "not-reproduced"
    assert outcome["verdict"]["missing"] == []
    assert outcome["verdict"]["played"].startswith("the recording answered ")
    assert app.relive("debug", str(incident["number"]), "-c", "q")["outcome"] is None


def test_a_synchronous_handler_is_followed_into_its_worker_thread(shared: App) -> None:
    assert shared.ask("GET", "/sync/5") == 500
    incident = shared.incident("KeyError: 5 in pay_at_once")
    (number,) = debug(shared.relive, incident, "p number", options=("--at-request",))
    assert number == "5"


def test_the_same_failure_again_is_counted_and_takes_no_other_commit(shared: App) -> None:
    def commits() -> int:
        return sum(one["trigger"] == "incident" for one in shared.relive.commits("shop"))

    assert shared.ask("GET", "/again") == 500
    assert shared.incident("in again (")["at"]
    before = commits()
    for _ in range(4):
        assert shared.ask("GET", "/again") == 500
    eventually(lambda: shared.incident("in again (")["times"] == 5, "five sightings")
    assert commits() == before


def test_what_is_logged_and_what_escapes_a_thread_are_incidents_too(shared: App) -> None:
    assert shared.ask("GET", "/log") == 200
    assert shared.ask("GET", "/thread") == 200
    assert shared.incident("KeyError: 99")["sighting"]["where"] == Where.LOG
    thread = shared.incident("KeyError: 77")
    assert thread["sighting"]["where"] == Where.THREAD
    (name,) = debug(shared.relive, thread, "import threading;; p threading.current_thread().name")
    assert name.splitlines()[-1] == "'accountant'"


def test_an_answer_with_a_5xx_and_no_exception_stays_an_incident_of_its_own(shared: App) -> None:
    assert shared.ask("GET", "/refuse") == 503
    assert shared.incident("status 503")["sighting"]["kind"] == "answer"


def test_where_no_thread_waits_the_stacks_are_shown(shared: App) -> None:
    """An answer with a 5xx has a commit soon after it: there py-spy shows where every thread is."""
    assert shared.ask("GET", "/refuse/again") == 503
    incident = shared.incident("/refuse/again")
    stacks = "".join(shared.relive("debug", str(incident["number"]))["stacks"].values())
    assert "failing_app.py" in stacks


FLASK = """
from flask import Flask
app = Flask("orders")
@app.get("/orders/<int:number>")
def order(number):
    prices = [7, 5]
    return {}[number]
@app.get("/ok")
def ok():
    return "ok"
"""


@pytest.fixture
def anybodys() -> Iterator[Path]:
    """A directory that every user can read; pytest's own are root's."""
    with tempfile.TemporaryDirectory(prefix="relive-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_worker_of_gunicorn_is_debugged_as_another_user(relive: Relive, anybodys: Path) -> None:
    """Two workers that were forked; the service's user is not root, as the directory of rings has to bear."""
    (anybodys / "orders.py").write_text(FLASK)
    inner, outer = free_port(), free_port()
    listen = ["--listen", f"127.0.0.1:{outer}", "--upstream", str(inner)]
    program = [
        PYTHON.parent / "gunicorn",
        "-w",
        "2",
        "-b",
        f"127.0.0.1:{inner}",
        "--chdir",
        anybodys,
        "orders:app",
    ]
    options = ["--detach", "--name", "orders", "--every", "start", "--user", "nobody", *listen]
    answer = relive("run", *options, "--", *map(str, program))
    app = App(relive, relive.settings.capsules / "orders" / answer["life"], outer, inner)
    eventually(lambda: relive.commits("orders"), "the commit at the start")
    eventually(lambda: app.ask("GET", "/ok") == 200, "the service answers")
    assert app.ask("GET", "/orders/12") == 500
    incident = app.incident("KeyError: 12 in order (orders.py:7), request")
    number, total = debug(relive, incident, "p number", "p sum(prices)")
    assert (number, total) == ("12", "12")
    (number,) = debug(relive, incident, "p number", options=("--at-request",))
    assert number == "12"


MAIN = """
import signal, time
def work(order):
    state = {"order": order}
    raise ValueError("cannot go on", order)
go = []
signal.signal(signal.SIGUSR1, lambda *_: go.append(1))
while not go:
    time.sleep(0.01)
work(7)
"""


def test_of_two_that_fail_together_an_incident_tells_of_the_one_in_its_commit(relive: Relive) -> None:
    """The second is seen when the commit of the first is being stored, and has none."""
    app = start(relive)  # of ``shared`` commits at failures are limited in number
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda number: app.ask("GET", f"/together/{number}"), (601, 602))) == [
            500,
            500,
        ]
    eventually(lambda: app.incident("in pay_together (")["times"] == 2, "two sightings")
    incident = app.incident("in pay_together (")
    (number,) = debug(relive, incident, "p number")
    assert f"KeyError: {number} in" in incident["sighting"]["summary"]
    assert incident["last_seen_wall_ns"] >= incident["sighting"]["seen_wall_ns"]


def test_an_exception_that_ends_the_service_is_one_incident(relive: Relive, anybodys: Path) -> None:
    """Not a second one for its exit status, by which a replay judges it."""
    (anybodys / "main.py").write_text(MAIN)
    program = [str(PYTHON), str(anybodys / "main.py")]
    answer = relive("run", "--detach", "--name", "main", "--every", "start", "--", *program)
    life = relive.settings.capsules / "main" / answer["life"]
    eventually(lambda: relive.commits("main"), "the commit at the start")
    os.kill(answer["pid"], signal.SIGUSR1)
    eventually((life / "closed").exists, "the end is written down")
    (incident,) = relive("incidents")
    assert (incident["sighting"]["kind"], incident["sighting"]["exit_status"]) == ("exception", 1)
    assert (
        "ValueError" in incident["sighting"]["summary"]
        and "in work (main.py:5)" in incident["sighting"]["summary"]
    )
    assert debug(relive, incident, "p state") == ["{'order': 7}"]


def test_the_service_goes_on_when_the_agent_is_killed_while_a_thread_waits(relive: Relive) -> None:
    """The agent stands still when the thread begins to wait, and is killed then."""
    app = start(relive)
    agent = app.agent
    os.kill(agent, signal.SIGSTOP)
    try:
        rings = app.life / "rings"
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(app.ask, "POST", "/payments/1386")
            eventually(lambda: list(rings.glob("throw-*")), "a thread waits")
            os.kill(agent, signal.SIGKILL)
            assert answer.result(LIMIT) == 500
    finally:
        with contextlib.suppress(OSError):
            os.kill(agent, signal.SIGKILL)
    assert app.ask("GET", "/ok") == 200
    # A new agent comes by itself and reads what the ring holds; whether the thread still waits then is a matter of time.
    app.incident("KeyError: 1386")


def test_the_branch_of_a_debugger_that_is_killed_ends_at_once(
    shared: App, start: Callable[..., Process]
) -> None:
    """Also where nobody calls another command; the next one removes what is left of it."""
    app = shared
    assert app.ask("GET", "/kept/1388") == 500
    incident = app.incident("KeyError: 1388 in pay_and_stay (failing_app.py:")
    branches = app.relive.settings
    command = start(
        RELIVE,
        "debug",
        str(incident["number"]),
        env=app.relive.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with command.popen.stdin, command.popen.stdout as said:
        assert said.readline()  # the debugger is open
        (branch,) = list_branches(branches)
        process_1 = os.pidfd_open(branch.facts.init)
        try:
            command.popen.kill()
            assert select.select([process_1], [], [], LIMIT)[0], "process 1 ends"
        finally:
            os.close(process_1)
    command.popen.wait(LIMIT)
    assert branch.directory.exists()
    assert "branch" not in {one["kind"] for one in app.relive("ps", "--all")}
    assert not list(branches.branches.iterdir())


def test_a_branch_of_the_debugger_can_be_kept_and_its_service_goes_on(shared: App) -> None:
    app = shared
    assert app.ask("GET", "/kept/1388") == 500
    incident = app.incident("KeyError: 1388 in pay_and_stay (failing_app.py:")
    answer = app.relive("debug", "--keep", "-c", "p number", str(incident["number"]))
    assert [one["answer"] for one in answer["answers"]] == ["1388"]
    branch = find_branch(app.relive.settings, answer["branch"])
    assert branch.is_alive
    ask = (
        f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{app.inner}/ok', timeout=30).read())"
    )
    done = subprocess.run(
        branch.command_inside([str(PYTHON), "-c", ask]),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.startswith('b\'{"seen":')
    app.relive("stop", answer["branch"])
    assert not list(app.relive.settings.branches.iterdir())

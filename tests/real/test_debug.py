"""Exceptions in real services: one incident each, a commit in which the failing thread waits, and a debugger in its frame."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relive.model.failure import Where
from relive.store.evidence import package_of

from .harness import LIMIT, PYTHON, RELIVE, SERVICES, Relive, eventually, free_port


@dataclass
class App:
    """The failing FastAPI service behind the recording proxy."""

    relive: Relive
    life: Path
    outer: int

    def ask(self, method: str, path: str) -> int:
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self.outer, timeout=LIMIT)
        ) as connection:
            connection.request(method, path)
            answer = connection.getresponse()
            answer.read()
            return answer.status

    def incidents(self) -> list[dict[str, Any]]:
        return list(self.relive("incidents"))

    def incident(self, summary: str) -> dict[str, Any]:
        """The incident whose summary holds that text, once it is there."""
        return eventually(
            lambda: next((one for one in self.incidents() if summary in one["sighting"]["summary"]), None),
            f"an incident with {summary!r}",
        )

    @property
    def agent(self) -> int:
        return int((self.life / "agent.pid").read_text().split()[0])


@pytest.fixture
def app(relive: Relive, tmp_path: Path) -> App:
    return start(relive)


def start(relive: Relive, *options: str) -> App:
    inner, outer = free_port(), free_port()
    listen = ["--listen", f"127.0.0.1:{outer}", "--upstream", str(inner)]
    program = [str(PYTHON), str(SERVICES / "failing_app.py"), str(inner)]
    answer = relive(
        "run", "--detach", "--name", "shop", "--every", "start", *listen, *options, "--", *program
    )
    app = App(relive, relive.settings.capsules / "shop" / answer["life"], outer)
    eventually(lambda: relive("log", "shop"), "the commit at the start")
    eventually(lambda: app.ask("GET", "/ok") == 200, "the service answers")
    return app


def debug(
    relive: Relive, incident: dict[str, Any], *commands: str, options: tuple[str, ...] = ()
) -> list[str]:
    words = [word for command in commands for word in ("-c", command)]
    answer = relive("debug", *options, *words, str(incident["number"]))
    return [one["answer"] for one in answer["answers"]]


def test_a_debugger_opens_in_the_failing_frame_of_the_process_itself(app: App) -> None:
    """Values are printed, expressions are evaluated with the live objects, frames are walked; the original is untouched."""
    assert app.ask("POST", "/payments/1386") == 500
    incident = app.incident("KeyError: 1386 in pay (failing_app.py:")
    assert "POST /payments/1386" in incident["sighting"]["summary"]
    assert incident["before"] and incident["at"]
    assert [one["sighting"]["kind"] for one in app.incidents()] == ["exception"], (
        "the 5xx is the same incident"
    )

    number, total, items, seen, up = debug(
        app.relive,
        incident,
        "p number",
        "p order.total()",
        "p order.items",
        "p ACCOUNTS_SEEN",
        "up",
    )
    assert (number, total, items, seen) == ("1386", "14", "['book', 'pen']", "{'seen': 1}")
    assert "run_endpoint_function" in up
    assert app.relive("ps") and app.ask("GET", "/ok") == 200
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


def test_the_same_failure_again_is_counted_and_does_not_wait(app: App) -> None:
    for _ in range(5):
        assert app.ask("POST", "/payments/1386") == 500
    eventually(lambda: app.incident("KeyError")["times"] == 5, "five sightings")
    commits = [one for one in app.relive("log", "shop") if one["trigger"] == "incident"]
    assert len(commits) == 1


def test_what_is_logged_and_what_escapes_a_thread_are_incidents_too(app: App) -> None:
    assert app.ask("GET", "/log") == 200
    assert app.ask("GET", "/thread") == 200
    assert app.incident("KeyError: 99")["sighting"]["where"] == Where.LOG
    thread = app.incident("KeyError: 77")
    assert thread["sighting"]["where"] == Where.THREAD
    assert thread["at"]
    (name,) = debug(app.relive, thread, "import threading;; p threading.current_thread().name")
    assert name == "'accountant'"


def test_an_answer_with_a_5xx_and_no_exception_stays_an_incident_of_its_own(app: App) -> None:
    assert app.ask("GET", "/refuse") == 503
    assert app.incident("status 503")["sighting"]["kind"] == "answer"


@pytest.mark.parametrize("path", ["/payments/1386", "/sync/1386"])
def test_at_request_stops_before_it_goes_wrong(app: App, path: str) -> None:
    """In the handler's first line, with the state of before; a synchronous handler runs in a worker thread."""
    method = "POST" if path.startswith("/payments") else "GET"
    assert app.ask(method, path) == 500
    incident = app.incident("KeyError: 1386")
    number, seen, _, order = debug(
        app.relive, incident, "p number", "p ACCOUNTS_SEEN", "n", "p order.number", options=("--at-request",)
    )
    assert (number, seen, order) == ("1386", "{'seen': 0}", "1386")


def test_the_service_goes_on_when_the_agent_is_killed_while_a_thread_waits(app: App) -> None:
    """The agent stands still when the thread begins to wait, and is killed then."""
    os.kill(app.agent, signal.SIGSTOP)
    try:
        rings = app.life / "rings"
        answers: list[int] = []
        asking = subprocess.Popen(
            [
                PYTHON,
                "-c",
                f"import http.client as h; c = h.HTTPConnection('127.0.0.1', {app.outer});"
                "c.request('POST', '/payments/1386'); print(c.getresponse().status)",
            ],
            stdout=subprocess.PIPE,
        )
        eventually(lambda: list(rings.glob("throw-*")), "a thread waits")
    finally:
        os.kill(app.agent, signal.SIGKILL)
    assert asking.communicate(timeout=LIMIT)[0].strip() == b"500"
    assert app.ask("GET", "/ok") == 200
    app.relive("ps")  # gives it a new agent, which reads what the ring holds
    incident = app.incident("KeyError: 1386")
    assert incident["sighting"]["throw"] is None

"""Causes proved on real services: one thing of the recording changed at a time, with nothing left behind.

``dependent.py`` runs twice: recorded at its border only, beside a PostgreSQL server, and recorded from inside.
"""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relive.kernel.sockdiag import listening_ports
from support.ports import free_port
from support.servers import HAS_POSTGRES, postgres_server
from support.waiting import eventually

from .harness import PYTHON, SERVICES, Refused, Relive
from .test_bisect import get, left_over

ONCE = ("--times", "1", "--pace", "fast")


class Rates(BaseHTTPRequestHandler):
    """Every currency is worth one and a half, but one of which nobody knows."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_GET(self) -> None:
        factor = None if self.path.endswith("/CHF") else 1.5
        body = json.dumps({"factor": factor, "path": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class _Http(ThreadingHTTPServer):
    daemon_threads = True


@dataclass(frozen=True)
class Dependent:
    """The service, and the incidents by the target that failed."""

    relive: Relive
    incidents: dict[str, str]

    def what_if(self, target: str, *words: str) -> tuple[int, Any]:
        done = self.relive.say("what-if", self.incidents[target], *words)
        return done.returncode, json.loads(done.stdout)

    def effect(self, target: str, *words: str) -> str:
        """Of changes that are tried once."""
        _, told = self.what_if(target, *words, *ONCE)
        return str(told["tested"]["effect"])


def started(relive: Relive, name: str, others: dict[str, object], *options: str, inside: bool) -> int:
    """Its port, once it has answered."""
    outer, inner = free_port(), free_port()
    command = [str(PYTHON), str(SERVICES / "dependent.py"), str(inner)]
    if inside:
        uvicorn = str(PYTHON.with_name("uvicorn"))
        command = [uvicorn, "dependent:app", "--app-dir", str(SERVICES), "--port", str(inner)]
    words = ["--name", name, "--every", "start", "--listen", f"127.0.0.1:{outer}", "--upstream", str(inner)]
    environment = {"DEPENDENT": json.dumps(others)}
    relive("run", "--detach", *words, *options, "--", *command, environment=environment)
    eventually(lambda: relive.commits(name), "the commit at the start")
    eventually(lambda: get(outer, "/noted/first") == 200, "its first answer")
    return outer


def failed(relive: Relive, port: int, target: str) -> str:
    """The number of the incident of a request that fails. The next must not fail before this one is written down."""
    known = {one["number"] for one in relive("incidents")}
    assert get(port, target) == 500

    def new() -> list[Any]:
        return [one for one in relive.incidents() if one["number"] not in known]

    (incident,) = eventually(new, f"the incident of {target}")
    return str(incident["number"])


@pytest.fixture(scope="module")
def rates() -> Iterator[int]:
    server = _Http(("127.0.0.1", 0), Rates)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def inside(commands: None, rates: int) -> Iterator[Dependent]:
    home = Path(tempfile.mkdtemp(prefix="relive-"))
    relive = Relive(home, "interventions")
    port = started(relive, "inside", {"rates": rates}, inside=True)
    incidents = {}
    assert get(port, "/rated/EUR") == 200
    incidents["/rated/CHF"] = failed(relive, port, "/rated/CHF")
    for target in ("/noted/left", "/noted/none", "/noted/right", "/noted/last"):
        assert get(port, target) == 200
    relive("commit", "inside")
    incidents["/checked"] = failed(relive, port, "/checked")
    yield Dependent(relive, incidents)
    relive.close()
    shutil.rmtree(home)


@pytest.fixture(scope="module")
def border(commands: None, rates: int) -> Iterator[Dependent]:
    if not HAS_POSTGRES:
        pytest.skip("needs PostgreSQL")
    home = Path(tempfile.mkdtemp(prefix="relive-"))
    relive = Relive(home, "interventions")
    with postgres_server() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("create table items (id int, name text, price numeric)")
            connection.execute("insert into items values (1, 'tea', 4.5), (2, 'honey', NULL)")
        others: dict[str, object] = {"rates": rates, "postgres": url}
        port = started(relive, "border", others, "--record-egress", "--no-recorder", inside=False)
        assert get(port, "/stored/tea") == 200
        incidents = {"/stored/honey": failed(relive, port, "/stored/honey")}
        yield Dependent(relive, incidents)
        relive.close()
    shutil.rmtree(home)


def test_why_names_the_cell_of_a_row_at_the_border(border):
    before = left_over(border.relive)
    told = border.relive("why", border.incidents["/stored/honey"], "--times", "2")
    (cause,) = told["causes"]
    (change,) = cause["changes"]
    assert change["option"].startswith("--answer 'query:") and "$[0].price" in change["option"]
    assert (change["recorded"], change["instead"]) == ("None", "decimal('4.5')")
    assert [run["result"] for run in cause["control"]] == ["fails the same"] * 2
    assert [run["result"] for run in cause["runs"]] == ["no failure"] * 2
    assert "tea" in told["compared_with"] and "passes 2 of 2" in told["sentence"]
    assert left_over(border.relive) == before


def test_answers_of_the_border_are_changed_by_hand(border):
    before = left_over(border.relive)
    listed = border.what_if("/stored/honey")[1]["changeable"]
    (query,) = [one for one in listed if "from items" in one["what"] and "/" not in one["name"]]
    assert query["result"] == "[[2, None]]"
    status, told = border.what_if("/stored/honey", "--answer", f'{query["name"]}=[[2, "8"]]', *ONCE)
    assert (status, told["tested"]["effect"]) == (0, "goes away")
    assert border.effect("/stored/honey", "--answer", f"{query['name']}=delay:50ms") == "stays"
    status, told = border.what_if("/stored/honey", "--answer", f"{query['name']}=fail:reset", *ONCE)
    assert (status, told["tested"]["effect"]) == (10, "cannot tell")
    assert "OperationalError" in told["tested"]["why"]
    assert left_over(border.relive) == before


def test_why_names_the_field_of_an_answer_from_inside(inside):
    told = inside.relive("why", inside.incidents["/rated/CHF"], "--times", "1")
    assert [one["option"] for cause in told["causes"] for one in cause["changes"]] == [
        "--answer 'http:1$.factor=1.5'"
    ]


def test_why_names_an_earlier_request_from_an_earlier_commit(inside):
    """The commit before the failure holds the state that is wrong already."""
    before = left_over(inside.relive)
    told = inside.relive("why", inside.incidents["/checked"], "--times", "1")
    (cause,) = told["causes"]
    (change,) = cause["changes"]
    assert (
        change["about"].endswith(("(GET /noted/left)", "(GET /noted/right)"))
        and change["instead"] == "left out"
    )
    assert cause["commit"] != told["commit"]
    number = change["option"].removeprefix("--without ")
    assert inside.effect("/checked", "--without", number) == "goes away"
    first, second = inside_numbers(inside)
    assert inside.effect("/checked", "--swap", f"{first},{second}") == "stays"
    assert left_over(inside.relive) == before


def inside_numbers(inside: Dependent) -> list[str]:
    """Of the two requests that do not go together."""
    first = inside.relive("log", "inside")[-1]["id"]
    listed = inside.what_if("/checked", "--commit", first)[1]["changeable"]
    return [one["name"] for one in listed if one["what"] in ("GET /noted/left", "GET /noted/right")]


def test_what_the_replay_never_asked_for_is_told(inside):
    """The answer of a request that is left out in the same breath."""
    listed = inside.what_if("/rated/CHF")[1]["changeable"]
    (earlier,) = [one["name"] for one in listed if one["kind"] == "http" and "/" in one["name"]]
    number = earlier.partition("/")[0]
    words = ("--answer", f"{earlier}=503", "--without", number)
    assert inside.effect("/rated/CHF", *words) == "not asked"


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--answer", "http:9=503"), "has 1 of that kind"),
        (("--answer", "clock:1=+1h"), "has no clock"),
        (("--answer", "http:1=delay:1s"), "answers are given at once"),
        (("--answer", "http:1$.rate.x=1"), "there is no $.rate in"),
        (("--answer", "sql:1=1"), "does not begin with a call"),
        (("--without", "4711"), "is not among"),
        (("--swap", "1"), "the numbers of two requests"),
    ],
)
def test_what_cannot_be_changed_is_refused_and_leaves_nothing(inside, words, cause):
    before = left_over(inside.relive)
    with pytest.raises(Refused) as refused:
        inside.relive("what-if", inside.incidents["/rated/CHF"], *words)
    assert refused.value.code == "change-unfit" and cause in refused.value.cause
    assert left_over(inside.relive) == before


def test_other_services_and_unknown_incidents_are_refused(inside):
    with pytest.raises(Refused) as refused:
        inside.relive("why", "4711")
    assert refused.value.code == "incident-unknown"
    later = inside.relive("log", "inside")[0]["id"]
    with pytest.raises(Refused, match="was taken after the failing request"):
        inside.relive("what-if", inside.incidents["/rated/CHF"], "--commit", later)
    other = inside.relive.run(PYTHON, "-c", "import signal; signal.pause()", name="stranger")
    stranger = inside.relive.commit(other, measured=False).id
    with pytest.raises(Refused, match="is of 'stranger'"):
        inside.relive("what-if", inside.incidents["/rated/CHF"], "--commit", stranger)


def test_why_names_the_message_of_a_service_without_http(relive: Relive) -> None:
    """The answers are of other lengths when it is left out, and what follows on the connection is sent all the same."""
    port = free_port()
    options = ("--listen", f"127.0.0.1:{port}")
    capsule = relive.run(PYTHON, SERVICES / "poisoned_lines.py", port, name="lines", options=options)
    eventually(lambda: port in listening_ports(), "it listens")
    first = relive.commit(capsule, measured=False).id
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        for said, heard in (("EUR", b"4.00\n"), ("chf", b"unknown\n"), ("EUR", b"4.00\n"), ("CHF", b"")):
            client.sendall(f"{said}\n".encode())
            assert client.recv(64) == heard
    incident = str(eventually(relive.incidents, "the incident")[0]["number"])
    before, soon = left_over(relive), ("--limit", "1")  # [s] a death is waited for
    told = json.loads(relive.say("why", incident, "--times", "2", *soon).stdout)
    (cause,) = told["causes"]
    (change,) = cause["changes"]
    assert cause["commit"] == first and change["recorded"] == r"sent, answered unknown\n"
    assert r"(chf\n)" in change["about"] and change["about"] in told["sentence"]
    assert left_over(relive) == before
    # By hand, as it was said; another makes no difference.
    words = change["option"].split()
    assert relive.say("what-if", incident, *words, *ONCE, *soon).returncode == 0
    listed = json.loads(relive.say("what-if", incident).stdout)["changeable"]
    assert [(one["kind"], one["what"], one["result"]) for one in listed][::-1] == [
        ("message", r"EUR\n", r"4.00\n"),
        ("message", r"chf\n", r"unknown\n"),
        ("message", r"EUR\n", r"4.00\n"),
        ("message", r"CHF\n", "no answer"),
    ]
    other = json.loads(relive.say("what-if", incident, "--without-message", listed[-1]["name"], *ONCE).stdout)
    assert other["tested"]["effect"] == "stays"
    with pytest.raises(Refused, match="not among the 4"):
        relive("what-if", incident, "--without-message", "999999")


def test_a_bound_is_kept_and_said(inside):
    done = inside.relive.say("why", inside.incidents["/checked"], "--times", "1", "--most", "2")
    told = json.loads(done.stdout)
    assert done.returncode == 10 and told["replays"] <= 2 and told["causes"] == []
    assert "2 replays were allowed" in told["why_not"] and told["sentence"].startswith("Cannot tell")

"""Failures brought back in fresh processes, from what lies beside their incidents: no commit is there any more."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import itertools
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from support.ports import free_port
from support.servers import HAS_POSTGRES, HAS_REDIS, postgres_server, redis_server
from support.waiting import LIMIT, eventually

from .harness import PYTHON, RELIVE, SERVICES, Process, Relive

AFRESH = SERVICES / "afresh"


class Prices(http.server.ThreadingHTTPServer):
    """Gives another price each time."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Price)
        self.prices = itertools.count(1)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


class _Price(http.server.BaseHTTPRequestHandler):
    server: Prices

    def do_GET(self) -> None:
        data = json.dumps({"price": next(self.server.prices)}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


class Kept:
    """What lies beside the one incident of a service, taken to another host: into a home without commits and recordings."""

    def __init__(self, incidents: Path, relive: Relive) -> None:
        shutil.copytree(incidents, relive.settings.incidents)
        # Who changes what lies there can change its checksums too; without any, as an older Relive left it, nothing is compared.
        (relive.settings.incidents / "1.sums").unlink(missing_ok=True)
        self.relive = relive

    def path(self, what: str) -> Path:
        return self.relive.settings.incidents / f"1.{what}"

    def change(self, what: str, **values: object) -> None:
        self.path(what).write_text(json.dumps({**json.loads(self.path(what).read_text()), **values}))

    def __call__(self, *options: str, limit: int = 20) -> tuple[int, dict[str, Any]]:
        """(exit status, answer) of ``relive reproduce 1``."""
        done = self.relive.say("reproduce", "1", "--limit", str(limit), *options)
        return done.returncode, json.loads(done.stdout)


@pytest.fixture
def moved(tmp_path_factory: pytest.TempPathFactory, relive: Relive) -> Iterator[Callable[[str], Kept]]:
    """Ends a service, and takes its incident elsewhere."""
    home = Path("/var/tmp") / f"relive-{os.getpid()}-{tmp_path_factory.mktemp('moved').name}"

    def move(name: str) -> Kept:
        eventually(relive.incidents, "the incident")
        eventually((relive.settings.incidents / "1.package.json").exists, "its package")
        with contextlib.suppress(Exception):
            relive("stop", name)
        return Kept(relive.settings.incidents, Relive(home, "reproduce"))

    yield move
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def recorded_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the incident of a program that died lies; the same for all tests that begin with it."""
    home = Path(tempfile.mkdtemp(prefix="relive-"))
    relive = Relive(home, "reproduce")
    relive(
        "run",
        "--detach",
        "--name",
        "program",
        "--every",
        "never",
        "--no-wait",  # it is over before it could be ready
        "--",
        str(PYTHON),
        str(AFRESH / "program.py"),
    )
    eventually((home / "incidents/1.package.json").exists, "its package")
    kept = tmp_path_factory.mktemp("recorded") / "incidents"
    relive.close()
    shutil.copytree(home / "incidents", kept)
    shutil.rmtree(home)
    return kept


@pytest.fixture
def died(recorded_program: Path, relive: Relive) -> Kept:
    """The program's incident, in a home without its commits."""
    return Kept(recorded_program, relive)


def got(port: int, path: str) -> int:
    """The status of the answer."""
    return _asked(port, "GET", path, None)


def posted(port: int, path: str, body: dict[str, Any]) -> int:
    """The status of the answer."""
    return _asked(port, "POST", path, json.dumps(body))


def _asked(port: int, method: str, path: str, body: str | None) -> int:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)) as client:
        client.request(method, path, body, {"content-type": "application/json"})
        answer = client.getresponse()
        answer.read()
        return answer.status


def _runs(marker: str) -> bool:
    """A process has that word in its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if marker.encode() in path.read_bytes().split(b"\0"):
                return True
    return False


HOSTILE = """
import os, shutil, signal, socket, subprocess, sys
done = []
def attempt(name, action):
    try:
        action()
    except (OSError, subprocess.CalledProcessError):
        return
    done.append(name)
open("{outside}", "w").write("in")
attempt("home", lambda: open("{victim}", "r+").write("gone"))
shutil.rmtree("{code}")
attempt("mount", lambda: subprocess.run(["mount", "-t", "tmpfs", "none", "/mnt"], check=True, capture_output=True))
attempt("sysrq", lambda: open("/proc/sys/kernel/sysrq", "w"))
attempt("device", lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(8, 0)))
attempt("the host", lambda: socket.create_connection(("127.0.0.1", {port}), 5))
attempt("elsewhere", lambda: socket.create_connection(("192.0.2.7", 80), 5))
attempt("clock", lambda: __import__("time").clock_settime(0, 0))
print("tried", file=sys.stderr)
print("done:", ", ".join(done) or "none", file=sys.stderr)
sys.stderr.flush()
os._exit(3)
"""


def git(directory: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", "-C", str(directory), *who, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def committed(directory: Path, words: str) -> str:
    git(directory, "add", "-A")
    git(directory, "commit", "-q", "-m", words)
    return git(directory, "rev-parse", "HEAD")


@pytest.mark.skipif(not HAS_REDIS, reason="needs redis-server")
def test_a_service_with_calls_fails_again_at_its_revision_and_not_at_the_one_with_the_fix(
    relive: Relive, tmp_path: Path, moved: Callable[[str], Kept]
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    shutil.copy(AFRESH / "orders.py", code)
    git(code, "init", "-q")
    failing = committed(code, "as it failed")
    prices = Prices()
    with redis_server() as url:
        cache = redis.Redis.from_url(url)
        cache.hset("rates", "EUR", 2)
        cache.set("stock", 10)
        _orders_fail(relive, code, url, prices)
        kept = moved("orders")
    prices.shutdown()
    prices.server_close()

    # A line above it moves the failing one; then it is mended. The working tree has the mended one.
    text = (code / "orders.py").read_text()
    (code / "orders.py").write_text(text.replace("\n\n@app", "\n# Here.\n\n@app"))
    further = committed(code, "a line more")
    (code / "orders.py").write_text(
        text.replace('rates[wanted["currency"]]', 'rates.get(wanted["currency"], 1)')
    )
    mended = committed(code, "mended")

    status, told = kept()
    assert (status, told["tree"]["revision"], told["tree"]["is_recorded"]) == (0, failing, True)
    assert told["placeholders"] == ["PRICE_TOKEN"]
    assert "nobody-may-know-this" not in json.dumps(told)
    for one in told["attempts"]:
        assert (one["raised"]["type"], one["raised"]["text"]) == ("builtins.KeyError", "'CHF'")
        assert (one["raised"]["file"], one["raised"]["line"]) == (
            told["recorded"]["file"],
            told["recorded"]["line"],
        )
        assert (one["status"], one["packets_left"], one["refused"], one["misses"]) == (500, 0, 0, [])
        assert one["notes"] == []  # all that happened in the request was as recorded

    status, told = kept("--checkout", further)
    assert (status, told["tree"]["is_recorded"]) == (0, False)
    assert told["attempts"][0]["raised"]["line"] == told["recorded"]["line"] + 1
    assert "the line moved" in told["attempts"][0]["notes"][0]

    status, told = kept("--checkout", mended)
    (one,) = told["attempts"]
    assert (status, one["kind"], one["status"], one["raised"]) == (1, "not-reproduced", 200, None)
    assert list(kept.relive.settings.branches.iterdir()) == []


def _orders_fail(relive: Relive, code: Path, url: str, prices: Prices) -> None:
    inner, outer = free_port(), free_port()
    relive(
        *("run", "--detach", "--name", "orders", "--every", "never"),
        *("--listen", f"127.0.0.1:{outer}", "--upstream", str(inner), "--"),
        *(str(PYTHON), "-m", "uvicorn", "--app-dir", str(code), "orders:app", "--port", str(inner)),
        environment={
            "REDIS_URL": url,
            "PRICES": f"http://127.0.0.1:{prices.server_address[1]}/",
            "PRICE_TOKEN": "nobody-may-know-this",
        },
    )
    eventually(lambda: posted(outer, "/orders", {"currency": "EUR"}) == 200)
    assert posted(outer, "/orders", {"currency": "CHF"}) == 500


def test_a_prefork_service_fails_again_on_the_hosts_database_and_not_on_another(
    relive: Relive, tmp_path: Path, moved: Callable[[str], Kept]
) -> None:
    database, other = tmp_path / "shop.db", tmp_path / "other.db"
    for path, names in ((database, ["tea"]), (other, ["tea", "gold"])):
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE items (name, price)")
            connection.executemany("INSERT INTO items VALUES (?, 3)", [(name,) for name in names])
            connection.commit()
    inner, outer = free_port(), free_port()
    bind = f"127.0.0.1:{inner}"
    command = [
        str(PYTHON),
        "-m",
        "gunicorn",
        "--workers",
        "2",
        "--chdir",
        str(AFRESH),
        "--bind",
        bind,
        "shop:app",
    ]
    relive(
        *("run", "--detach", "--name", "shop", "--every", "never"),
        *("--listen", f"127.0.0.1:{outer}", "--upstream", str(inner), "--", *command),
        environment={"SHOP_DB": str(database)},
    )
    eventually(lambda: posted(outer, "/buy", {"name": "tea"}) == 200)
    assert posted(outer, "/buy", {"name": "gold"}) == 500
    asked = database.with_name("shop.db.asked").read_text()
    kept = moved("shop")

    status, told = kept()
    assert (status, told["attempts"][0]["raised"]["text"]) == (0, "list index out of range")
    assert database.with_name("shop.db.asked").read_text() == asked  # what it writes is the sandbox's own

    status, told = kept("--database", f"{database}={other}")
    assert (status, told["attempts"][0]["status"]) == (1, 200)

    # The error package alone: the request is made again of what the service had read.
    alone = tmp_path / "7.package.json"
    shutil.copy(kept.path("package.json"), alone)
    done = kept.relive.say("reproduce", str(alone), "--", *command)
    told = json.loads(done.stdout)
    assert (done.returncode, told["incident"], told["attempts"][0]["status"]) == (0, 7, 500)
    assert any("made again" in note for note in told["notes"])

    status, told = kept("--", str(PYTHON), "-c", "import sys; sys.exit('no such shop')")
    (one,) = told["attempts"]
    assert (status, one["kind"], one["exit_status"]) == (6, "could-not-start", 1)
    assert one["log"][-1] == "no such shop"


@pytest.mark.skipif(not HAS_POSTGRES, reason="needs PostgreSQL")
def test_a_pool_that_connected_in_an_earlier_request_connects_to_what_that_was_told(
    relive: Relive, moved: Callable[[str], Kept]
) -> None:
    with postgres_server() as url:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE accounts (id integer, balance numeric)")
            connection.execute("INSERT INTO accounts VALUES (1, 2.5)")
        inner, outer = free_port(), free_port()
        relive(
            *("run", "--detach", "--name", "accounts", "--every", "never"),
            *("--listen", f"127.0.0.1:{outer}", "--upstream", str(inner), "--"),
            *(
                str(PYTHON),
                "-m",
                "gunicorn",
                "--chdir",
                str(AFRESH),
                "--bind",
                f"127.0.0.1:{inner}",
                "accounts:app",
            ),
            environment={"ACCOUNTS": url.replace("postgresql", "postgresql+psycopg")},
        )
        eventually(lambda: got(outer, "/accounts/1") == 200)
        got(outer, "/later/9")
        kept = moved("accounts")
    status, told = kept()
    (one,) = told["attempts"]
    assert (status, one["raised"]["text"]) == (0, "'NoneType' object is not subscriptable")
    assert (one["misses"], one["refused"]) == ([], 0)
    assert "had been told when it began" in " ".join(one["notes"])


@pytest.mark.parametrize("recorder", [[], ["--no-recorder"]], ids=["recorder", "alone"])
def test_without_an_error_package_the_request_alone_is_tried(relive: Relive, recorder: list[str]) -> None:
    """GIVEN failing answers of which no exception was seen: one that the state decides, one that comes always
    THEN a fresh process, which gets the request alone, tells the two apart.
    """
    inner, outer = free_port(), free_port()
    command = [str(PYTHON), str(SERVICES / "failing_service.py"), str(inner)]
    listen = ["--listen", f"127.0.0.1:{outer}", "--upstream", str(inner)]
    relive(
        "run", "--detach", "--name", "failing", "--every", "never", *recorder, *listen, "--", *command,
        environment={"API_KEY": "k-2918-aa3b77"},
    )  # fmt: skip
    eventually(lambda: got(outer, "/ok") == 200, "it answers")
    # The proxy takes requests before the agent hears of them.
    eventually(lambda: relive("show", relive("commit", "failing")["id"])["cursor"], "a commit with a cursor")
    assert got(outer, "/poison") == 200
    assert [got(outer, path) for path in ("/price", "/nowhere")] == [500, 500]
    eventually(lambda: len(relive.incidents("failing")) == 2, "the incidents")
    found = relive("incidents", "failing")
    assert [one["sighting"]["kind"] for one in found] == ["answer", "answer"], found
    verdicts = {}
    for incident in found:
        done = relive.say("reproduce", str(incident["number"]), "--limit", "20")
        answer = json.loads(done.stdout)
        verdicts[answer["request"]] = (done.returncode, answer["attempts"][0]["kind"])
        assert answer["recorded"] is None and answer["recorded_status"] == 500, answer
        logged = "KeyError: '/nowhere'" if answer["request"] == "GET /nowhere" else "TypeError: unsupported"
        assert f"and its log has {logged}" in answer["recorded_end"], answer
        assert "k-2918-aa3b77" not in done.stdout
    assert verdicts == {"GET /price": (1, "not-reproduced"), "GET /nowhere": (0, "reproduced")}


@pytest.fixture(scope="session")
def dying(tmp_path_factory: pytest.TempPathFactory) -> str:
    """``services/afresh/dying.c``, built."""
    program = tmp_path_factory.mktemp("dying") / "dying"
    subprocess.run(["gcc", "-g", "-O1", "-o", str(program), str(AFRESH / "dying.c")], check=True)
    program.chmod(0o755)
    return str(program)


def _incident_of(relive: Relive, command: list[str], paths: list[str], kind: str) -> int:
    """Number of the incident of a service that was asked these, the last of which kills it, or hangs."""
    inner, outer = free_port(), free_port()
    relive(
        *("run", "--detach", "--name", "dying", "--every", "never", "--hang-after", "1"),
        *("--listen", f"127.0.0.1:{outer}", "--upstream", str(inner), "--"),
        *(command[0], str(inner), *command[1:]),
        environment={"NEEDED": "k-7712-ee01"},
    )
    eventually(lambda: got(outer, "/ok") == 200, "it answers")
    eventually(lambda: relive("show", relive("commit", "dying")["id"])["cursor"], "a commit with a cursor")
    for path in paths[:-1]:
        assert got(outer, path) == 200
    with socket.create_connection(("127.0.0.1", outer), LIMIT) as client:
        client.sendall(f"GET {paths[-1]} HTTP/1.1\r\nHost: shop\r\n\r\n".encode())
        eventually(lambda: _of_kind(relive, kind), "the incident")
    (found,) = _of_kind(relive, kind)
    return int(found["number"])


def _of_kind(relive: Relive, kind: str) -> list[dict[str, Any]]:
    return [one for one in relive.incidents("dying") if one["sighting"]["kind"] == kind]


@pytest.mark.parametrize(
    ("path", "kind", "more", "end", "status", "word", "words"),
    [
        (
            "/segv",
            "signal",
            [],
            "died of signal 11",
            0,
            "reproduced",
            "the same signal at the same instruction",
        ),
        ("/abort", "signal", ["worker"], "died of signal 6", 0, "reproduced", "the same signal at the same"),
        ("/exit", "exit", [], "ended with status 3", 0, "reproduced", "the same last line in the log"),
        ("/hang", "hang", [], "no answer came", 10, "same-answer", "neither side printed"),
        (
            "/segv?",
            "signal",
            [],
            "died of signal 11",
            1,
            "not-reproduced",
            "status 200 came, and the service",
        ),
    ],
)
def test_a_request_that_alone_kills_or_hangs_a_service_is_told_from_one_that_needs_its_state(
    *,
    relive: Relive,
    dying: str,
    path: str,
    kind: str,
    more: list[str],
    end: str,
    status: int,
    word: str,
    words: str,
) -> None:
    """THEN it is known from the request alone, also when the service has ended, whose environment a commit has."""
    number = _incident_of(relive, [dying, *more], ["/poison", path] if "?" in path else [path], kind)
    if kind == "hang":
        relive("stop", "dying", "--timeout", "1")
    done = relive.say("reproduce", str(number), "--limit", "20")
    told = json.loads(done.stdout)
    assert "attempts" in told, told
    (one,) = told["attempts"]
    assert (done.returncode, one["kind"]) == (status, word), told
    assert end in told["recorded_end"]
    assert words in " ".join([one["difference"] or "", *one["evidence"], *one["unseen"]]), one
    assert "k-7712-ee01" not in done.stdout + done.stderr
    assert list(relive.settings.branches.iterdir()) == []


def test_a_program_dies_of_the_same_again(died: Kept) -> None:
    status, told = died("--times", "2")
    assert (status, told["request"], len(told["attempts"])) == (0, None, 2)
    for one in told["attempts"]:
        assert (one["exit_status"], one["raised"]["text"]) == (1, told["recorded"]["text"])
        assert one["notes"] == []  # event by event, from its beginning


def test_a_sandbox_ends_with_the_command_however_that_dies(died: Kept, start: Callable[..., Process]) -> None:
    marker = f"{os.getpid()}.{free_port()}"
    died.change(
        "launch.json", command=["sh", "-c", f"trap '' TERM HUP; sleep {marker} & exec sleep 3{marker}"]
    )
    command = start(RELIVE, "reproduce", "1", env=died.relive.environment, stderr=subprocess.DEVNULL)
    eventually(lambda: _runs(marker) and _runs(f"3{marker}"), "the sandbox")
    command.popen.kill()
    eventually(lambda: not _runs(marker) and not _runs(f"3{marker}"), "its end")


def test_a_hostile_package_reaches_nothing_of_the_host(died: Kept) -> None:
    """GIVEN an incident from somebody else, WHEN it is reproduced, THEN what it starts finds no host to harm."""
    victim = died.relive.home / "victim"
    victim.write_text("whole")
    outside = Path("/var/tmp") / f"{died.relive.home.name}-outside"
    with socket.create_server(("127.0.0.1", 0)) as hosts:
        script = HOSTILE.format(outside=outside, victim=victim, code=AFRESH, port=hosts.getsockname()[1])
        died.change("launch.json", command=[str(PYTHON), "-c", script], directory="/")
        _check_hostile(died, victim, outside)
    died.change("launch.json", directory="../tmp")
    done = died.relive.say("reproduce", "1")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "usage")
    died.change("launch.json", directory="/", user="nobody-of-this-name")
    status, told = died()
    assert (status, told["attempts"][0]["kind"]) == (6, "could-not-start")
    died.path("launch.json").write_text("{}")
    done = died.relive.say("reproduce", "1")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (8, "recording-corrupt")


def _check_hostile(kept: Kept, victim: Path, outside: Path) -> None:
    package = json.loads(kept.path("package.json").read_text())
    package["revision"] = {"commit": "0" * 40, "dirty": None, "root": "/etc/../../.."}
    package["environment"].update({"LD_PRELOAD": "/nowhere.so", "RELIVE_RECORDER": "{", "A=B": "c"})
    kept.path("package.json").write_text(json.dumps(package))
    status, told = kept()
    (one,) = told["attempts"]
    assert (status, one["kind"], one["packets_left"], one["refused"]) == (10, "diverged", 0, 1)
    assert (one["exit_status"], one["log"][-2:]) == (3, ["tried", "done: none"])
    assert (victim.read_text(), outside.exists(), (AFRESH / "program.py").exists()) == ("whole", False, True)

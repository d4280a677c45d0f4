"""Services whose first process ends with 0 and leaves daemons, and stopping any service as a whole."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path

import pytest
import redis

from relive.agent.capsule.lives import Capsule as Life
from relive.agent.capsule.lives import all_lives
from relive.agent.capsule.stopping import signal_all
from relive.kernel import procfs
from support.ports import free_port
from support.waiting import eventually

from .harness import PYTHON, Refused, Relive

server = shutil.which("redis-server")
needs_redis = pytest.mark.skipif(server is None, reason="needs redis-server")

DAEMON = """
import os, signal, sys, time
kind, mark = sys.argv[1:]
def leave():
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        if kind == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(mark, "w").write("there")
        while True:
            signal.pause()
    os.wait()
leave()
if kind == "stays":
    def end(*_):
        os.write(1, b"first\\n")
        sys.exit(0)
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, lambda *_: (os.write(1, b"again\\n"), os._exit(0)))
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    while True:
        signal.pause()
"""


def life_of(relive: Relive, name: str = "service") -> Life:
    return [one for one in all_lives(relive.settings) if one.facts.spec.name == name][-1]


def answers(port: int) -> bool:
    try:
        with redis.Redis(port=port, socket_timeout=30, single_connection_client=True) as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False


def started_daemon(relive: Relive, tmp_path: Path, kind: str, *options: str) -> Life:
    mark = tmp_path / "mark"
    relive(
        "run", "-d", "--every", "never", "--no-recorder", "--name", "service", *options,
        *("--", str(PYTHON), "-c", DAEMON, kind, str(mark)),
    )  # fmt: skip
    eventually(mark.exists, "the daemon is there")
    return life_of(relive)


@needs_redis
def test_a_service_that_made_itself_a_daemon_is_committed_watched_and_stopped(
    relive: Relive, tmp_path: Path
) -> None:
    port = free_port()
    words = [str(server), "--port", str(port), "--daemonize", "yes", "--dir", str(tmp_path), "--save", ""]
    # Where it dies it would test its memory by writing over it, over what the kernel reads there (rseq), too, and die of that.
    words += ["--crash-memcheck-enabled", "no"]
    capsule = relive.run(*words)
    eventually(lambda: answers(port), "redis answers")
    with redis.Redis(port=port) as client:
        client.set("a", "committed")
        commit = relive.commit(capsule)
        client.set("a", "later")
        branch = relive.restore(commit, port)
        with redis.Redis(port=branch.ports[port]) as inside:
            assert inside.get("a") == b"committed"
        branch.stop()
        shown = next(one for one in relive("ps") if one["id"] == "service")
        assert Path(f"/proc/{shown['pid']}/comm").read_text() == "redis-server\n"
    os.kill(shown["pid"], signal.SIGSEGV)
    found = eventually(relive.incidents, "the daemon's death is an incident")
    assert "SIGSEGV" in found[0]["sighting"]["summary"] and found[0]["at"]
    eventually(lambda: not relive("ps"), "nothing keeps the name")
    relive.run(*words)  # neither the name nor the port
    eventually(lambda: answers(port), "redis answers")
    assert relive("stop", "service")["stopped"] == ["service"]
    assert not answers(port)
    assert relive("stop", "service")["stopped"] == ["service"]  # a second stop is no error


def test_several_daemons_are_committed_below_a_head(relive: Relive, tmp_path: Path) -> None:
    marks = [tmp_path / "one", tmp_path / "two"]
    script = "; ".join(f"{PYTHON} -c '{DAEMON}' left {mark}" for mark in marks)
    relive("run", "-d", "--every", "never", "--no-recorder", "--name", "service", "--", "sh", "-c", script)
    eventually(lambda: all(mark.exists() for mark in marks), "both are there")
    eventually(lambda: len(life_of(relive).heads()) == 2, "nobody is their parent")
    with pytest.raises(Refused, match=r"target-undumpable.*--daemons"):
        relive.commit("service")
    one = life_of(relive).heads()[0]
    eventually(lambda: procfs.status_field(one, "TracerPid") not in (None, "0"), "it is traced")
    os.kill(one, signal.SIGSEGV)
    seen = eventually(relive.incidents, "each is watched")
    assert "SIGSEGV" in seen[0]["sighting"]["summary"]
    relive("stop", "service")
    for mark in marks:
        mark.unlink()
    capsule = relive(
        "run", "-d", "--every", "never", "--no-recorder", "--name", "service", "--daemons", "--", "sh", "-c", script
    )  # fmt: skip
    eventually(lambda: all(mark.exists() for mark in marks), "both are there")
    eventually(lambda: len(life_of(relive).heads()) == 1, "one is at the head")
    commit = relive.commit("service")
    assert commit.manifest.target.root == 2
    branch = relive.restore(commit)
    assert len(branch.pids()) == 3
    branch.stop()
    relive("stop", "service")
    assert not Path(f"/proc/{capsule['pid']}").exists()
    assert len(relive("incidents")) == 1


def test_what_the_first_process_leaves_is_ended_too(relive: Relive, tmp_path: Path) -> None:
    """As RabbitMQ leaves its epmd: the first process gets the signal, the daemon gets it then, and the name is free."""
    life = started_daemon(relive, tmp_path, "stays")
    relive("stop", "service")
    assert (life.paths.logs[0]).read_text() == "first\n"
    assert not life.is_alive and life.wait_status == 0
    started_daemon(relive, tmp_path, "stays")


def test_what_does_not_end_is_killed_after_the_time(relive: Relive, tmp_path: Path) -> None:
    life = started_daemon(relive, tmp_path, "deaf")
    said = relive.say("stop", "--timeout", "0.3", "service")
    assert said.returncode == 0 and "has not ended 0.3 s after SIGTERM" in said.stderr
    assert not life.is_alive
    assert not relive("incidents")  # it was asked for


def test_the_signal_is_that_of_the_start_or_of_the_stop(relive: Relive, tmp_path: Path) -> None:
    life = started_daemon(relive, tmp_path, "stays", "--stop-signal", "HUP")
    relive("stop", "service")
    assert life.paths.logs[0].read_text() == "again\n" and life.wait_status == 0
    life = started_daemon(relive, tmp_path, "stays", "--stop-signal", "HUP")
    relive("stop", "--signal", "INT", "service")
    assert life.paths.logs[0].read_text() == "" and life.wait_status == 0


def test_a_number_that_is_a_strangers_by_now_is_not_signalled(relive: Relive, tmp_path: Path) -> None:
    """The service's first process has ended, and the number in its state means a process outside."""
    life = started_daemon(relive, tmp_path, "left")
    near, far = socket.socketpair()
    stranger = os.fork()
    if stranger == 0:
        near.close()
        far.recv(1)  # until nobody holds the other end
        os._exit(0)
    far.close()
    state = life.paths.state
    # As if it were used again.
    state.write_text(life.facts.model_copy(update={"root": stranger}).model_dump_json())
    assert signal_all([stranger], life.facts.init, signal.SIGTERM) == []
    relive("stop", "service")
    near.close()
    assert os.waitpid(stranger, 0)[1] == 0
    assert not life.is_alive

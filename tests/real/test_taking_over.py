"""The front end comes back: ``relive attach``, a supervisor's next start; and when ``relive run --detach`` returns."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from relive.kernel import procfs
from relive.kernel.sockdiag import listening_ports
from support.ports import free_port
from support.waiting import LIMIT, eventually

from .harness import PYTHON, RELIVE, Process, Refused, Relive

SERVICE = """
import os, signal, sys
signal.signal(signal.SIGHUP, lambda *_: print("reloaded", flush=True))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("begun", flush=True)
while True:
    signal.pause()
"""
COMMAND = ("--", str(PYTHON), "-c", SERVICE)
OPTIONS = ("--name", "service", "--every", "never", "--no-recorder")
Start = Callable[..., Process]


def front(relive: Relive, start: Start, out: Path, *words: str, **variables: str) -> Process:
    environment = relive.environment | variables
    with out.open("wb") as file:
        return start(RELIVE, *words, env=environment, stdout=file, stderr=subprocess.STDOUT)


def begun(relive: Relive) -> int:
    """Host pid of the service, which has its handlers by now."""
    logs = relive.home / "capsules/service/current/io/stdout.log"
    eventually(lambda: logs.read_text().startswith("begun"), "the service has begun")
    return int(next(one for one in relive("ps") if one["id"] == "service")["pid"])


def killed(process: Process) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.popen.wait(LIMIT)


def test_attach_takes_the_place_of_a_command_that_was_killed(
    relive: Relive, start: Start, tmp_path: Path
) -> None:
    first = front(relive, start, tmp_path / "first", "run", *OPTIONS, *COMMAND)
    pid = begun(relive)
    killed(first)
    out = tmp_path / "second"
    second = front(relive, start, out, "attach", "service")
    eventually(
        lambda: procfs.status_field(second.pid, "SigCgt") not in (None, "0" * 16), "it handles signals"
    )
    eventually(lambda: _reload(second) or "reloaded" in out.read_text(), "the signal and its answer")
    assert "begun" not in out.read_text()  # that was said to the first
    os.kill(second.pid, signal.SIGTERM)
    assert second.popen.wait(LIMIT) == 7
    assert not procfs.exists(pid)


def _reload(process: Process) -> None:
    """Handlers come after Python's own: a HUP before would end the command."""
    if int(procfs.status_field(process.pid, "SigCgt") or "0", 16) & 1:
        os.kill(process.pid, signal.SIGHUP)


def test_a_supervisors_next_start_takes_over_what_lives(relive: Relive, start: Start, tmp_path: Path) -> None:
    """With --no-supervised the service outlives its command, and the same command finds it again; another does not."""
    words = ("run", "--no-supervised", *OPTIONS)
    first = front(relive, start, tmp_path / "first", *words, *COMMAND, SUPERVISOR_PROCESS_NAME="service")
    pid = begun(relive)
    killed(first)
    other = front(relive, start, tmp_path / "other", *words, "--", "true", SUPERVISOR_PROCESS_NAME="service")
    assert other.popen.wait(LIMIT) == 9
    assert "capsule-exists" in (tmp_path / "other").read_text()
    second = front(relive, start, tmp_path / "second", *words, *COMMAND, SUPERVISOR_PROCESS_NAME="service")
    eventually(lambda: f"runs as process {pid}" in (tmp_path / "second").read_text(), "it was taken over")
    os.kill(second.pid, signal.SIGTERM)
    assert second.popen.wait(LIMIT) == 7


def test_a_name_that_is_taken_is_said_before_a_port_that_is(relive: Relive) -> None:
    port, own = free_port(), free_port()
    words = ("run", "-d", *OPTIONS, "--listen", str(port), "--upstream", str(own))
    service = ("--", str(PYTHON), "-m", "http.server", "--bind", "127.0.0.1", str(own))
    relive(*words, *service)
    # It returned when both answer.
    assert own in listening_ports() and port in listening_ports()
    with pytest.raises(Refused, match=r"capsule-exists.*relive attach service") as refused:
        relive(*words, *service)
    assert refused.value.status == 9


SAYS = "import os, socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); open(sys.argv[1]).read(); \
open(sys.argv[2], 'w').close(); s.sendto(b'READY=1', os.environ['NOTIFY_SOCKET']); import signal; signal.pause()"


def test_a_start_returns_when_the_service_says_that_it_is_ready(
    relive: Relive, start: Start, tmp_path: Path
) -> None:
    fifo, mark = tmp_path / "fifo", tmp_path / "mark"
    os.mkfifo(fifo)
    command = ("--", str(PYTHON), "-c", SAYS, str(fifo), str(mark))
    starting = front(relive, start, tmp_path / "out", "run", "-d", "--ready", "service", *OPTIONS, *command)
    assert starting.popen.poll() is None
    fifo.write_text("go")  # blocks until the service reads, which is not ready before
    assert starting.popen.wait(LIMIT) == 0 and mark.exists()


def test_what_is_not_ready_in_time_runs_on_and_what_ends_is_told(relive: Relive) -> None:
    with pytest.raises(Refused, match=r"not-ready: service is not ready after 0.2 s; it runs on"):
        relive("run", "-d", "--ready", "service", "--ready-limit", "0.2", *OPTIONS, *COMMAND)
    begun(relive)
    relive("stop", "service")
    # At once: what runs for half a second counts as ready.
    fails = (
        "--",
        "sh",
        "-c",
        "echo no such table >&2; exit 1",
    )
    with pytest.raises(Refused, match=r"ended before it was ready, with status 1 \| no such table"):
        relive("run", "-d", *OPTIONS, *fails)
    relive("run", "-d", *OPTIONS, "--", "true")  # a task that is done is no failure


def test_what_lies_where_a_service_is_started_is_not_imported_by_relive(
    relive: Relive, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "copy.py").write_text("raise SystemExit('imported')")
    words = ("run", "-d", "--listen", str(free_port()), "--upstream", str(free_port()), "--no-wait", *OPTIONS)
    begin = start(RELIVE, *words, *COMMAND, env=relive.environment, cwd=tmp_path)
    assert begin.popen.wait(LIMIT) == 0
    relive.commit("service", measured=False)

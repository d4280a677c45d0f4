"""Where the benchmarks of commits and branches run: a directory, programs that tell when they stood still, capsules.

Every program has a loop in C that naps for 0.2 ms and, when more than a millisecond has passed since the last nap, prints
``gap MICROSECONDS ENDED``. It reads CLOCK_REALTIME by the system call itself, which neither a time namespace nor Relive's
clock of a branch changes; so ``ended``, in nanoseconds, is the moment at which the program ran again, by the host's clock.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _stopwatch import Part, Stopwatch

from relive.agent.capsule.launch import new_life
from relive.agent.capsule.lives import Capsule
from relive.agent.control.client import ask_agent
from relive.config import load_settings
from relive.errors import AgentUnreachable
from relive.kernel import procfs
from relive.kernel.seccomp import hide_io_uring
from relive.kernel.sockdiag import listening_ports
from relive.model.capsule import CapsuleFacts, CapsuleSpec
from relive.model.commit_policy import Policy
from relive.model.life_paths import LifePaths
from relive.store import Store

__all__ = [
    "Gap",
    "Lab",
    "Program",
    "Service",
    "add_options",
    "free_port",
    "gaps_after",
    "lab",
    "load_average",
    "median",
    "print_json",
    "print_table",
    "quartiles",
]

_PULSE = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static long long now(void)
{
	struct timespec t;
	syscall(SYS_clock_gettime, CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}
void pulse(void)
{
	struct timespec nap = { .tv_nsec = 200000 };
	char line[64];
	for (long long last = now(), next;; last = next) {
		nanosleep(&nap, NULL);
		next = now();
		if (next - last > 1000000) {
			int length = snprintf(line, sizeof line, "gap %lld %lld\n", (next - last) / 1000, next);
			if (write(1, line, length) < 0)
				return;
		}
	}
}
"""
_PLAIN = """
import ctypes, sys
pulse = ctypes.CDLL(sys.argv[1]).pulse
# Every page differs, so that nothing can be saved by sharing or by zero pages.
ballast = bytearray(int(sys.argv[2]) << 20)
for page in range(0, len(ballast), 4096):
    ballast[page:page + 8] = page.to_bytes(8, "little")
pulse()
"""
_WEB = """
import ctypes, os, threading
from fastapi import FastAPI
threading.Thread(target=ctypes.CDLL(os.environ["PULSE"]).pulse, daemon=True).start()
app = FastAPI()
count = 0
@app.get("/")
async def read():
    global count
    count += 1
    return {"count": count}
"""
_GAP = re.compile(rb"gap (\d+) (\d+)\n")
_LIMIT = 30.0  # [s] for anything to come up


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which a program did not run."""

    ms: float
    ended_ns: int


def gaps_after(log: Path, offset: int = 0) -> list[Gap]:
    """The gaps that a program has printed behind a byte of its output."""
    with log.open("rb") as file:
        file.seek(offset)
        return [Gap(int(us) / 1000, int(ended)) for us, ended in _GAP.findall(file.read())]


@dataclass(frozen=True, slots=True)
class Program:
    """A program to measure.

    Attributes:
        port: where it listens, None if it does not.
        inside: in a capsule, Python processes get the recorder.
        tells: it tells when it stood still (see ``gaps_after``); who runs one that does not, sees for himself that it is up.
    """

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    port: int | None = None
    tells: bool = True
    inside: bool = True


@dataclass(frozen=True, slots=True)
class Service:
    """A program that runs: its root's pid on the host, its output, and how to end it.

    Attributes:
        capsule: None if it runs bare.
        port: where clients reach it: its own port, or the recording proxy's.
    """

    pid: int
    output: Path
    end: Callable[[], None]
    capsule: Capsule | None = None
    port: int | None = None

    def commit(self) -> dict[str, Any]:
        """Have the agent commit it: ``id``, ``pause_us``, ``durable_us``."""
        assert self.capsule is not None
        return ask_agent(self.capsule.paths.agent_socket, {"op": "commit"}, limit=60)


class Lab:
    """A directory with a RELIVE_HOME of its own; made by ``lab``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.settings = load_settings(home=directory / "home", tools=load_settings().tools_path)
        self.library = directory / "pulse.so"
        source = directory / "pulse.c"
        source.write_text(_PULSE)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", self.library, source], check=True)
        (directory / "plain.py").write_text(_PLAIN)
        (directory / "web.py").write_text(_WEB)
        self._counter = 0

    @property
    def criu(self) -> Path:
        """The CRIU that Relive uses as well."""
        return self.settings.tools_path / "criu"

    def environment(self) -> dict[str, str]:
        """For ``relive`` commands on this RELIVE_HOME."""
        places = {"RELIVE_HOME": str(self.settings.home), "RELIVE_TOOLS": str(self.settings.tools_path)}
        return dict(os.environ, **places)

    def store(self) -> Store:
        """The store of its RELIVE_HOME."""
        return Store(self.settings.store)

    def fresh(self, name: str) -> Path:
        """A new directory."""
        self._counter += 1
        path = self.directory / f"{name}-{self._counter}"
        path.mkdir()
        return path

    def plain(self, megabytes: int) -> Program:
        """A Python process that uses about that much memory, 12 at least."""
        command = [sys.executable, str(self.directory / "plain.py"), str(self.library)]
        return Program(f"python-{megabytes}", [*command, str(max(0, megabytes - 12))])

    def web(self) -> Program:
        """FastAPI under uvicorn with its default loop."""
        port = free_port()
        options = ["--app-dir", str(self.directory), "--port", str(port), "--log-level", "warning"]
        command = [sys.executable, "-m", "uvicorn", *options, "--no-access-log", "web:app"]
        return Program("fastapi", command, {"PULSE": str(self.library)}, port)

    @contextlib.contextmanager
    def bare(self, program: Program) -> Iterator[Service]:
        """Run it as CRIU likes it best: no terminal, no descriptors from here, no capsule."""
        output = self.fresh("bare") / "stdout.log"
        with output.open("ab") as out:
            process = subprocess.Popen(
                program.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env=dict(os.environ, **program.environment),
                cwd="/",
                # Only where CRIU would refuse otherwise, as it does a process with a ring.
                preexec_fn=hide_io_uring if program.port is not None else None,  # noqa: PLW1509 - one thread
            )

        def end() -> None:
            process.kill()
            process.wait()

        try:
            _await_start(process.pid, output, program.port)
            yield Service(process.pid, output, end, port=program.port)
        finally:
            end()

    @contextlib.contextmanager
    def capsule(
        self, program: Program, stopwatch: Stopwatch | None = None, parts: list[Part] | None = None
    ) -> Iterator[Service]:
        """Run it in a capsule with its agent, in which ``parts`` are timed; with a recording proxy if it has a port."""
        self._counter += 1
        paths = new_life(self.settings, f"{program.name}-{self._counter}")
        listen = ("127.0.0.1", free_port()) if program.port is not None else None
        spec = CapsuleSpec(
            name=paths.directory.parent.name,
            command=program.command,
            directory="/",
            environment=dict(os.environ, **program.environment),
            policy=Policy(at_start=False),
            listen=listen,
            upstream=("127.0.0.1", program.port) if program.port is not None else None,
            inside=program.inside,
        )
        agent = _fork_agent(self, paths, spec, stopwatch, parts or [])
        try:
            _await(paths.state.exists, "the capsule does not start")
            capsule = Capsule(paths, CapsuleFacts.model_validate_json(paths.state.read_bytes()))
            current = paths.directory.parent / "current"
            current.symlink_to(paths.directory.name)
            try:
                if program.tells:
                    _await_start(capsule.facts.root, paths.logs[0], program.port)
                _await(lambda: _agent_is_ready(paths, listen is not None), "the agent does not answer")
                port = listen[1] if listen is not None else None
                yield Service(capsule.facts.root, paths.logs[0], lambda: None, capsule, port)
            finally:
                with contextlib.suppress(AgentUnreachable):
                    ask_agent(paths.agent_socket, {"op": "stopping"}, limit=5)
                os.kill(capsule.facts.root, signal.SIGKILL)
        finally:
            _end_agent(agent)


def _fork_agent(
    place: Lab, paths: LifePaths, spec: CapsuleSpec, stopwatch: Stopwatch | None, parts: list[Part]
) -> int:
    """The real agent in a child, with a stopwatch in it, which a program started anew could not have."""
    agent = os.fork()
    if agent:
        return agent
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
        given = os.memfd_create("spec")  # the agent reads what to start from its standard input
        os.pwrite(given, spec.model_dump_json().encode(), 0)
        os.dup2(given, 0)
        os.environ.update(place.environment())
        if stopwatch is not None:
            stopwatch.watch(parts)
        from relive.agent import __main__ as program  # noqa: PLC0415 - only here, and only now

        sys.argv = ["relive.agent", str(paths.directory)]
        os._exit(program.main())
    except BaseException as error:
        print(f"the agent failed: {error!r}", file=sys.stderr)
    os._exit(1)


def _end_agent(agent: int) -> None:
    """It ends by itself when the service has ended; not to hang here if it does not, it is killed."""
    until = time.monotonic() + _LIMIT
    while os.waitpid(agent, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.kill(agent, signal.SIGKILL)
            os.waitpid(agent, 0)
            return
        time.sleep(0.02)


def _agent_is_ready(paths: LifePaths, with_proxy: bool) -> bool:
    try:
        answer = ask_agent(paths.agent_socket, {"op": "status"}, limit=5)
    except (AgentUnreachable, OSError):
        return False
    return bool(answer["recording"]) or not with_proxy


def _await(condition: Callable[[], bool], otherwise: str) -> None:
    until = time.monotonic() + _LIMIT
    while not condition():
        if time.monotonic() > until:
            raise SystemExit(f"error: {otherwise} within {_LIMIT:g} s")
        time.sleep(0.02)


def _await_start(pid: int, output: Path, port: int | None) -> None:
    if port is not None:
        _await(lambda: port in listening_ports(), f"nothing listens: {output}")
        return
    _await(lambda: _is_napping(pid), f"the program does not run: {output}")
    time.sleep(0.1)


def _is_napping(pid: int) -> bool:
    """The library is loaded, and the memory does not grow any more."""
    if not any(mapping.path.endswith("/pulse.so") for mapping in procfs.read_maps(pid)):
        return False
    before = procfs.status_field(pid, "VmRSS")
    time.sleep(0.05)
    return before == procfs.status_field(pid, "VmRSS")


def free_port() -> int:
    """A port on which nobody listens now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def lab(options: argparse.Namespace) -> Iterator[Lab]:
    """A lab for the time of the block. Its RELIVE_HOME, and everything in it, is gone afterwards."""
    if options.nice:
        with contextlib.suppress(PermissionError):
            os.nice(-20)  # both sides alike, and against whatever else runs on this machine
    # So that it is cleaned up then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("error: terminated"))
    place = Path(options.directory or load_settings().home)
    place.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="benchmark-", dir=place))
    try:
        yield Lab(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def add_options(parser: argparse.ArgumentParser, rounds: int) -> None:
    """The options that all benchmarks have."""
    parser.add_argument(
        "--rounds", type=int, default=rounds, metavar="N", help=f"pairs of each case (default {rounds})"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--directory", help="where to work; on the file system to be measured (default: RELIVE_HOME)"
    )
    parser.add_argument(
        "--no-nice", dest="nice", action="store_false", help="do not raise the priority of both sides"
    )


def median(values: Iterable[float]) -> float:
    """The median, NaN of nothing."""
    found = list(values)
    return statistics.median(found) if found else float("nan")


def quartiles(values: Sequence[float]) -> str:
    """Lowest and highest quarter, as text."""
    if len(values) < 4:
        return ""
    low, _, high = statistics.quantiles(values, n=4)
    return f"{low:.1f}..{high:.1f}"


def load_average() -> str:
    """The machine's load, for the reader to judge the noise by."""
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


def print_table(title: str, rows: list[dict[str, Any]]) -> None:
    """Rows of the same keys; numbers right-aligned, with two decimals."""
    if not rows:
        return
    texts = [[_text(value) for value in row.values()] for row in rows]
    names = list(rows[0])
    widths = [max(len(name), *(len(row[i]) for row in texts)) for i, name in enumerate(names)]
    print(f"\n{title}")
    for line, source in ((names, None), *zip(texts, rows, strict=True)):
        cells = []
        for i, (text, width) in enumerate(zip(line, widths, strict=True)):
            value = rows[0][names[i]] if source is None else source[names[i]]
            cells.append(text.ljust(width) if isinstance(value, str) else text.rjust(width))
        print("  ".join(cells).rstrip())


def _text(value: object) -> str:
    if isinstance(value, float):
        return "-" if value != value else f"{value:.2f}"  # noqa: PLR0124 - NaN differs from itself
    return "-" if value is None else str(value)


def print_json(result: dict[str, Any]) -> None:
    """One JSON object."""
    print(json.dumps(result))

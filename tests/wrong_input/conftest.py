"""A home with one good commit in it, a service that must stay unharmed, and commands that must be refused."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relive.kernel import procfs

RELIVE = Path(sysconfig.get_path("scripts")) / "relive"
TOOLS = Path(os.environ.get("RELIVE_TOOLS", "/var/lib/relive/tools"))
LIMIT = 30.0  # [s] for anything that is waited for

Error = dict[str, str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.real)


def eventually(check: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not check():
        assert time.monotonic() < deadline, f"not within {LIMIT:g} s: {what}"
        time.sleep(0.005)


class Program:
    """A Python program that says "ready", then repeats every line it is told. Its pipes end in this process."""

    def __init__(self, code: str = "", **options: Any) -> None:
        text = f"{code}\nimport signal, sys\nprint('ready', flush=True)\n"
        text += "for line in sys.stdin: print(line, end='', flush=True)\n"
        text += "signal.pause()\n"  # in a branch its input has ended
        self.process = subprocess.Popen(
            [sys.executable, "-c", text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            **options,
        )
        self.pid = self.process.pid
        assert self._line() == b"ready\n"
        stat = procfs.read_stat(self.pid)
        assert stat is not None
        self._started = stat.start_ticks

    def _line(self) -> bytes:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], LIMIT)
        assert readable, "the service does not answer"
        return self.process.stdout.readline()

    def assert_unharmed(self) -> None:
        """It is the same process, answers, and no thread of it is stopped or traced."""
        assert procfs.is_same_process(self.pid, self._started)
        assert self.process.stdin is not None
        self.process.stdin.write(b"still there?\n")
        assert self._line() == b"still there?\n"
        for thread in procfs.threads_of(self.pid):
            stat = (Path(f"/proc/{self.pid}/task") / str(thread) / "stat").read_text()
            assert stat.rpartition(")")[2].split()[0] not in "Tt"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


_FORKER = """
import json, os, sys
import relive.agent.capsule, relive.agent.launch, relive.cli, relive.engine.capture, relive.sandbox.branch
from relive.cli import main
for line in sys.stdin:
    words, environment, out, err = json.loads(line)
    child = os.fork()
    if child == 0:
        for number, path in ((0, os.devnull), (1, out), (2, err)):
            os.dup2(os.open(path, os.O_RDWR), number)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir("/")
        sys.argv = ["relive", *words]
        status = 1
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Forker:
    """Runs commands in forks of a process that has imported Relive already: its start costs more than most refusals."""

    def __init__(self, directory: Path) -> None:
        self._out, self._err = directory / "out", directory / "err"
        self._process = subprocess.Popen(
            [sys.executable, "-c", _FORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._out.write_text("")
        self._err.write_text("")
        request = [words, environment, str(self._out), str(self._err)]
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        return subprocess.CompletedProcess(words, status, self._out.read_text(), self._err.read_text())

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(LIMIT)
        self._process.stdout.close()


@dataclass(frozen=True)
class Home:
    """A RELIVE_HOME and the commands that are given in it."""

    path: Path
    forker: Forker

    @property
    def store(self) -> Path:
        return self.path / "store"

    def command(
        self, *words: str | Path, under: tuple[str, ...] = (), **environment: str
    ) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "RELIVE_HOME": str(self.path), "RELIVE_TOOLS": str(TOOLS), **environment}
        if not under:
            return self.forker([str(word) for word in words], env)
        return subprocess.run(
            [*under, RELIVE, *words],
            env=env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def ask(self, command: str, *words: str | Path) -> Any:
        """The answer of a command that must work."""
        done = self.command(command, "--json", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def state(self) -> dict[str, str]:
        """Every file of the store with a hash of its bytes. SQLite's own side files say nothing, nor what is laid out."""
        return {
            str(path.relative_to(self.store)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.store.rglob("*"))
            if path.is_file()
            and path.parent.name != "laid"
            and not path.name.endswith(("-wal", "-shm"))
            and path.name != "index.sqlite"
        }

    def refused(
        self,
        code: str,
        status: int,
        command: str,
        *words: str | Path,
        under: tuple[str, ...] = (),
        **env: str,
    ) -> Error:
        """Give a command twice, with and without ``--json``; it must fail the same way, and leave the store as it was."""
        before = self.state() if self.store.exists() else {}
        in_json = self.command(command, "--json", *words, under=under, **env)
        in_words = self.command(command, *words, under=under, **env)
        said = in_json.stdout + in_json.stderr
        assert in_json.returncode == status, said
        shape = json.loads(in_json.stdout)
        assert set(shape) == {"error"}
        error: dict[str, str] = shape["error"]
        assert set(error) == {"code", "message", "cause", "remedy"}
        assert error["code"] == code, said
        assert error["message"] and "Traceback" not in in_json.stderr
        assert in_words.returncode == status
        assert in_words.stdout == ""
        assert f"({code})" in in_words.stderr.splitlines()[0]
        assert in_words.stderr.startswith("Error: ") and "Traceback" not in in_words.stderr
        for part in ("Cause", "Remedy"):
            assert (f"{part}: " in in_words.stderr) == bool(error[part.lower()])
        if self.store.exists():
            assert self.state() == before
            assert not list((self.store / "incoming").iterdir())
        return error

    def branches(self) -> list[Any]:
        return [one for one in self.ask("ps", "--all") if one["kind"] == "branch"]


@contextlib.contextmanager
def new_home(forker: Forker) -> Iterator[Home]:
    # Not below tmp_path: Relive hides its home from the service, and the service's files lie there.
    path = Path(tempfile.mkdtemp(prefix="relive-wrong-"))
    try:
        yield Home(path, forker)
    finally:
        shutil.rmtree(path)


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    running: list[Program] = []

    def begin(code: str = "", **options: Any) -> Program:
        running.append(Program(code, **options))
        return running[-1]

    yield begin
    for program in running:
        program.close()


@pytest.fixture(scope="session")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forker]:
    made = Forker(tmp_path_factory.mktemp("forker"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def service() -> Iterator[Program]:
    """Not in a capsule; committed once in ``home``."""
    made = Program()
    yield made
    made.close()


@pytest.fixture(scope="module")
def home(service: Program, forker: Forker) -> Iterator[Home]:
    with new_home(forker) as made:
        made.ask("commit", f"pid:{service.pid}", "--tag", "good")
        yield made


@pytest.fixture
def fresh_home(service: Program, forker: Forker) -> Iterator[Home]:
    """For tests that damage it."""
    with new_home(forker) as made:
        made.ask("commit", f"pid:{service.pid}", "--tag", "good")
        yield made
